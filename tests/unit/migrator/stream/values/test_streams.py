"""Streams: which commands, in which order, and how many in a piece."""

from collections.abc import Iterator

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import Limits
from migrator.stream.values.streams import pieces
from rdb.elements import Consumer, Counters, Element, Entry, Group, Owned, Pending
from tests.unit.migrator.stream.values.wire import words

OLD = Abilities(counts_entries=False, makes_consumers=False)


def entry(number: int) -> Entry:
    return Entry((number, 0), [b"f", b"%d" % number])


def made(elements: list[Element], limits: Limits | None = None, abilities: Abilities | None = None) -> list[Piece]:
    def opened() -> Iterator[Element]:
        return iter(elements)

    return list(pieces(opened, b"s", limits or Limits(), abilities or Abilities()))


def lines(found: list[Piece]) -> list[str]:
    return [b" ".join(words(command)).decode() for piece in found for command in piece.commands]


GROUP: list[Element] = [
    *(Group(b"g", (5, 0), 4), Pending((1, 0), 11, 1), Pending((3, 0), 12, 2), Pending((4, 0), 12, 2)),
    *(Consumer(b"c", 0, 0), Owned((3, 0)), Owned((4, 0)), Consumer(b"d", 0, 0), Owned((1, 0)), Consumer(b"e", 0, 0)),
]


def test_a_stream_whose_pending_entries_are_all_there() -> None:
    elements = [*map(entry, (1, 3, 4, 5)), Counters(4, (6, 0), (1, 0), (6, 0), 6), *GROUP]

    assert lines(made(elements)) == [
        *("XADD s 1-0 f 1", "XADD s 3-0 f 3", "XADD s 4-0 f 4", "XADD s 5-0 f 5"),
        "XSETID s 6-0 ENTRIESADDED 6 MAXDELETEDID 6-0",
        "XGROUP CREATE s g 5-0 ENTRIESREAD 4",
        "XGROUP CREATECONSUMER s g c",
        "XCLAIM s g c 0 3-0 4-0 TIME 12 RETRYCOUNT 2 FORCE JUSTID",
        "XGROUP CREATECONSUMER s g d",
        "XCLAIM s g d 0 1-0 TIME 11 RETRYCOUNT 1 FORCE JUSTID",
        "XGROUP CREATECONSUMER s g e",
    ]


def test_stand_ins_for_pending_entries_that_were_deleted() -> None:
    """given one deleted before the first entry, one among the entries and one behind, each is there while claimed."""
    elements: list[Element] = [
        *(entry(2), entry(4), Counters(2, (6, 0), (2, 0), (5, 0), 5), Group(b"g", (5, 0), 5)),
        *(Pending((number, 0), 9, 1) for number in (1, 3, 4, 5)),
        *(Consumer(b"c", 0, 0), *(Owned((number, 0)) for number in (1, 3, 4, 5))),
    ]

    assert lines(made(elements)) == [
        *("XADD s 1-0  ", "XADD s 2-0 f 2", "XADD s 3-0  ", "XADD s 4-0 f 4", "XADD s 5-0  "),
        # A larger deleted id is not known yet.
        "XSETID s 6-0 ENTRIESADDED 5",
        "XGROUP CREATE s g 5-0 ENTRIESREAD 5",
        "XGROUP CREATECONSUMER s g c",
        "XCLAIM s g c 0 1-0 3-0 4-0 5-0 TIME 9 RETRYCOUNT 1 FORCE JUSTID",
        "XDEL s 3-0 5-0",
        "XTRIM s MAXLEN 2",
        "XSETID s 6-0 ENTRIESADDED 5 MAXDELETEDID 5-0",
    ]


def test_a_stream_that_was_trimmed_to_nothing_leaves_no_trace_of_stand_ins() -> None:
    elements: list[Element] = [
        *(Counters(0, (6, 0), (0, 0), (0, 0), 6), Group(b"g", (5, 0), 5), Pending((1, 0), 9, 1)),
        *(Consumer(b"c", 0, 0), Owned((1, 0))),
    ]

    assert lines(made(elements))[-3:] == [
        "XCLAIM s g c 0 1-0 TIME 9 RETRYCOUNT 1 FORCE JUSTID",
        "XTRIM s MAXLEN 0",
        "XSETID s 6-0 ENTRIESADDED 6",
    ]


def test_an_empty_stream() -> None:
    assert lines(made([Counters(0, (6, 0), (0, 0), (6, 0), 6)])) == [
        "XGROUP CREATE s x 0-0 MKSTREAM",
        "XGROUP DESTROY s x",
        "XSETID s 6-0 ENTRIESADDED 6 MAXDELETEDID 6-0",
    ]


def test_a_target_that_counts_nothing() -> None:
    elements = [*map(entry, (1, 3, 4, 5)), Counters(4, (6, 0), (1, 0), (6, 0), 6), *GROUP]

    assert lines(made(elements, abilities=OLD))[4:] == [
        "XSETID s 6-0",
        "XGROUP CREATE s g 5-0",
        "XCLAIM s g c 0 3-0 4-0 TIME 12 RETRYCOUNT 2 FORCE JUSTID",
        "XCLAIM s g d 0 1-0 TIME 11 RETRYCOUNT 1 FORCE JUSTID",
    ]


@pytest.mark.parametrize(("at", "read"), [(0, 0), (1, 1), (2, -1), (6, 2)])
def test_what_an_old_source_does_not_count_is_estimated(at: int, read: int) -> None:
    elements: list[Element] = [
        *(entry(1), entry(3), Counters(2, (6, 0), None, None, None), Group(b"g", (at, 0), None)),
    ]

    assert lines(made(elements))[2:] == [
        "XSETID s 6-0 ENTRIESADDED 2",
        f"XGROUP CREATE s g {at}-0 ENTRIESREAD {read}",
    ]


@pytest.mark.parametrize("most", [1, 10, 100, 512])
def test_pieces_are_small_whatever_is_in_the_stream(most: int) -> None:
    pending = [(number, 0) for number in range(1, 2001)]
    elements: list[Element] = [
        *map(entry, range(1000, 1500, 2)),
        Counters(250, (2000, 0), (1000, 0), (2000, 0), 2000),
        Group(b"g", (2000, 0), 2000),
        *(Pending(each, each[0] % 3, 1) for each in pending),
        Consumer(b"c", 0, 0),
        *map(Owned, pending),
    ]

    found = made(elements, Limits(most, 1000))

    assert max(piece.elements for piece in found) <= max(most, 10)
    assert max(piece.size for piece in found) <= 1000
    said = lines(found)
    assert sum(len(line.split(" FORCE")[0].split()) - 9 for line in said if line.startswith("XCLAIM")) == 2000
    # Those before the first entry go step by step.
    trims = [int(line.split()[-1]) for line in said if line.startswith("XTRIM")]
    assert trims == sorted(trims, reverse=True)
    assert trims[-1] == 250
    assert len(trims) == -(-999 // most)
    assert said[-1] == "XSETID s 2000-0 ENTRIESADDED 2000 MAXDELETEDID 2000-0"


def test_a_pending_entry_of_no_consumer_or_of_two() -> None:
    group: list[Element] = [entry(1), Counters(1, (1, 0), (1, 0), (0, 0), 1), Group(b"g", (1, 0), 1)]
    for following in ([], [Group(b"h", (1, 0), 1)]):
        with pytest.raises(CannotBeCut, match="1 entries of group b'g' of stream b's' are pending for no consumer"):
            made([*group, Pending((1, 0), 1, 1), *following])
    with pytest.raises(CannotBeCut, match="consumer b'c' of group b'g'"):
        made([*group, Pending((1, 0), 1, 1), Consumer(b"c", 0, 0), Owned((2, 0))])
