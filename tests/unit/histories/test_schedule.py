"""Faults drawn from a seed."""

from tests.histories.schedule import JOURNEYS, JOURNEYS_SECONDS, LONGEST_SECONDS, OF_REPLICAS, OLDER, Fault, Kind, draw


def drawn(seed: int, seconds: float = 12.0) -> list[Fault]:
    return draw(seed, seconds, proxies=2, workers=2, servers=3)


def test_the_same_seed_gives_the_same_faults() -> None:
    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


def test_what_a_fault_leaves_to_chance_comes_from_the_seed() -> None:
    assert {fault.seed for fault in drawn(5)} == {5}


def test_faults_are_bounded_in_time_and_every_kind_comes() -> None:
    kinds = set()
    for seed in range(200):
        for fault in drawn(seed):
            assert 0 < fault.at < fault.at + fault.seconds <= 12.0 + 1e-9
            assert fault.seconds <= (JOURNEYS_SECONDS if fault.kind in JOURNEYS else LONGEST_SECONDS)
            kinds.add(fault.kind)
    assert kinds == set(Kind)


def test_only_some_kinds() -> None:
    faults = draw(1, 30.0, proxies=2, workers=2, servers=3, kinds=[Kind.TOPOM_KILLED])
    assert {fault.kind for fault in faults} == {Kind.TOPOM_KILLED}


def test_one_journey_at_most_has_the_slots_for_itself() -> None:
    counts = {sum(fault.kind in JOURNEYS for fault in drawn(seed)) for seed in range(200)}
    assert counts == {0, 1}
    assert len(draw(1, 12.0, proxies=2, workers=2, servers=3, kinds=JOURNEYS)) == 1


def test_no_files_are_put_back_where_a_replica_may_be_the_master() -> None:
    for seed in range(200):
        had = {fault.kind for fault in drawn(seed)}
        assert not (had.intersection(OLDER) and had.intersection(OF_REPLICAS))
