"""The slot state machine over fakes: its steps, its failures, and what a restart at each step makes of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pytest

from migrator.errors import SourceUnavailable, TargetUnavailable
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.operators import send, waits_of
from tests.unit.topom.topom_fakes import Bench, FakeMover, FakeProxy, MemoryStore
from topom.cluster import topology
from topom.cluster.events import What
from topom.cluster.topology import Move
from topom.errors import SlotsInAction
from topom.migration import actions
from topom.migration.actions import Actions
from topom.migration.batches import Batch
from topom.migration.samemasters import MasterChanged
from topom.proxies import refusedtables
from topom.reasons import Kind

MakeBench = Callable[..., Awaitable[Bench]]

STEPS = [
    "checked",
    "preparing stored",
    "preparing acknowledged",
    "prepared stored",
    "prepared acknowledged",
    "migrating stored",
    "complete",
    "finished stored",
    "finished acknowledged",
    "at rest",
]


def move(slots: range, group_id: int) -> Callable[[SlotTable, int], SlotTable]:
    return lambda table, epoch: topology.move(table, epoch, slots, group_id)


def states(proxy: FakeProxy, slot: int) -> list[str]:
    """What a proxy saw of a slot, without repetitions."""
    seen: list[str] = []
    for table in proxy.seen:
        action = table.slots[slot].action
        state = str(action.state) if action else f"group {table.slots[slot].group_id}"
        if not seen or seen[-1] != state:
            seen.append(state)
    return seen


async def test_a_slot_goes_through_its_states(bench: MakeBench) -> None:
    steps: list[str] = []

    async def note(step: str) -> None:
        steps.append(step)

    one = await bench(on_step=note, barrier_seconds=5.0)
    proxy = await FakeProxy(one, 1).register()
    await asyncio.sleep(0)
    one.run()
    await one.edit(move(range(4), 2))
    table = await one.at_rest()
    assert [slot.group_id for slot in table.slots] == [2] * 4 + [1] * 12
    # The last one is noted once the table is stored.
    async with asyncio.timeout(60):
        while len(steps) < len(STEPS):
            await asyncio.sleep(0)
    assert steps == STEPS
    assert one.mover.moved == [("s1:6379", "s2:6379", (0, 1, 2, 3))]
    assert states(proxy, 0) == ["group 1", "pending", "preparing", "prepared", "migrating", "finished", "group 2"]
    assert one.actions.slots_moved == 4
    await asyncio.sleep(0.01)
    assert one.actions.totals.keys_moved == 4
    assert one.actions.batches == []


async def test_batches_hold_so_many_slots_and_pairs_run_side_by_side(bench: MakeBench) -> None:
    both = asyncio.Barrier(2)

    async def until_both_move() -> None:
        await both.wait()

    one = await bench(mover=FakeMover(until_both_move))
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 4, ["s4:6379"]))
    await one.edit(lambda table, epoch: topology.offline(table, epoch, range(8, 16)))
    await one.edit(lambda table, epoch: topology.assign(table, epoch, range(8, 16), 3))
    await one.edit(move(range(8), 2))
    await one.edit(move(range(8, 16), 4))
    one.run()
    await one.at_rest()
    assert one.mover.most_at_once == 2
    assert {slots for _, _, slots in one.mover.moved} == {tuple(range(8)), tuple(range(8, 16))}


async def test_a_group_takes_part_in_one_batch_at_a_time(bench: MakeBench) -> None:
    async def a_while() -> None:
        await asyncio.sleep(0.01)

    one = await bench(mover=FakeMover(a_while))
    await one.edit(move(range(4), 2))
    one.run()
    await one.at_rest()
    await one.edit(
        lambda table, epoch: topology.apply_moves(
            table, epoch, [Move(0, 2, 1), Move(1, 2, 3), Move(5, 1, 2), Move(6, 1, 3)]
        )
    )
    table = await one.at_rest()
    assert one.mover.most_at_once == 1
    assert [table.slots[slot].group_id for slot in (0, 1, 5, 6)] == [1, 3, 2, 3]


async def test_drained_the_target_owns_nothing_before_everyone_has_locked(bench: MakeBench) -> None:
    one = await bench(barrier_seconds=5.0)
    await FakeProxy(one, 1).register()

    def silent_when_locked(table: SlotTable) -> bool | None:
        action = table.slots[0].action
        return None if action and action.state == SlotState.PREPARED else True

    slow = await FakeProxy(one, 2, silent_when_locked).register()
    one.run()
    await one.edit(move(range(4), 2))
    await one.until(lambda table: table.slots[0].action is not None and table.slots[0].action.state == "prepared")
    await asyncio.sleep(0.05)
    assert one.ledger.table.slots[0].owner_id == 1
    assert one.mover.moved == []
    assert slow.member is not None
    one.members.acknowledge(slow.member, one.ledger.table.epoch)
    await one.at_rest()


@pytest.mark.parametrize("answer", [False, None])
async def test_a_refused_lock_is_taken_back_and_tried_again(bench: MakeBench, answer: bool | None) -> None:
    one = await bench(barrier_seconds=0.3)
    tries = 2

    def twice_not(table: SlotTable) -> bool | None:
        nonlocal tries
        action = table.slots[0].action
        if action and action.state == SlotState.PREPARED and tries:
            tries -= 1
            return answer
        return True

    await FakeProxy(one, 1, twice_not).register()
    other = await FakeProxy(one, 2).register()
    await asyncio.sleep(0)
    one.run()
    await one.edit(move(range(4), 2))
    await one.at_rest()
    assert states(other, 0) == [
        "group 1",
        "pending",
        *["preparing", "prepared"] * 3,
        "migrating",
        "finished",
        "group 2",
    ]


async def test_drained_a_proxy_that_comes_after_the_barrier_has_to_lock_too(bench: MakeBench) -> None:
    late: list[FakeProxy] = []

    def refuses_the_lock(table: SlotTable) -> bool | None:
        action = table.slots[0].action
        return not (action and action.state == SlotState.PREPARED and len(late[0].seen) <= 1)

    async def comes_late(step: str) -> None:
        if step == "prepared acknowledged" and not late:
            late.append(FakeProxy(one, 2, refuses_the_lock))
            await late[0].register()
            # It has the locking table now, cannot drain, and is unlocked again.
            await asyncio.sleep(0)

    one = await bench(on_step=comes_late, barrier_seconds=5.0)
    proxy = await FakeProxy(one, 1).register()
    await asyncio.sleep(0)
    one.run()
    await one.edit(move(range(4), 2))
    await one.at_rest()
    assert states(proxy, 0)[2:] == [*["preparing", "prepared"] * 2, "migrating", "finished", "group 2"]
    assert states(late[0], 0)[:2] == ["prepared", "preparing"]


async def test_nothing_is_locked_before_everyone_prepares(bench: MakeBench) -> None:
    one = await bench()
    silent = await FakeProxy(one, 1, lambda table: None).register()
    one.run()
    await one.edit(move(range(4), 2))
    await asyncio.sleep(0.2)
    assert states(silent, 0)[-1] == "preparing"
    assert "did not acknowledge" in waits_of(one)
    reason = one.actions.reason(one.actions.batches[0])
    assert reason is not None
    assert reason.kind is Kind.PROXY


async def test_a_proxy_that_dies_in_the_lock_is_fenced_and_left_behind(bench: MakeBench) -> None:
    one = await bench(lease=0.3)

    def dies_when_locked(table: SlotTable) -> bool | None:
        action = table.slots[0].action
        if action and action.state == SlotState.PREPARED:
            proxy.answer = lambda table: None
        return True if proxy.answer is dies_when_locked else None

    proxy = FakeProxy(one, 1)
    proxy.answer = dies_when_locked
    await proxy.register()
    one.run()
    await one.edit(move(range(4), 2))
    await one.at_rest()
    assert one.fencer.fenced == {proxy.instance: {"s1:6379", "s2:6379"}}


@pytest.mark.parametrize("step", STEPS)
async def test_a_restart_at_any_step_is_gone_on_from(bench: MakeBench, step: str) -> None:
    reached = asyncio.Event()

    async def stand_still(name: str) -> None:
        if name == step:
            reached.set()
            await asyncio.Event().wait()

    one = await bench(on_step=stand_still)
    await FakeProxy(one, 1).register()
    one.run()
    await one.edit(move(range(4), 2))
    async with asyncio.timeout(60):
        await reached.wait()
    await one.stop()

    again = await Bench(one.store).start()
    try:
        proxy = await FakeProxy(again, 1).register()
        again.run()
        table = await again.at_rest()
        assert {slot.group_id for slot in table.slots[:4]} == {2}
        # complete: unless the store has `finished`, the scan begins anew.
        already = STEPS.index(step) >= STEPS.index("finished stored")
        assert (again.mover.moved == []) == already
        await asyncio.sleep(0.01)
        assert proxy.seen[-1].epoch == table.epoch
    finally:
        await again.stop()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(5))
async def test_a_store_that_fails_at_any_write_is_overcome(bench: MakeBench, write: int, after: bool) -> None:
    store = MemoryStore()
    written = 0
    failed_at = [["preparing", "prepared", "migrating", "finished", "at rest"][write]]

    async def fail_next(step: str) -> None:
        nonlocal written
        written += step.endswith("stored")
        if written == write and step.endswith("stored"):
            _fail(store, after)

    one = await bench(store=store, on_step=fail_next, barrier_seconds=1.0)
    proxy = await FakeProxy(one, 1).register()
    await one.edit(move(range(4), 2))
    if write == 0:
        _fail(store, after)
    one.run()
    table = await one.at_rest()
    assert {slot.group_id for slot in table.slots[:4]} == {2}, failed_at
    assert store.fail_before == store.fail_after == 0
    seen = states(proxy, 0)
    if "migrating" in seen:
        assert "preparing" not in seen[seen.index("migrating") :], "no way back from migrating"


def _fail(store: MemoryStore, after: bool) -> None:
    if after:
        store.fail_after = 1
    else:
        store.fail_before = 1


async def test_a_mover_that_fails_is_called_again(bench: MakeBench) -> None:
    one = await bench()
    one.mover.errors = [SourceUnavailable("s1:6379 is down")] * 1000
    one.run()
    await one.edit(move(range(4), 2))
    await one.until(lambda table: waits_of(one) == "s1:6379 is down")
    one.mover.errors = [RuntimeError("unexpected")] * 1000
    await one.until(lambda table: waits_of(one) == "RuntimeError: unexpected")
    one.mover.errors = []
    await one.at_rest()


async def test_each_restart_of_a_source_is_told_once(bench: MakeBench) -> None:
    one = await bench()

    def told() -> list[str]:
        return [event.text for event in one.ledger.state.events if event.what is What.SOURCE_RESTARTED]

    one.mover.errors = [SourceUnavailable("s1:6379 is down")] * 4
    one.run()
    await one.edit(move(range(4), 2))
    await one.until(lambda table: len(one.mover.errors) < 4)
    assert told() == []
    one.mover.run_ids["s1:6379"] = "restarted"
    await one.until(lambda table: len(one.mover.errors) < 2)
    await one.until(lambda table: bool(told()))
    one.mover.run_ids["s1:6379"] = "restarted again"
    await one.at_rest()
    assert len(told()) == 2
    for text in told():
        assert text.startswith("s1:6379 was restarted while keys moved; if its data are older, ")
        assert text.endswith(" deleted at group 2 may be alive again; slots 0-3")


@pytest.mark.parametrize("group_id", [1, 2])
async def test_complete_a_scan_begins_anew_at_another_master(bench: MakeBench, group_id: int) -> None:
    one = await bench()
    started, go_on = asyncio.Event(), asyncio.Event()

    async def during() -> None:
        started.set()
        await go_on.wait()

    one.mover._during = during
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, group_id, "r:1"))
    one.run()
    await one.edit(move(range(4), 2))
    await started.wait()
    await one.edit(lambda table, epoch: topology.promote(table, epoch, group_id, "r:1"))
    go_on.set()
    await one.at_rest()
    pair = ("r:1", "s2:6379") if group_id == 1 else ("s1:6379", "r:1")
    assert one.mover.moved == [(*pair, (0, 1, 2, 3))]
    assert one.mover.broken_off == 1
    # by-action: if keys came back at a new source, the target's copies count.
    began = one.mover.beginnings[0]
    assert (began.source, began.target) == ("" if group_id == 1 else pair[0], "" if group_id == 2 else pair[1])


async def test_complete_what_was_scanned_has_to_be_the_source_when_it_is_stored(bench: MakeBench) -> None:
    one = await bench()
    migrating = Slot(0, 1, Action(SlotState.MIGRATING, 2))
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "r:1"))
    await one.edit(lambda table, epoch: topology.with_slots(table, epoch, [migrating]))

    async def fails_over(step: str) -> None:
        if step == "complete":
            await one.edit(lambda table, epoch: topology.promote(table, epoch, 1, "r:1"))

    one.actions.steps.stored.on_step = fails_over
    with pytest.raises(MasterChanged):
        await one.actions.steps.take(Batch(1, 2, (0,), SlotState.MIGRATING))
    action = one.ledger.table.slots[0].action
    assert action is not None
    assert action.state is SlotState.MIGRATING


async def is_lost(one: Bench, group_id: int) -> None:
    await one.edit(lambda table, epoch: topology.lock_group(table, epoch, group_id, lost=True))


async def is_another(one: Bench, group_id: int) -> None:
    def with_other_master(table: SlotTable, epoch: int) -> SlotTable:
        group = table.groups[group_id]
        return table.changed(epoch, groups=[replace(group, servers=tuple(reversed(group.servers)))])

    await one.edit(with_other_master)


async def was_another_for_a_moment(one: Bench, group_id: int) -> None:
    for server in ("r:1", f"s{group_id}:6379"):
        await one.edit(partial(topology.promote, group_id=group_id, address=server))


@pytest.mark.parametrize("happens", [is_lost, is_another, was_another_for_a_moment])
@pytest.mark.parametrize("group_id", [1, 2])
async def test_nothing_is_dropped_at_the_source_once_a_master_may_be_another(
    bench: MakeBench, group_id: int, happens: Callable[[Bench, int], Awaitable[None]]
) -> None:
    """Keys are placed at that time, and what the target has of them may be lost with its master."""
    one = await bench()
    migrating = Slot(0, 1, Action(SlotState.MIGRATING, 2, epoch=1))
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, group_id, "r:1"))
    await one.edit(lambda table, epoch: topology.with_slots(table, epoch, [migrating]))
    batch = Batch(1, 2, (0,), SlotState.MIGRATING)

    async def dropping() -> None:
        await happens(one, group_id)

    one.mover.dropping = dropping
    with pytest.raises(MasterChanged):
        await one.actions.steps.take(batch)
    assert one.mover.dropped == 0
    assert batch.state is SlotState.MIGRATING
    # It goes on once it is known which server is the master.
    one.mover.dropping = None
    await one.edit(lambda table, epoch: topology.unlock_group(table, epoch, group_id))
    await one.actions.steps.take(batch)
    assert one.mover.dropped == 1
    assert batch.state is SlotState.FINISHED


async def test_what_else_changes_in_the_table_holds_up_no_keys(bench: MakeBench) -> None:
    one = await bench()
    migrating = Slot(0, 1, Action(SlotState.MIGRATING, 2, epoch=1))
    await one.edit(lambda table, epoch: topology.with_slots(table, epoch, [migrating]))

    async def dropping() -> None:
        await one.edit(lambda table, epoch: topology.add_server(table, epoch, 2, "r:1"))
        await one.edit(lambda table, epoch: topology.lock_group(table, epoch, 3))
        await send(one, [4], 2)

    one.mover.dropping = dropping
    await one.actions.steps.take(Batch(1, 2, (0,), SlotState.MIGRATING))
    assert one.mover.dropped == 1


async def test_keys_do_not_move_while_a_master_is_lost(bench: MakeBench) -> None:
    one = await bench()
    migrating = Slot(0, 1, Action(SlotState.MIGRATING, 2, epoch=1))
    await one.edit(lambda table, epoch: topology.with_slots(table, epoch, [migrating]))
    await one.edit(lambda table, epoch: topology.lock_group(table, epoch, 2, lost=True))
    one.mover.errors = [AssertionError("it was asked")]
    with pytest.raises(MasterChanged):
        await one.actions.steps.take(Batch(1, 2, (0,), SlotState.MIGRATING))


async def test_one_way_slots_rest_once_nothing_can_be_placed_any_more(bench: MakeBench) -> None:
    one = await bench()
    one.mover.withdraw_errors = [TargetUnavailable("s2:6379 is down")]
    one.run()
    await one.edit(move(range(4), 2))
    await one.until(lambda table: bool(waits_of(one)))
    assert waits_of(one) == "s2:6379 is down"
    assert {str(slot.action.state) for slot in one.ledger.table.slots if slot.action} == {"finished"}
    await one.at_rest()
    assert one.mover.withdrawn == [("s1:6379", "s2:6379")] * 2


async def test_a_source_that_is_lost_does_not_keep_its_slots_from_coming_to_rest(bench: MakeBench) -> None:
    one = await bench()
    one.mover.withdraw_errors = [SourceUnavailable("s1:6379 is down")]
    one.run()
    await one.edit(move(range(4), 2))
    await one.at_rest()
    assert one.mover.withdrawn == [("s1:6379", "s2:6379"), (None, "s2:6379")], "nothing is placed late"
    # one-way: nor deleted, once they are back.
    assert one.ledger.state.leftovers[1].keys() == set(range(4))


async def test_offline_slots_pass_the_barrier_without_a_mover(bench: MakeBench) -> None:
    one = await bench()
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0, 1]))
    proxy = await FakeProxy(one, 1).register()
    await one.edit(lambda table, epoch: topology.apply_moves(table, epoch, [Move(0, 0, 2), Move(1, 0, 2)]))
    one.run()
    table = await one.at_rest()
    assert table.slots[0].group_id == table.slots[1].group_id == 2
    assert one.mover.moved == []
    assert "migrating" not in states(proxy, 0)
    assert "prepared" in states(proxy, 0)


async def test_pause_lets_nothing_begin(bench: MakeBench) -> None:
    one = await bench()
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes={"paused": True}))
    one.run()
    await one.edit(move(range(4), 2))
    await asyncio.sleep(0.05)
    assert one.actions.batches == []
    assert one.mover.pace is not None
    assert one.mover.pace.paused
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes={"parallel_slots": 2}))
    await one.at_rest()
    assert [slots for _, _, slots in one.mover.moved] == [(0, 1), (2, 3)]


async def test_outside_its_hours_nothing_begins_and_what_moves_is_held(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"seconds": datetime(2026, 2, 10, 12, tzinfo=UTC).timestamp()}
    monkeypatch.setattr("topom.cluster.hours.time", SimpleNamespace(time=lambda: now["seconds"]))
    one = await bench()
    hours = {"hours": "22:00-06:00", "time_zone": "UTC"}
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes=hours))
    one.run()
    await one.edit(move(range(4), 2))
    one.actions.follow_clock()
    await asyncio.sleep(0.05)
    assert one.actions.batches == []
    assert one.mover.pace is not None
    assert one.mover.pace.paused, "what moves halts, too"
    assert not one.actions.settings.paused, "but no operator paused it"
    now["seconds"] += 10 * 3600
    await asyncio.sleep(0.05)
    assert one.actions.batches == [], "nobody has looked at the clock"
    one.actions.follow_clock()
    await one.at_rest()
    assert len(one.mover.moved) == 1
    assert not one.mover.pace.paused
    # Somebody sets the clock back: the day is not over, but its hours are.
    now["seconds"] -= 8 * 3600
    one.actions.follow_clock()
    assert one.mover.pace.paused
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes={"hours": ""}))
    assert not one.mover.pace.paused


async def test_a_batch_that_waits_for_its_lock_tells_which_hours_it_waits_for(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"seconds": datetime(2026, 2, 10, 23, tzinfo=UTC).timestamp()}
    monkeypatch.setattr("topom.cluster.hours.time", SimpleNamespace(time=lambda: now["seconds"]))
    benches: list[Bench] = []

    async def morning(step: str) -> None:
        if step == "preparing acknowledged":
            now["seconds"] += 8 * 3600
            benches[0].actions.follow_clock()

    benches.append(one := await bench(on_step=morning))
    hours = {"hours": "22:00-06:00", "time_zone": "UTC"}
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes=hours))
    one.run()
    await one.edit(move(range(4), 2))
    async with asyncio.timeout(60):
        while not waits_of(one):
            await asyncio.sleep(0.002)
    assert waits_of(one).endswith("22:00-06:00; it goes on at 2026-02-11 22:00+00:00")
    assert one.ledger.table.slots[0].action is not None
    assert one.ledger.table.slots[0].action.state == SlotState.PREPARING
    now["seconds"] += 16 * 3600
    one.actions.follow_clock()
    await one.at_rest()


async def test_operators_may_change_their_minds_while_slots_wait(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1, lambda table: None).register()
    await one.edit(move(range(16), 2))
    one.run()
    await one.until(lambda table: table.slots[0].action is not None and table.slots[0].action.state == "preparing")
    with pytest.raises(SlotsInAction):
        await one.edit(move(range(1), 1))
    await one.edit(move(range(8, 10), 1))
    await one.edit(move(range(10, 12), 3))
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [12]))
    proxy.answer = lambda table: True
    proxy.wake()
    table = await one.at_rest()
    assert [slot.group_id for slot in table.slots] == [2] * 8 + [1, 1, 3, 3, 0, 2, 2, 2]


async def test_random_interleavings_come_to_rest(bench: MakeBench) -> None:
    """Proxies come, go, refuse and fall silent, operators move slots, while every step is watched."""
    rng = random.Random(7)
    one = await bench(barrier_seconds=0.03, lease=0.25)
    proxies: list[FakeProxy] = []

    async def watch(step: str) -> None:
        if step == "migrating stored":
            moving = [s.id for s in one.ledger.table.slots if s.action and s.action.state == SlotState.MIGRATING]
            epoch = max(
                table.epoch
                for table in history
                if all(a and a.state == SlotState.PREPARED for a in (table.slots[s].action for s in moving[:1]))
            )
            # drained: every proxy that is a member now and was one at the lock has acknowledged it.
            for member in one.members.all():
                assert member.acked >= epoch, step

    history: list[SlotTable] = []
    one.ledger.listen(lambda old, new: history.append(new.table))
    one.actions.steps.stored.on_step = watch

    def moody(table: SlotTable) -> bool | None:
        return rng.choices([True, False, None], [20, 1, 1])[0]

    one.run()
    for number in range(1, 60):
        await asyncio.sleep(rng.random() * 0.01)
        match rng.randrange(4):
            case 0:
                proxies.append(await FakeProxy(one, number, moody).register())
            case 1 if proxies:
                gone = proxies.pop(rng.randrange(len(proxies)))
                if gone.member in one.members.all() and gone.member is not None:
                    await one.members.leave(gone.member)
            case _:
                try:
                    slots = sorted(rng.sample(range(16), 4))
                    group = rng.randrange(1, 4)
                    await one.edit(
                        lambda table, epoch, slots=slots, group=group: topology.move(table, epoch, slots, group)  # type: ignore[misc]
                    )
                except SlotsInAction:
                    pass
        for proxy in proxies:
            if proxy.member is not None:
                one.members.heard(proxy.member)
    for proxy in proxies:
        proxy.answer = lambda table: True
        proxy.wake()
    await one.at_rest(30)
    assert one.actions.slots_moved > 0


async def test_bounded_slots_whose_unlocking_failed_are_unlocked_soon(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt would come late, because many locks were refused; then the store fails once, during a lock."""
    monkeypatch.setattr(actions, "LONGEST_WAIT_SECONDS", 1000.0)
    # A table that is given out anew while the slots are locked is refused anew, so the store would fail a second time.
    monkeypatch.setattr(refusedtables, "FIRST_SECONDS", 1000.0)
    monkeypatch.setattr(refusedtables, "LONGEST_SECONDS", 1000.0)
    one = await bench(barrier_seconds=5.0, lease=1000.0)
    rests: list[tuple[SlotState, float]] = []

    async def rest(self: Actions, batch: Batch, seconds: float) -> None:
        rests.append((batch.state, seconds))

    monkeypatch.setattr(Actions, "_rest", rest)

    def locked() -> list[float]:
        return [seconds for state, seconds in rests if state is SlotState.PREPARED]

    def answer(table: SlotTable) -> bool:
        action = table.slots[0].action
        if action is None or action.state is not SlotState.PREPARED or locked():
            return True
        if len(rests) >= 12:
            # Another write than the unlocking may meet it; then the next one does.
            one.store.fail_before = 1
        return False

    await FakeProxy(one, 1, answer).register()
    one.run()
    await one.edit(move(range(4), 2))
    await one.until(lambda table: table.slots[0].action is None)
    assert locked() == [actions.FIRST_WAIT_SECONDS]
