"""The list of formats, and the page that says when a number is raised."""

import re
from pathlib import Path

import pytest

from slots import formats
from slots.formats import FORMATS, Format
from slots.messages.protocol import SPOKEN
from slots.version import program_version
from topom.api.routers import PREFIX

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


def rows() -> dict[str, str]:
    """What the page's first table says: by what is kept or said, its number."""
    found = re.findall(r"^\| ([^|`]+?) \| `?([^|`]+?)`? \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: number for name, number in found if set(name) != {"-"}}


def test_the_page_has_every_format_with_its_number() -> None:
    said = rows()
    assert {one.name: said.get(one.name) for one in FORMATS} == {one.name: str(one.number) for one in FORMATS}
    assert said["messages of proxies and migrators with topom"] == str(SPOKEN)
    assert said["the HTTP API"] == PREFIX.removeprefix("/api/")


def test_the_list_has_every_format() -> None:
    assert {id(one) for one in vars(formats).values() if isinstance(one, Format)} == {id(one) for one in FORMATS}
    assert len({one.name for one in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("found", [None, True, "1", 1.0, 0, 2, [], {}])
def test_only_the_own_number_is_read(found: object) -> None:
    one = Format("the thing", 1)
    assert one.reads(1)
    assert not one.reads(found)


def test_a_refusal_names_both_numbers_and_the_version_and_is_bounded() -> None:
    said = Format("the thing", 3).refusal("the file /a", "9" * 1000)
    assert said.startswith("the file /a has format 99999999999999999999, and this version of Slotferry, ")
    assert said.endswith(f"{program_version()}, reads format 3")
    assert "has no format, and" in Format("the thing", 3).refusal("it", None)
