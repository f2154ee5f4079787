"""The page for those who change the code: every place that it sends them to is there."""

import re
from pathlib import Path

import pytest

from tests.unit.test_imports import ALLOWED, ROOMS, may_import

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLES = [ROOT / "docs" / f"where-to-change{part}.md" for part in ("", "-proxy", "-more")]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for table in TABLES
    for line in table.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| to change |")
]
PLACE = re.compile(r"`([\w./-]+(?:/|\.(?:py|pyx|pxd|lua|tsv|toml)))`")
LINK = re.compile(r"\]\(([^)#\s]+)")


def places(cell: str) -> list[Path]:
    """The files and folders of a cell. A name without a folder is in the folder that was named before it."""
    found, folder = [], ROOT
    for name in PLACE.findall(cell):
        if name.endswith("/"):
            folder = ROOT / name
        found.append(folder / name if "/" not in name else ROOT / name)
    return found


def test_there_are_enough_rows_for_every_folder() -> None:
    assert len(ROWS) >= 40
    shown = {path.relative_to(ROOT).parts[0] for _, cell in ROWS for path in places(cell)}
    assert set(ALLOWED) <= shown


@pytest.mark.parametrize(("what", "cell"), ROWS, ids=[what for what, *_ in ROWS])
def test_the_table_sends_nobody_to_what_is_not_there(what: str, cell: str) -> None:
    found = places(cell)
    assert found, f"to change {what}, go nowhere"
    assert [str(path.relative_to(ROOT)) for path in found if not path.exists()] == []
    assert [link for link in LINK.findall(cell) if not (ROOT / "docs" / link).exists()] == []


@pytest.mark.parametrize(("package", "called"), [("topom", "topom"), ("proxy", "the proxy")])
def test_the_picture_has_every_room(package: str, called: str) -> None:
    [picture] = re.findall(rf"## The rooms of {called}\n.*?```text\n(.*?)```", PAGE, re.DOTALL)
    floors = [line[:60].split() for line in picture.splitlines()]
    assert sorted(room for floor in floors for room in floor) == sorted(ROOMS[package])
    for number, floor in enumerate(floors):
        below = {room for lower in floors[number + 1 :] for room in lower}
        assert {room: may_import(package, room) - below for room in floor} == {room: set() for room in floor}
