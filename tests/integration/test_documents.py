"""The command blocks of pages do what the pages say, in their order, against real processes."""

from pathlib import Path

import pytest

from tests.pages import FIRST, KEPT, RUN, STAYS, Block, PageError, Shell, blocks, run, steps

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "docs/start.md", "docs/from-one-redis.md", "docs/backup.md"),
    *(f"docs/{name}.md" for name in ("pacing", "when-a-move-stops", "leaving", "leaving-proxies", "joining")),
    "docs/replica-reads.md",
)
NOT_RUN = [(page, block) for page in PAGES for block in blocks(ROOT / page) if block.reason]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    assert run(ROOT / page, tmp_path) >= 5


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_run_or_says_why_not(page: str) -> None:
    assert [block for block in blocks(ROOT / page) if block.kind not in (*RUN, *KEPT)] == []
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("\n```") == 2 * len([block for block in blocks(ROOT / page) if block.kind != FIRST])


@pytest.mark.parametrize(("page", "block"), NOT_RUN, ids=[f"{page}:{block.line}" for page, block in NOT_RUN])
def test_a_block_that_is_not_run(page: str, block: Block) -> None:
    pytest.skip(f"{page}:{block.line}: {block.reason}")


def test_a_command_that_prints_something_else_fails(tmp_path: Path) -> None:
    with Shell(tmp_path, 20) as shell:
        shell.run("echo one two; echo three", ["one ...", "three"])
        with pytest.raises(PageError, match="does not print"):
            shell.run("echo one; echo two", ["two", "one"])
        with pytest.raises(PageError, match="status 3"):
            shell.run("exit 3", [])
        shell.run("export WORD=kept", [])
        assert shell.run("echo $WORD", ["kept"]) == "kept\n"


def test_what_nobody_sees_is_run_first_and_an_address_stands_for_another(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- here.txt stands for /var/there -->\n<!-- first\necho word > here.txt\n-->\n\n"
        "```console\n$ cat /var/there\nword\n```\n"
    )
    assert [block.kind for block in blocks(page)] == [FIRST, "console"]
    (tmp_path / "home").mkdir()
    assert run(page, tmp_path / "home", 20) == 2


def test_a_block_becomes_commands() -> None:
    console = Block(1, "console", "$ one \\\n  two\nprinted\n$ three\n", "")
    assert list(steps(console)) == [("one    two", ["printed"]), ("three", [])]
    assert list(steps(Block(1, "sh", "# why\none\n\ntwo\n", ""))) == [("one", []), ("two", [])]


def test_what_stays_is_ended_by_its_line(tmp_path: Path) -> None:
    [ends] = steps(Block(1, "sh", "# Ctrl-C: redis-server\n", ""))
    with Shell(tmp_path, 60) as shell:
        shell.run(f"redis-server --port 7001 --save ''    {STAYS}", [])
        shell.run("redis-cli -p 7001 ping", ["PONG"])
        shell.run(*ends)
        with pytest.raises(PageError, match="Could not connect"):
            shell.run("redis-cli -p 7001 ping", [])
