"""Which batches may start beside others: those that are copied may share their source, if they begin together."""

from collections.abc import Collection

import pytest

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster.state import ClusterState
from topom.migration.batches import Batch, Pair, next_batches
from topom.migrators.gathering import OutOfTurn

PENDING = SlotState.PENDING
SENT = {0: (1, 2), 1: (1, 2), 2: (1, 3), 3: (1, 4)}
"""Group 1 gives slots to three others."""


def state_of(
    slots: dict[int, Pair],
    state: SlotState = PENDING,
    copy: str = "",
    states: dict[int, SlotState] | None = None,
    locked: Collection[int] = (),
) -> ClusterState:
    groups = {id: Group(id, (f"s{id}:6379",), locked=id in locked) for id in range(1, 6)}
    found = {id: (states or {}).get(id, state) for id in slots}
    actions = {
        id: Action(found[id], target, copy=copy if found[id] is not PENDING else "")
        for id, (_, target) in slots.items()
    }
    table = [Slot(id, slots[id][0], actions[id]) if id in slots else Slot(id, 5) for id in range(16)]
    return ClusterState(7, "w", PRODUCT, SlotTable(7, tuple(table), groups))


def starts(
    state: ClusterState, running: Collection[Batch] = (), **options: object
) -> list[tuple[Pair, tuple[int, ...]]]:
    options = {"share": True, **options}
    return [(one.pair, one.slots) for one in next_batches(state, running, 8, begin=True, **options)]  # type: ignore[arg-type]


def test_copies_of_one_source_begin_together() -> None:
    state = state_of(SENT)
    assert starts(state) == [((1, 2), (0, 1)), ((1, 3), (2,)), ((1, 4), (3,))]
    first, *others = next_batches(state, [], 8, begin=True, share=True)
    assert first.gathering.shared
    assert all(one.gathering is first.gathering and one.avoided is first.avoided for one in others)


def test_what_goes_key_by_key_shares_no_group() -> None:
    assert starts(state_of(SENT), share=False) == [((1, 2), (0, 1))]


def test_who_is_to_be_alone_waits_until_nobody_uses_its_source() -> None:
    state = state_of(SENT)
    assert starts(state, alone=[(1, 3)]) == [((1, 2), (0, 1)), ((1, 4), (3,))]
    assert starts(state, alone=[(1, 2)]) == [((1, 2), (0, 1))], "the one with the lowest slot has its turn"
    (one,) = next_batches(state, [], 8, begin=True, share=True, alone=[(1, 2), (1, 3), (1, 4)])
    assert not one.gathering.shared


@pytest.mark.parametrize("state", SlotState)
def test_nobody_joins_later_whatever_the_others_do(state: SlotState) -> None:
    table = state_of(SENT)
    running = Batch(1, 2, (0, 1), state)
    assert starts(table, [running]) == []


def test_a_target_takes_part_in_one_batch() -> None:
    two_sources = {0: (1, 2), 1: (1, 3), 2: (4, 2), 3: (4, 5)}
    assert starts(state_of(two_sources)) == [((1, 2), (0,)), ((1, 3), (1,)), ((4, 5), (3,))]
    chain = {0: (1, 2), 1: (2, 3), 2: (1, 3), 3: (4, 1)}
    assert starts(state_of(chain)) == [((1, 2), (0,)), ((1, 3), (2,))], "a group gives or takes"


def test_a_group_whose_master_changes_takes_part_in_none() -> None:
    assert starts(state_of(SENT, locked=[1])) == []
    assert starts(state_of(SENT, locked=[3])) == [((1, 2), (0, 1)), ((1, 4), (3,))]


def test_deferred_pairs_are_left_out() -> None:
    assert starts(state_of(SENT), deferred=[(1, 2)]) == [((1, 3), (2,)), ((1, 4), (3,))]


def test_slots_without_a_source_share_nothing() -> None:
    batches = next_batches(state_of({0: (OFFLINE, 2), 1: (OFFLINE, 3)}), [], 8, begin=True, share=True)
    assert [one.pair for one in batches] == [(OFFLINE, 2), (OFFLINE, 3)]
    assert not any(one.gathering.shared for one in batches)


def test_no_more_share_a_stream_than_a_migrator_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topom.migration.batches.MOST_OF_A_STREAM", 2)
    assert starts(state_of(SENT)) == [((1, 2), (0, 1)), ((1, 3), (2,))]


@pytest.mark.parametrize("state", [SlotState.COPYING, SlotState.PREPARING, SlotState.PREPARED, SlotState.FINISHED])
def test_copies_that_were_left_come_one_by_one_and_before_all_others(state: SlotState) -> None:
    left = state_of({0: (1, 2), 1: (1, 3)}, state, copy="c")
    (first,) = next_batches(left, [], 8, begin=True, share=True)
    assert first.pair == (1, 2)
    with pytest.raises(OutOfTurn):
        first.gathering.require_turn(first)
    assert starts(left, [first]) == []


def test_nothing_begins_in_the_groups_of_copies_that_were_left() -> None:
    """Also if these cannot be taken to an end yet: their source is not swept, so no copy can begin there."""
    slots = {0: (1, 3), 1: (1, 2), 2: (4, 5)}
    state = state_of(slots, copy="c", states={1: SlotState.COPYING}, locked=[2])
    assert starts(state) == [((4, 5), (2,))]


def test_slots_that_were_left_locked_come_first() -> None:
    state = state_of(SENT, SlotState.COPYING, copy="c", states={3: SlotState.PREPARED})
    assert starts(state) == [((1, 4), (3,))]


def test_a_batch_keeps_what_one_before_has_learned() -> None:
    first, second, _ = next_batches(state_of(SENT), [], 8, begin=True, share=True)
    former = Batch(1, 3, (2,), PENDING, Course.FORWARD, copies_lost=2, avoided={"s6:6379"}, by_keys="it runs EVAL")
    second.goes_on_from(former)
    assert (second.copies_lost, second.by_keys) == (2, "it runs EVAL")
    assert (first.copies_lost, first.by_keys) == (0, "")
    assert first.avoided == {"s6:6379"}, "they follow the same server"
