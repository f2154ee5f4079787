"""What can be counted of the style of pages: how long they are, and how long their sentences are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 1500
MOST_WORDS_A_SENTENCE = 18.0
MADE = ("commands.md", "findings.md")
"""Pages that are made from the code."""
LONGER: dict[str, int] = {}
"""Pages that are longer, and how many words they may have: hundreds. A figure here only gets smaller, or goes."""
PAGES = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if page.relative_to(ROOT / "docs").as_posix() not in MADE
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


def shown(text: str) -> str:
    """A page without its comments, which no reader sees."""
    return re.sub(r"<!--.*?-->", "", text, flags=re.S)


def words_of(page: Path) -> int:
    return len(shown(page.read_text(encoding="utf-8")).split())


def prose(text: str) -> str:
    """A page without blocks, tables, comments and headings; a link is its text."""
    text = shown(re.sub(r"^\s*```.*?^\s*```$", "", text, flags=re.M | re.S))
    text = re.sub(r"^\s*\|.*$|^#.*$", "", text, flags=re.M)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[int]:
    """How many words each sentence has. An item of a list and a paragraph end one, too."""
    found = []
    for part in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s", prose(text), flags=re.M):
        code_as_a_word = re.sub(r"`[^`]*`", "code", part)
        for sentence in re.split(r"[.!?](?:[)\"*]*)(?:\s+|$)", code_as_a_word):
            if words := re.findall(r"[\w'-]*\w[\w'./-]*", sentence):
                found.append(len(words))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_short(page: Path) -> None:
    assert words_of(page) <= LONGER.get(name_of(page), MOST_WORDS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short(page: Path) -> None:
    lengths = sentences(page.read_text(encoding="utf-8"))
    assert sum(lengths) / len(lengths) < MOST_WORDS_A_SENTENCE


def test_no_page_is_allowed_more_than_it_needs() -> None:
    lengths = {name_of(page): words_of(page) for page in PAGES}
    assert [name for name in LONGER if lengths.get(name, 0) <= MOST_WORDS] == []


def test_what_no_reader_sees_is_not_counted() -> None:
    assert shown("One\n<!-- run in: a\nb -->two <!-- c -->three").split() == ["One", "two", "three"]


def test_sentences_are_counted() -> None:
    text = "# A heading\n\nOne two. Three [four](x.md#y): five?\n\n- six\n- `a b c` seven\n\n| no |\n\n```sh\nno\n```\n"
    assert sentences(text) == [2, 3, 1, 2]
