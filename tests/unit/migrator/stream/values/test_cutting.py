"""How items are put together to pieces."""

from hypothesis import given
from hypothesis import strategies as st

from migrator.stream.values.cutting import Limits, cut


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99))), st.integers(1, 30), st.integers(1, 300))
def test_pieces_keep_to_both_limits_and_are_no_smaller_than_they_have_to_be(
    items: list[tuple[int, int]], most_elements: int, most_bytes: int
) -> None:
    found = list(cut(items, Limits(most_elements, most_bytes), lambda item: item))

    assert [item for some, _, _ in found for item in some] == items
    for index, (some, elements, size) in enumerate(found):
        assert (elements, size) == (sum(item[0] for item in some), sum(item[1] for item in some))
        assert len(some) == 1 or (elements <= most_elements and size <= most_bytes)
        if index + 1 < len(found):
            following = found[index + 1][0][0]
            assert elements + following[0] > most_elements or size + following[1] > most_bytes


def test_limits_may_change_between_two_pieces() -> None:
    limits = Limits(2, 1000)
    pieces = cut(range(10), limits, lambda item: (1, 1))
    assert next(pieces)[0] == [0, 1]
    limits.most_elements = 4
    assert [some for some, _, _ in pieces] == [[2, 3, 4, 5], [6, 7, 8, 9]]
