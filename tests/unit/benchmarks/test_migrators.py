"""Where the sources of the benchmark are, and which copies were made far from them."""

from collections import Counter

from benchmarks.migrators import Found, Pair, Place, pairs_of, places
from slots.table import DEFAULT_SLOTS


def found(pairs: list[Pair], where: list[Place], by: dict[int, int]) -> Found:
    copies = [[pair.place for pair in pairs if by[pair.source_id] == number] for number in range(len(where))]
    return Found(len(pairs), 1.0, 1, 1, 0.0, 0, 0, 0, where, [], [], copies, [], [])


def test_all_slots_are_at_the_sources_which_are_spread_over_the_migrators_places() -> None:
    where = places(10)
    pairs = pairs_of(100, where)
    assert [slot for pair in pairs for slot in pair.slots] == list(range(DEFAULT_SLOTS))
    assert len({group for pair in pairs for group in (pair.source_id, pair.target_id)}) == 200
    assert set(Counter(pair.place.datacenter for pair in pairs).values()) == {20}
    assert Counter(pair.place.node for pair in pairs) == {"": 50} | {place.node: 5 for place in where}


def test_a_copy_is_far_if_a_nearer_migrator_was_there() -> None:
    where = places(4)
    pairs = pairs_of(8, where)
    near = {pair.source_id: number % 4 for number, pair in enumerate(pairs)}
    assert found(pairs, where, near).far == 0
    # The fifth is in the first datacenter, on no node of a migrator.
    assert found(pairs, where, {**near, 5: 1}).far == 0
    assert found(pairs, where, {**near, 5: 2}).far == 1
    assert found(pairs, where, {**near, 1: 1}).far == 1
