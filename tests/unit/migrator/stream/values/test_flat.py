"""Lists, sets and sorted sets."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from migrator.stream.values.cutting import BESIDE, Limits
from migrator.stream.values.flat import of_list, of_set, of_sorted_set
from rdb.elements import Scored
from tests.unit.migrator.stream.values.wire import words


def test_elements_keep_their_order_in_pieces_of_bounded_size() -> None:
    elements = [b"%d" % number * (number % 7) for number in range(100)]

    for make, command in ((of_list, b"RPUSH"), (of_set, b"SADD")):
        pieces = list(make(elements, b"t", Limits(5, 130)))
        assert all(piece.elements <= 5 and piece.size <= 130 for piece in pieces)
        found = [words(command) for piece in pieces for command in piece.commands]
        assert all(head == [command, b"t"] for head in (each[:2] for each in found))
        assert [item for each in found for item in each[2:]] == elements


def test_a_large_element_is_a_piece_of_its_own() -> None:
    pieces = list(of_list([b"a", b"b" * 1000, b"c"], b"t", Limits(5, 130)))

    assert [piece.elements for piece in pieces] == [1, 1, 1]
    assert pieces[1].size == 1000 + BESIDE


@given(st.lists(st.floats(allow_nan=False)))
def test_scores_arrive_bit_for_bit(scores: list[float]) -> None:
    elements = [Scored(b"%d" % number, score) for number, score in enumerate(scores)]

    found = [words(command) for piece in of_sorted_set(elements, b"t", Limits(3, 100)) for command in piece.commands]

    assert [item for each in found for item in each[3::2]] == [element.member for element in elements]
    said = [struct.pack("<d", float(item)) for each in found for item in each[2::2]]
    assert said == [struct.pack("<d", score) for score in scores]
