from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.supervisor import acknowledging
from proxy.supervisor.acknowledging import Acknowledgements, reached
from slots.keyslots import KeySlots
from slots.rules import SlotRule
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.proxy.proxy_fakes import table

NONE: frozenset[int] = frozenset()
KEYS = tuple(b"%b:%d:%d" % (name, one, other) for name in (b"a", b"b", b"d") for one in range(3) for other in range(3))


def received(*tables: SlotTable) -> Acknowledgements:
    acks = Acknowledgements()
    for one in tables:
        acks.received(one)
    return acks


def test_what_commands_reach_in_each_state() -> None:
    def at(state: SlotState) -> frozenset[int]:
        return reached(Slot(0, 1, Action(state, 2)))

    assert at(SlotState.PENDING) == at(SlotState.PREPARING) == {1}
    assert at(SlotState.PREPARED) == NONE
    assert at(SlotState.MIGRATING) == {1, 2}
    assert at(SlotState.FINISHED) == {2}
    assert reached(Slot(0, 1)) == {1}
    assert reached(Slot(0)) == NONE


def test_an_epoch_is_acknowledged_once_and_only_when_all_apply_it() -> None:
    acks = received(table(5, 1, 1))
    assert acks.next(4, NONE) is None
    assert acks.next(5, NONE) == 5
    assert acks.next(5, NONE) is None


def test_the_newest_applied_epoch_stands_for_those_before() -> None:
    acks = received(table(5, 1, 1), table(6, 1, 2), table(7, 2, 2))
    assert acks.next(6, NONE) == 6
    assert acks.next(7, NONE) == 7


def test_a_lock_waits_for_the_dead() -> None:
    acks = received(table(1, 1, 2))
    acks.next(1, NONE)
    acks.received(table(2, (1, "prepared", 2), 2))
    assert acks.next(2, {1}) is None
    assert acks.withheld(2, {1}) == {1}
    assert acks.next(2, {2}) == 2


def test_the_dead_do_not_delay_what_takes_nothing_from_their_groups() -> None:
    acks = received(table(1, 1, 2))
    acks.next(1, NONE)
    acks.received(table(2, 1, (2, "prepared", 1)))
    assert acks.next(2, {1}) == 2


def test_an_acknowledged_lock_may_be_handed_on_whoever_dies() -> None:
    acks = received(table(1, (1, "prepared", 2)))
    acks.next(1, NONE)
    acks.received(table(2, (1, "migrating", 2)))
    assert acks.next(2, {1}) == 2


def test_a_late_move_from_the_source_is_waited_for() -> None:
    acks = received(table(1, (1, "migrating", 2)))
    acks.next(1, NONE)
    acks.received(table(2, (1, "finished", 2)))
    assert acks.next(2, {1}) is None


def test_a_slot_unlocked_and_locked_again_between_two_acknowledgements_counts() -> None:
    acks = received(table(1, (1, "prepared", 2)))
    acks.next(1, NONE)
    acks.received(table(2, (1, "preparing", 2)))  # commands could go to group 1 again ...
    acks.received(table(3, (1, "prepared", 2)))
    assert acks.next(3, {1}) == 2  # ... which takes nothing away
    assert acks.next(3, {1}) is None


def test_a_lock_that_was_undone_needs_no_waiting() -> None:
    acks = received(table(1, (1, "preparing", 2)))
    acks.next(1, NONE)
    acks.received(table(2, (1, "prepared", 2)))
    acks.received(table(3, (1, "preparing", 2)))
    assert acks.next(3, {1}) == 3


def test_a_refused_lock_is_never_acknowledged() -> None:
    acks = received(table(1, (1, "preparing", 2)))
    acks.next(1, NONE)
    acks.received(table(2, (1, "prepared", 2)))
    assert acks.refuse(2)
    assert not acks.refuse(2)
    assert acks.next(2, NONE) is None
    acks.received(table(3, (1, "preparing", 2)))
    assert acks.next(3, NONE) == 3
    assert not acks.refuse(3)


def test_a_refused_epoch_without_a_lock_is_acknowledged_later() -> None:
    acks = received(table(1, 1))
    acks.next(1, NONE)
    acks.received(table(2, 0))
    assert acks.next(2, {1}) is None
    assert acks.refuse(2)
    assert acks.next(2, NONE) == 2


def test_a_new_identity_acknowledges_anew() -> None:
    acks = received(table(7, 1))
    acks.next(7, NONE)
    acks.new_identity()
    assert acks.acked == 0
    acks.received(table(7, 1))
    assert acks.next(7, NONE) == 7


def test_what_was_reached_before_a_new_identity_still_counts() -> None:
    acks = received(table(7, 1))
    acks.next(7, NONE)
    acks.new_identity()
    acks.received(table(8, 2))
    assert acks.next(8, {1}) is None


def test_beyond_what_is_remembered_every_group_is_endangered() -> None:
    acks = received(*(table(epoch, 1, 1) for epoch in range(1, acknowledging.REMEMBERED_TABLES + 2)))
    newest = acknowledging.REMEMBERED_TABLES + 1
    assert acks.next(newest, {2}) is None
    assert acks.next(newest, NONE) == newest
    acks.received(table(newest + 1, 1, 1))
    assert acks.next(newest + 1, {2}) == newest + 1


slot_kinds = st.sampled_from(
    [0, 1, 2, 3, (1, "preparing", 2), (1, "prepared", 2), (1, "migrating", 2), (1, "finished", 2), (2, "prepared", 3)]
)
histories = st.lists(st.tuples(slot_kinds, slot_kinds), min_size=1, max_size=8)
SERVERS = {1: "a:1", 2: "b:1", 3: "c:1"}


@given(histories, st.sets(st.integers(1, 3)), st.integers(1, 8))
def test_nothing_is_taken_from_a_group_with_leftovers(
    history: list[tuple[int | tuple[int, str, int], ...]], leftovers: set[int], applied: int
) -> None:
    tables = [table(epoch, *slots, servers=SERVERS) for epoch, slots in enumerate(history, 1)]
    acks = received(*tables)
    epoch = acks.next(applied, leftovers)
    if epoch is None:
        return
    assert epoch <= applied
    now = tables[epoch - 1]
    for before in tables[: epoch - 1]:
        for old, new in zip(before.slots, now.slots, strict=True):
            assert not (reached(old) - reached(new)) & leftovers


def test_locks_says_whether_a_slot_is_locked() -> None:
    assert table(1, 1, (1, "prepared", 2)).locks
    assert not table(1, 1, (1, "migrating", 2)).locks


def test_a_lock_of_all_slots_waits_for_the_dead_of_every_group() -> None:
    acks = received(table(1, 1, 2))
    acks.next(1, NONE)
    coming = replace(table(2, 1, 2), coming=(), unknown=())
    acks.received(coming)
    for group in (1, 2):
        assert acks.next(2, {group}) is None
        assert acks.withheld(2, {group}) == {group}
    assert acks.next(2, NONE) == 2
    # Those that died since have sent nothing.
    acks.received(replace(coming, epoch=3, unknown=()))
    assert acks.next(3, {1, 2}) == 3
    # Other keys are looked at for other rules.
    acks.received(replace(coming, epoch=4, coming=(SlotRule("rq:*"),), unknown=()))
    assert acks.next(4, {1}) is None


A, B, C = (SlotRule("a:(*):*"),), (SlotRule("b:(*):*"),), (SlotRule("c:(*):*"),)
ruled = st.tuples(st.sampled_from([(), A, B]), st.sampled_from([None, (), A, B]))


def by_rules(epoch: int, rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> SlotTable:
    return replace(table(epoch, 1, 2), rules=rules, coming=coming, unknown=())


def test_the_outcome_of_a_change_of_rules_does_not_wait_for_the_dead() -> None:
    """They sent nothing for a key whose slot changes."""
    for outcome in (B, A):
        acks = received(by_rules(1, A, B))
        acks.next(1, NONE)
        acks.received(by_rules(2, outcome))
        assert acks.next(2, {1, 2}) == 2


def test_other_rules_wait_for_the_dead_though_the_change_was_missed() -> None:
    acks = received(by_rules(1, A))
    acks.next(1, NONE)
    # The table by which all slots are locked never came.
    acks.received(by_rules(3, B))
    for group in (1, 2):
        assert acks.next(3, {group}) is None
        assert acks.withheld(3, {group}) == {group}
    assert acks.next(3, NONE) == 3


def test_the_same_coming_rules_wait_for_the_dead_where_other_rules_hold() -> None:
    acks = received(by_rules(1, A, B))
    acks.next(1, NONE)
    # A dead worker may have a command for a key that has one slot by A and B, and another one by C.
    acks.received(by_rules(5, C, B))
    assert acks.next(5, {2}) is None
    assert acks.next(5, NONE) == 5


@given(st.lists(ruled, min_size=2, max_size=6), st.integers(1, 6))
def test_no_key_changes_its_slot_while_the_dead_may_have_commands_for_it(
    history: list[tuple[tuple[SlotRule, ...], tuple[SlotRule, ...] | None]], applied: int
) -> None:
    def used(one: SlotTable, key: bytes) -> int | None:
        """The slot for which clients' commands for a key are sent; None if they are not."""
        slots = {KeySlots("crc32", 16, rules).slot_of(0, key) for rules in (one.rules, one.coming) if rules is not None}
        return slots.pop() if len(slots) == 1 else None

    tables = [by_rules(epoch, *rules) for epoch, rules in enumerate(history, 1)]
    epoch = received(*tables).next(applied, {1})
    for before in tables[: (epoch or 1) - 1]:
        for key in KEYS:
            assert used(before, key) in (None, used(tables[(epoch or 1) - 1], key))


def test_a_refused_lock_of_a_group_or_of_all_slots_is_never_acknowledged() -> None:
    group = replace(table(2, 1).groups[1], locked=True)
    for locked in (
        replace(table(2, 1), coming=(), unknown=()),
        replace(table(2, 1), groups={**table(2, 1).groups, 1: group}, unknown=()),
    ):
        acks = received(table(1, 1))
        acks.next(1, NONE)
        acks.received(locked)
        assert acks.refuse(2)
        assert acks.next(2, NONE) is None
