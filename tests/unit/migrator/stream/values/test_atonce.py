"""Values under their own names: one piece where that is enough, and those that take the place of others."""

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.cutter import PIECE_ELEMENTS
from migrator.stream.values.atonce import Room, replacing, small_stream
from migrator.stream.values.cutting import Limits
from rdb.elements import Counters, Element, Entry
from tests.unit.migrator.stream.values.wire import words
from tests.unit.rdb.writer import length, string

STRING, SET, MODULE = 0, 2, 7
ABILITIES = Abilities(False, False)


def dumped(type: int, value: bytes, version: int = 12) -> bytes:
    """What DUMP gives for a value."""
    return bytes([type]) + value + version.to_bytes(2, "little") + bytes(8)


def members(number: int) -> bytes:
    return length(number) + b"".join(string(f"{member:04}") for member in range(number))


def replaced(*some: tuple[bytes, bytes | None, int | None], limits: Limits | None = None) -> list[list[list[bytes]]]:
    """The commands of each piece."""
    found = replacing(some, 0, limits or Limits(), "target t:1", ABILITIES, Room(100_000))
    return [[words(command) for command in piece.commands] for piece in found]


@pytest.mark.parametrize(("entries", "small"), [(PIECE_ELEMENTS - 1, True), (PIECE_ELEMENTS, False)])
def test_a_small_stream_is_one_piece_and_a_large_one_is_not(entries: int, small: bool) -> None:
    some: list[Element] = [Entry((number, 0), [b"f", b"v"]) for number in range(1, entries + 1)]
    piece = small_stream([*some, Counters(entries, (entries, 0), None, None, None)], b"key", ABILITIES)
    assert (piece is not None) == small
    if piece is not None:
        assert words(piece.commands[0]) == [b"XADD", b"key", b"1-0", b"f", b"v"]


def test_what_the_target_had_goes_before_the_first_piece_alone() -> None:
    value = dumped(SET, members(3))
    (gone, *made), *later = replaced((b"key", value, 123), limits=Limits(most_elements=2))
    assert (gone, made[-1]) == ([b"UNLINK", b"key"], [b"SADD", b"key", b"0000", b"0001"])
    assert later == [[[b"SADD", b"key", b"0002"]], [[b"PEXPIREAT", b"key", b"123"]]]


@pytest.mark.parametrize("version", [6, 12, 80])
def test_a_string_of_any_version_without_a_deadline(version: int) -> None:
    value = dumped(STRING, string("value"), version)
    assert replaced((b"key", value, -1)) == [[[b"UNLINK", b"key"], [b"SET", b"key", b"value"]]]


@pytest.mark.parametrize(("payload", "deadline_ms"), [(None, None), (dumped(STRING, string("x")), None)])
def test_a_key_that_is_gone_goes_at_the_target(payload: bytes | None, deadline_ms: int | None) -> None:
    assert replaced((b"key", payload, deadline_ms)) == [[[b"UNLINK", b"key"]]]


def test_a_collection_without_elements_goes_at_the_target() -> None:
    assert replaced((b"key", dumped(SET, members(0)), 123)) == [[[b"UNLINK", b"key"]]]


def test_a_value_of_a_module_is_refused_by_its_name() -> None:
    # A module's id, and its end.
    value = dumped(MODULE, b"\x81" + bytes(8) + b"\x00")
    with pytest.raises(CannotBeCut, match="key 'key' of database 0 has a value of type"):
        replaced((b"key", value, -1))
