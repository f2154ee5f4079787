"""SOFARegistry's scheme, and how our plans compare with it."""

from collections import Counter

import pytest

from tests.unit.topom.placement.planner.sequences import (
    STEP_MEASURES,
    by_scheme,
    compare,
    sequence,
    steps_from_the_same_table,
)
from topom.placement.planner.watermarks import watermarks


@pytest.mark.long
def test_at_least_as_well_as_sofaregistry_in_sum_and_in_leader_copies_each_time() -> None:
    theirs, ours = Counter[str](), Counter[str]()
    for seed in range(60):
        one = sequence(seed, sizes=(16, 32, 64), at_once=(1,), replicas=(2, 2, 3, 4))
        their_sums, our_sums = compare(one)
        assert our_sums["leader copies"] <= their_sums["leader copies"], seed
        theirs.update(their_sums)
        ours.update(our_sums)
    assert all(ours[name] < theirs[name] for name in theirs), (ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize(("at_once", "sequences"), [((1,), 50), ((1, 2, 3), 40)])
def test_from_the_same_table_no_step_is_worse_than_sofaregistrys_in_any_count(
    at_once: tuple[int, ...], sequences: int
) -> None:
    compared = 0
    for seed in range(sequences):
        one = sequence(seed, sizes=(8, 16, 32, 64), most_steps=8, at_once=at_once, replicas=(2, 2, 3, 4))
        for theirs, ours in steps_from_the_same_table(one):
            compared += 1
            worse = {name for name in STEP_MEASURES if ours[name] > theirs[name]}
            if ours["leader copies"] == theirs["leader copies"]:
                assert not worse, seed
                continue
            # To spare a leader's copy, a follower's may be promoted a round after it was made.
            assert ours["leader copies"] < theirs["leader copies"], seed
            assert worse <= {"rounds", "followers apart"}, seed
            assert len(worse) < 2, seed
            assert ours["rounds"] <= max(theirs["rounds"], 2), seed
    assert compared > 200


def test_sofaregistry_takes_more_rounds_and_copies_for_a_node_that_comes() -> None:
    first = by_scheme(2, 64, ["n0", "n1", "n2"], {})
    assert first is not None
    second = by_scheme(2, 64, ["n0", "n1", "n2", "n3"], first[1])
    assert second is not None
    outcome, after = second
    # With each promotion it loses the old leader's copy, and assigning makes another one.
    assert outcome.copies - outcome.leader_copies > 2 * watermarks(64, 2, 4, 10).leaders.low
    assert {len(followers) for _, followers in after.values()} == {1}
