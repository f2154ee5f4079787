"""Batches whose check fails, and slots that are skipped and retried, over fakes."""

from collections.abc import Awaitable, Callable

import pytest

from migrator.errors import MigrationError, NotEnoughMemory, TargetUnavailable
from slots.slot import OFFLINE
from slots.states import SlotState
from tests.unit.topom.operators import Gate, cancel, eventually, groups_of, in_state, retry, send, skip, whats
from tests.unit.topom.topom_fakes import Bench, FakeMover, FakeProxy
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.topology import Move
from topom.reasons import Kind, Reason

MakeBench = Callable[..., Awaitable[Bench]]


async def test_a_target_that_is_refused_leaves_its_slots_untouched_and_others_go_on(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    one.mover.refusing["s2:6379"] = NotEnoughMemory("target s2:6379 has too little memory", "free it")
    one.run()
    await send(one, range(4))
    await send(one, range(4, 6), 3)
    await one.until(lambda table: groups_of(table)[4:6] == [3, 3])
    await eventually(lambda: bool(one.actions.deferred))
    (pair, waiting, reason) = one.actions.deferred[0]
    assert (pair, waiting, len(one.actions.deferred)) == ((1, 2), [0, 1, 2, 3], 1)
    assert (reason.kind, reason.what, reason.to_do) == (Kind.SERVER, "target s2:6379 has too little memory", "free it")
    assert one.actions.reasons() == dict.fromkeys(range(4), reason)
    assert in_state(SlotState.PENDING, 0, 1, 2, 3)(one.ledger.table)
    assert all(in_state(SlotState.PENDING, 0)(table) for table in proxy.seen if table.slots[0].action)
    assert one.mover.checked[0] == ("s1:6379", "s2:6379", 4 / 16)
    # By itself, once it can.
    one.mover.refusing.clear()
    one.mover.notes = ["it evicts"]
    table = await one.at_rest()
    assert groups_of(table)[:6] == [2] * 4 + [3] * 2
    assert one.actions.reasons() == {}
    assert one.actions.deferred == []


@pytest.mark.parametrize("when", ["preparing stored", "prepared acknowledged"])
async def test_by_action_what_is_another_process_at_the_lock_is_checked_anew(bench: MakeBench, when: str) -> None:
    """given a server that restarts before a key has moved, then the action begins anew and knows the new process."""
    one = await bench()
    proxy = await FakeProxy(one, 1).register()

    async def restarts(step: str) -> None:
        if step == when and len(one.mover.checked) == 1:
            one.mover.run_ids["s1:6379"] = "another"

    one.actions.steps.stored.on_step = restarts
    one.run()
    await send(one, range(4))
    await one.at_rest()
    assert len(one.mover.checked) == 2
    begun = [action for table in proxy.seen if (action := table.slots[0].action) and action.epoch]
    assert {action.source_run_id for action in begun if action.state is SlotState.MIGRATING} == {"another"}
    assert {action.target_run_id for action in begun} == {"s2:6379"}
    assert begun[0].state is SlotState.PREPARING
    assert begun[0].source_run_id == "s1:6379"
    assert begun[-1].epoch > begun[0].epoch


async def test_a_retry_does_not_wait(bench: MakeBench) -> None:
    one = await bench()
    one.mover.refusing["s2:6379"] = NotEnoughMemory("full")
    one.run()
    await send(one, range(4))
    checks = 0
    for _ in range(5):
        await eventually(lambda: len(one.mover.checked) > checks and bool(one.actions.deferred))  # noqa: B023
        checks = len(one.mover.checked)
        one.actions.retry()
    # With waits that double from half a second to a second this would take seven seconds and more.
    await eventually(lambda: len(one.mover.checked) > checks, 1.0)


async def test_a_failing_move_is_retried_at_once(bench: MakeBench) -> None:
    one = await bench()
    one.mover.errors = [TargetUnavailable("s2:6379 is full") for _ in range(8)]
    one.run()
    await send(one, range(4))
    for left in range(7, -1, -1):
        await eventually(lambda left=left: len(one.mover.errors) <= left and one.actions.batches[0].resting)  # type: ignore[misc]
        assert whats(one.actions.reasons()) == dict.fromkeys(range(4), "s2:6379 is full")
        one.actions.retry()
    await one.at_rest(2.0)


async def test_offline_slots_are_checked_without_a_source(bench: MakeBench) -> None:
    one = await bench()
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0, 1]))
    one.run()
    await one.edit(lambda table, epoch: topology.apply_moves(table, epoch, [Move(0, OFFLINE, 2)]))
    await one.at_rest()
    assert [(source, target) for source, target, _ in one.mover.checked] == [(None, "s2:6379")]


async def test_notes_are_shown_with_the_batch(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.mover.notes = ["target s2:6379 evicts"]
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    assert one.actions.batches[0].notes == ("target s2:6379 evicts", 'by keys: migration_way is "keys"')
    gate.open.set()
    await one.at_rest()


# Skip


async def test_a_skipped_slot_lets_others_of_its_groups_pass(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await send(one, range(4, 6), 3)
    await eventually(lambda: gate.entered == 1)
    one.actions._reasons.waits(one.actions.batches[0], Reason(Kind.DATA, "a key is too large"))
    await skip(one, range(4))
    gate.open.set()
    await one.until(lambda table: groups_of(table)[4:6] == [3, 3])
    assert in_state(SlotState.MIGRATING, 0, 1, 2, 3)(one.ledger.table)
    assert whats(one.ledger.state.skipped) == dict.fromkeys(range(4), "a key is too large")
    assert whats(one.actions.reasons()) == dict.fromkeys(range(4), "a key is too large")
    await retry(one, [0, 1])
    await one.until(lambda table: groups_of(table)[:2] == [2, 2])
    assert in_state(SlotState.MIGRATING, 2, 3)(one.ledger.table)
    await retry(one)
    await one.at_rest()
    assert one.ledger.state.skipped == {}


@pytest.mark.parametrize("error", [None, TargetUnavailable("s2:6379 is down")])
async def test_what_is_claimed_is_given_back_once_all_slots_of_a_batch_are_skipped(
    bench: MakeBench, error: MigrationError | None
) -> None:
    """given only those keys move that clients ask for, no claim of a mover that has gone is in the way."""
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.mover.withdraw_errors = [error] if error else []
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await skip(one, [0, 1])
    await eventually(lambda: gate.entered == 2)
    assert one.mover.withdrawn == [], "the next call of the mover sees to it"
    await skip(one, [2, 3])
    await eventually(lambda: not one.actions.batches)
    assert one.mover.withdrawn == [("s1:6379", "s2:6379")]


async def test_a_skip_outlives_a_restart(bench: MakeBench) -> None:
    one = await bench()
    await send(one, range(4))
    because = {0: Reason(Kind.DATA, "a key is too large", 12.5, "cut it")}
    await one.ledger.change(lambda state, epoch: interventions.skip(state, epoch, because))
    again = await Bench(one.store).start()
    try:
        again.run()
        await again.until(lambda table: groups_of(table)[1:4] == [2, 2, 2])
        assert again.ledger.state.skipped == because
        assert in_state(SlotState.PENDING, 0)(again.ledger.table)
    finally:
        await again.stop()


async def test_a_skipped_slot_can_be_cancelled(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await skip(one, range(4))
    await eventually(lambda: not one.actions.batches)
    gate.open.set()
    await cancel(one)
    assert set(groups_of(await one.at_rest())) == {1}
    assert one.mover.moved == [("s2:6379", "s1:6379", (0, 1, 2, 3))]
