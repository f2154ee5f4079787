"""The command blocks of pages do what the pages say, in their order, against real processes."""

from pathlib import Path

import pytest

from tests.documents import JUDGED, PAGES, SPARK, SPARK_SECONDS
from tests.integration.sizing.servers import speaks_tls
from tests.integration.stores.servers import need_etcd
from tests.pages import FIRST, STAYS, Block, PageError, Shell, blocks, run, steps, together

ROOT = Path(__file__).parents[2]
LEFT_OUT = [(page, block) for page in JUDGED for block in blocks(ROOT / page) if block.reason]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    text = "".join(block.text for block in together(ROOT / page))
    if "etcd --data-dir" in text:
        need_etcd()
    if "tls-port" in text and not speaks_tls():
        pytest.skip("the Redis server here was built without TLS")
    assert run(ROOT / page, tmp_path, SPARK_SECONDS if page in SPARK else 90.0) >= PAGES[page]


@pytest.mark.parametrize(("page", "block"), LEFT_OUT, ids=[f"{page}:{block.line}" for page, block in LEFT_OUT])
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


def test_other_figures_are_as_good_where_they_vary(tmp_path: Path) -> None:
    with Shell(tmp_path, 20) as shell:
        shell.run("echo 12 keys of 1,024 at 127.0.0.1 in 10.5 s.", ["7 keys of 9 at 10.0.0.1 in 0 s."], varies=True)
        for printed, varies in (("12 slots of 9", True), ("keys of 9", True), ("12 keys of 9", False)):
            with pytest.raises(PageError, match="does not print"):
                shell.run(f"echo {printed}", ["7 keys of 9"], varies)


def test_a_block_becomes_a_file_with_the_ports_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- 127.0.0.1 stands for 10.0.0.1 -->\n<!-- first topom -->\n\n<!-- file own.toml -->\n"
        '```toml\nlisten = "10.0.0.1:8380"\n```\n\n```sh\n'
        "curl --fail-with-body http://$(grep -o '127.*[0-9]' own.toml)/readyz\n```\n"
    )
    assert [block.kind for block in blocks(page)] == [FIRST, "toml", "sh"]
    (tmp_path / "home").mkdir()
    assert run(page, tmp_path / "home", 60) == 4


def test_what_stays_is_ended_by_its_line(tmp_path: Path) -> None:
    [ends] = steps(Block(1, "sh", "# Ctrl-C: redis-server\n", ""))
    with Shell(tmp_path, 60) as shell:
        shell.run(f"redis-server --port 7001 --save ''    {STAYS}", [])
        shell.run("redis-cli -p 7001 ping", ["PONG"])
        shell.run(*ends)
        with pytest.raises(PageError, match="Could not connect"):
            shell.run("redis-cli -p 7001 ping", [])
