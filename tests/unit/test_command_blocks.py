"""Command blocks of the documents: each is run by ``tests/integration/test_documents.py``, or says why it is not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.utils.yaml import yaml_load

from tests.documents import JUDGED, NOT_RUN, SECTIONS
from tests.pages import FIRST, KEPT, RUN, Block, blocks, steps, together

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", JUDGED)
def test_every_block_of_a_page_is_run_or_says_why_not(page: str) -> None:
    assert [block for block in blocks(ROOT / page) if block.kind not in (*RUN, *KEPT)] == []
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("\n```") == 2 * len([block for block in blocks(ROOT / page) if block.kind != FIRST])


@pytest.mark.parametrize("page", NOT_RUN)
def test_a_page_that_is_not_run_has_no_block_to_run(page: str) -> None:
    assert [block for block in blocks(ROOT / page) if block.kind in RUN and not block.reason] == []


def pages_of_the_site(entry: object) -> Iterator[str]:
    """All pages of an entry of the site's navigation."""
    if isinstance(entry, str):
        yield entry
    for one in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from pages_of_the_site(one)


def test_no_page_with_commands_is_left_out() -> None:
    with (ROOT / "mkdocs.yml").open(encoding="utf-8") as file:
        nav = yaml_load(file)["nav"]
    sections = {name: pages for section in nav for name, pages in section.items()}
    pages = [page for name in SECTIONS for page in pages_of_the_site(sections[name])]
    assert len(pages) >= 40
    forgotten = [
        page
        for page in pages
        if page not in JUDGED and any(block.kind not in KEPT or block.file for block in blocks(ROOT / page))
    ]
    assert forgotten == []


@pytest.mark.parametrize("page", JUDGED)
def test_a_reason_names_what_is_there(page: str) -> None:
    reasons = " ".join(block.reason for block in blocks(ROOT / page))
    assert [name for name in re.findall(r"tests/[\w/]+(?:\.py)?", reasons) if not (ROOT / name).exists()] == []


def test_the_page_on_containers_has_the_commands_of_the_compose_file() -> None:
    """Those that ``tests/integration/test_image.py`` runs."""
    in_topom = re.compile(r"^(?:#\s+)?docker compose -f deploy/compose.yaml exec topom (.*)$", re.M)
    shown = [
        in_topom.findall((ROOT / name).read_text("utf-8")) for name in ("docs/containers.md", "deploy/compose.yaml")
    ]
    assert shown[0] == shown[1] != []


def test_a_block_becomes_commands() -> None:
    console = Block(1, "console", "$ one \\\n  two\nprinted\n$ three\n", "")
    assert list(steps(console)) == [("one    two", ["printed"]), ("three", [])]
    assert list(steps(Block(1, "sh", "# why\none\n\ntwo\n", ""))) == [("one", []), ("two", [])]


def test_programs_that_follow_each_other_are_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shown = ("python\na = 1", "toml\nb = 1", "python\nprint(a)", "sh\ntrue", "python\nc = 2")
    page.write_text(
        "<!-- file kept.toml -->\n".join(
            "".join(f"```{one}\n```\n\n" for one in part) for part in (shown[:1], shown[1:])
        )
    )
    assert [(block.kind, block.text, block.file) for block in together(page)] == [
        ("python", "a = 1\n", ""),
        ("toml", "b = 1\n", "kept.toml"),
        ("python", "print(a)\n", ""),
        ("sh", "true\n", ""),
        ("python", "c = 2\n", ""),
    ]
    page.write_text("".join(f"```{one}\n```\n\n" for one in shown))
    assert [block.text for block in together(page)] == ["a = 1\n\nprint(a)\n", "true\n", "c = 2\n"]
