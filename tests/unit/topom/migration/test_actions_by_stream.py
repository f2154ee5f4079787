"""Slots that move by the replication stream: the steps, their failures, and what a restart makes of each."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import structlog
from structlog.typing import EventDict

from migrator.errors import SourceUnavailable, TargetUnavailable, TooFewReplicas
from migrator.stream.changes import CannotFollow
from migrator.stream.errors import ReplicaLost
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import Bench, FakeCopy, FakeProxy, MemoryStore
from topom.cluster import cancelling, differing, topology
from topom.cluster.topology import Move
from topom.migration.batches import Batch
from topom.migration.choosing import GIVEN_UP_SECONDS
from topom.migration.orders import Orders
from topom.migration.samemasters import MasterChanged
from topom.migration.streamed import MOST_COPIES

MakeBench = Callable[..., Awaitable[Bench]]
SLOTS = range(4)
STEPS = [
    "checked",
    "copying stored",
    "preparing stored",
    "preparing acknowledged",
    "prepared stored",
    "prepared acknowledged",
    "level",
    "finished stored",
    "finished acknowledged",
    "at rest",
    "cleaned",
]


def send(table: SlotTable, epoch: int) -> SlotTable:
    return topology.move(table, epoch, SLOTS, 2)


def state_of(table: SlotTable) -> SlotState | None:
    action = table.slots[0].action
    return action.state if action is not None else None


def states(proxy: FakeProxy) -> list[str]:
    """What a proxy saw of slot 0, without repetitions."""
    seen = [str(state_of(table) or f"group {table.slots[0].group_id}") for table in proxy.seen]
    return [state for place, state in enumerate(seen) if not place or seen[place - 1] != state]


async def test_a_slot_goes_through_its_states(bench: MakeBench) -> None:
    steps: list[str] = []

    async def note(step: str) -> None:
        steps.append(step)

    one = await bench(on_step=note, barrier_seconds=5.0, way="stream")
    proxy = await FakeProxy(one, 1).register()
    await asyncio.sleep(0)
    one.run()
    await one.edit(send)
    table = await one.at_rest()
    assert [slot.group_id for slot in table.slots] == [2] * 4 + [1] * 12
    assert states(proxy) == ["group 1", "pending", "copying", "preparing", "prepared", "finished", "group 2"]
    async with asyncio.timeout(60):
        while len(steps) < len(STEPS):
            await asyncio.sleep(0)
    assert steps == STEPS
    (copy,) = one.mover.copies
    assert copy.pair == ("s1:6379", "s2:6379")
    assert copy.run_ids == copy.pair, "the copy is made between the processes that were checked"
    assert copy.settled == [tuple(SLOTS)]
    assert copy.closed
    assert one.mover.confirmed == [("s2:6379", None)], "replicas have all before the source's keys are swept"
    assert one.mover.moved == []
    assert one.mover.withdrawn == [], "a copy needs no permit, so its source is not needed any more"


async def test_level_the_target_owns_nothing_before_it_is_level(bench: MakeBench) -> None:
    level = asyncio.Event()
    one = await bench(way="stream", barrier_seconds=5.0)

    async def locked() -> None:
        assert state_of(one.ledger.table) is SlotState.PREPARED
        await level.wait()
        assert one.ledger.table.slots[0].owner_id == 1

    one.mover.settling = locked
    one.run()
    await one.edit(send)
    await one.until(lambda table: bool(one.mover.copies and one.mover.copies[0].settled))
    await asyncio.sleep(0.02)
    assert one.ledger.table.slots[0].owner_id == 1
    level.set()
    await one.at_rest()
    assert one.ledger.table.slots[0].owner_id == 2


@pytest.mark.parametrize("where", ["copy_errors", "settle_errors"])
async def test_a_void_copy_is_closed_and_all_begins_anew(bench: MakeBench, where: str) -> None:
    one = await bench(way="stream")
    proxy = await FakeProxy(one, 1).register()
    getattr(one.mover, where).append(SourceUnavailable("it is gone"))
    one.run()
    await one.edit(send)
    await one.at_rest()
    first, second = one.mover.copies
    assert first.closed
    assert first.id != second.id
    seen = states(proxy)
    assert seen.count("copying") == 2
    assert "pending" in seen[seen.index("copying") :], "the target is swept before the second copy"
    if where == "settle_errors":
        lock = seen.index("prepared")
        assert seen[lock + 1] == "preparing", "the slots are unlocked at once"


@pytest.mark.parametrize("where", ["copy_errors", "settle_errors"])
async def test_a_copy_follows_a_replica_and_the_next_one_another_server(bench: MakeBench, where: str) -> None:
    one = await bench(way="stream")
    for server in ("s7:6379", "s8:6379", "s9:6379"):
        await one.edit(lambda table, epoch, server=server: topology.add_server(table, epoch, 1, server))

    found = differing.found("s7:6379", 1, 10, {}, 0.0)
    await one.ledger.change(lambda state, epoch: differing.marked(state, found))
    getattr(one.mover, where).extend(ReplicaLost("it is gone") for _ in range(2))
    followed: list[str] = []

    async def note() -> None:
        (batch,) = one.actions.batches
        followed.append(batch.follows)

    one.mover.settling = note
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert [copy.replicas for copy in one.mover.copies] == [("s8:6379", "s9:6379"), ("s9:6379",), ()]
    assert followed == ["follows master s1:6379"]


@pytest.mark.parametrize("where", ["copy_errors", "settle_errors"])
async def test_a_replica_that_did_not_end_the_copy_is_followed_again(bench: MakeBench, where: str) -> None:
    one = await bench(way="stream")
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s8:6379"))
    getattr(one.mover, where).extend([TargetUnavailable("it is gone"), OSError("no room")])
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert [copy.replicas for copy in one.mover.copies] == [("s8:6379",)] * 3


@pytest.mark.parametrize("late", ["source", "replicas of the target"])
async def test_who_is_late_within_the_lock_decides_whether_the_replica_is_followed_again(
    bench: MakeBench, late: str
) -> None:
    one = await bench(way="stream", barrier_seconds=0.05)
    one.mover.min_replicas = 1
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s8:6379"))
    once = [late]

    async def stand_still(who: str) -> None:
        if state_of(one.ledger.table) is SlotState.PREPARED and who in once:
            once.remove(who)
            await asyncio.Event().wait()

    one.mover.settling = lambda: stand_still("source")
    one.mover.confirming = lambda: stand_still("replicas of the target")
    one.run()
    await one.edit(send)
    await one.at_rest()
    again = () if late == "source" else ("s8:6379",)
    assert [copy.replicas for copy in one.mover.copies] == [("s8:6379",), again]


async def test_a_copy_that_is_not_level_in_time_is_given_up_and_said(bench: MakeBench) -> None:
    one = await bench(way="stream", barrier_seconds=0.05)
    for_ever = [True]

    async def settling() -> None:
        if for_ever.pop() if for_ever else False:
            await asyncio.Event().wait()

    one.mover.settling = settling
    one.run()
    await one.edit(send)
    await one.until(lambda table: len(one.mover.copies) == 2)
    assert one.mover.copies[0].closed
    await one.at_rest()


@pytest.mark.parametrize("step", ["copying stored", "preparing stored", "prepared acknowledged", "level"])
async def test_a_copy_does_not_outlive_its_process(bench: MakeBench, step: str) -> None:
    """When another topom goes on from the store, then the slots begin anew, and are never served from the old copy."""
    reached = asyncio.Event()

    async def stand_still(name: str) -> None:
        if name == step:
            reached.set()
            await asyncio.Event().wait()

    store = MemoryStore()
    one = await bench(store=store, on_step=stand_still, way="stream")
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    await one.stop()
    assert one.mover.copies[0].closed
    other = await Bench(store, way="stream").start()
    with structlog.testing.capture_logs() as said:
        other.run()
        await other.at_rest()
        await other.stop()
    assert begun_anew(said) == ["the topom that made their copy has ended"]
    assert other.ledger.table.slots[0].group_id == 2
    assert len(other.mover.copies) == 1


def begun_anew(said: list[EventDict]) -> list[str]:
    """Why slots began anew, by the log."""
    return [event["reason"] for event in said if event["event"] == "slots_begin_anew"]


@pytest.mark.parametrize("where", ["copy_errors", "settle_errors"])
async def test_the_log_says_which_error_has_slots_begin_anew(bench: MakeBench, where: str) -> None:
    one = await bench(way="stream", barrier_seconds=5.0)
    getattr(one.mover, where).append(SourceUnavailable("it is gone"))
    with structlog.testing.capture_logs() as said:
        one.run()
        await one.edit(send)
        await one.at_rest()
    assert begun_anew(said) == ["it is gone"]


async def test_the_log_says_that_another_master_has_slots_begin_anew(bench: MakeBench) -> None:
    once = [True]

    async def promote(step: str) -> None:
        if step == "preparing stored" and once:
            once.clear()
            await one.edit(lambda table, epoch: topology.promote(table, epoch, 2, "s5:6379"))

    one = await bench(way="stream", on_step=promote)
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 2, "s5:6379"))
    with structlog.testing.capture_logs() as said:
        one.run()
        await one.edit(send)
        await one.at_rest()
    assert begun_anew(said) == ["a group has another master than their copy began with"]


async def test_the_log_says_that_a_restarted_server_has_slots_begin_anew(bench: MakeBench) -> None:
    async def restart(step: str) -> None:
        if step == "preparing acknowledged":
            one.mover.run_ids["s2:6379"] = "another"

    one = await bench(way="keys", on_step=restart)
    with structlog.testing.capture_logs() as said:
        one.run()
        await one.edit(send)
        await one.at_rest()
    assert begun_anew(said) == ["a server was restarted or replaced"]


@pytest.mark.parametrize("restarts", [1, 2])
@pytest.mark.parametrize("hides", [False, True])
async def test_after_restarts_keys_may_go_the_other_way_but_not_into_the_old_copy(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, restarts: int, hides: bool
) -> None:
    reached = asyncio.Event()
    where = "level"

    async def stand_still(name: str) -> None:
        if name == where:
            reached.set()
            await asyncio.Event().wait()

    swept: list[tuple[int, bool]] = []
    sweep = Bench.sweep

    async def noted(self: Bench, group_id: int) -> None:
        swept.append((group_id, bool(self.mover.moved)))
        await sweep(self, group_id)

    monkeypatch.setattr(Bench, "sweep", noted)
    store = MemoryStore()
    one = await bench(store=store, on_step=stand_still, way="stream")
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    await one.stop()
    if restarts == 2:
        reached.clear()
        where = "pending again"
        second = await Bench(store, way="keys", on_step=stand_still).start()
        second.run()
        async with asyncio.timeout(60):
            await reached.wait()
        await second.stop()
    swept.clear()
    other = await Bench(store, way="keys").start()
    if hides:
        other.mover.hides.add("s1:6379")
    other.run()
    await other.at_rest()
    await other.stop()
    assert other.mover.checked, "it begins with the check and the sweep"
    # hidden: DBSIZE leaves out the source's keys until it is swept.
    assert [group for group, moved in swept if not moved] == ([2, 1] if hides else [2])
    assert other.mover.moved == [("s1:6379", "s2:6379", tuple(SLOTS))]


async def test_another_master_at_either_end_voids_the_copy(bench: MakeBench) -> None:
    one = await bench(way="stream")
    waiting, going = asyncio.Event(), asyncio.Event()

    async def copying() -> None:
        waiting.set()
        await going.wait()

    one.mover.copying = copying
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 2, "s5:6379"))
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        await waiting.wait()
    await one.edit(lambda table, epoch: topology.promote(table, epoch, 2, "s5:6379"))
    going.set()
    await one.at_rest()
    first, *_, last = one.mover.copies
    assert first.closed
    assert not first.settled
    assert last.pair == ("s1:6379", "s5:6379")
    assert last.settled


async def test_a_master_that_changes_while_it_becomes_level_is_not_switched_to(bench: MakeBench) -> None:
    """The run ids were compared, and the promotion begins right after: the store refuses the switch."""
    one = await bench(way="stream", barrier_seconds=5.0)
    once = [True]

    async def settling() -> None:
        if once:
            once.clear()
            await one.edit(lambda table, epoch: topology.lock_group(table, epoch, 2, lost=True))

    one.mover.settling = settling
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 2, "s5:6379"))
    one.run()
    await one.edit(send)
    await one.until(lambda table: table.groups[2].locked)
    await one.until(lambda table: state_of(table) in (SlotState.PREPARING, SlotState.PENDING))
    assert one.ledger.table.slots[0].owner_id == 1
    await one.edit(lambda table, epoch: topology.promote(table, epoch, 2, "s5:6379"))
    await one.at_rest()
    assert one.mover.copies[-1].pair == ("s1:6379", "s5:6379")


async def test_level_a_failover_that_comes_first_to_the_lock_leaves_the_slots_unlocked(bench: MakeBench) -> None:
    """The run ids were compared, and the promotion had the lock before: nothing is stored for the former masters."""
    one = await bench(way="stream", barrier_seconds=5.0)
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 2, "s5:6379"))
    await one.edit(send)
    one.actions.follow_clock()  # keys may move at this hour
    steps = one.actions.steps
    batch = Batch(1, 2, tuple(SLOTS), SlotState.PENDING)
    while batch.state is not SlotState.PREPARING:
        await steps.take(batch)
    async with one.barrier.locking():
        step = asyncio.create_task(steps.take(batch))
        for _ in range(100):  # it comes as far as the lock
            await asyncio.sleep(0)
        await one.edit(lambda table, epoch: topology.promote(table, epoch, 2, "s5:6379"))
    with pytest.raises(MasterChanged):
        await step
    assert state_of(one.ledger.table) is SlotState.PREPARING
    assert not one.mover.copies[0].settled
    await steps.copies.leave(batch)


async def test_a_cancelled_copy_costs_nothing(bench: MakeBench) -> None:
    one = await bench(way="stream")
    waiting = asyncio.Event()

    async def copying() -> None:
        waiting.set()
        await asyncio.Event().wait()

    one.mover.copying = copying
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        await waiting.wait()
    outcome = cancelling.Cancelled()

    def cancel(state, epoch):  # type: ignore[no-untyped-def]
        nonlocal outcome
        new, outcome = cancelling.cancel(state, epoch, [0, 1])
        return new

    await one.ledger.change(cancel)
    assert outcome.ended == [0, 1]
    async with asyncio.timeout(60):
        while one.mover.copies[0].kept != (2, 3):
            await asyncio.sleep(0.002)
    await one.ledger.change(lambda state, epoch: cancelling.cancel(state, epoch, SLOTS)[0])
    await one.at_rest()
    async with asyncio.timeout(60):
        while not one.mover.copies[0].closed:
            await asyncio.sleep(0.002)
    assert {slot.group_id for slot in one.ledger.table.slots} == {1}


async def test_a_refused_lock_does_not_cost_the_copy(bench: MakeBench) -> None:
    one = await bench(way="stream", barrier_seconds=0.3)
    tries = [False]

    def once_not(table: SlotTable) -> bool | None:
        if state_of(table) is SlotState.PREPARED and tries:
            return tries.pop()
        return True

    await FakeProxy(one, 1, once_not).register()
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert len(one.mover.copies) == 1


async def test_a_source_without_servers_has_nothing_to_copy(bench: MakeBench) -> None:
    one = await bench(way="stream")
    await one.edit(lambda table, epoch: topology.offline(table, epoch, SLOTS))
    one.run()
    moves = [Move(slot, 0, 2) for slot in SLOTS]
    await one.edit(lambda table, epoch: topology.apply_moves(table, epoch, moves))
    await one.at_rest()
    assert one.mover.copies == []
    assert one.ledger.table.slots[0].group_id == 2


async def test_what_cannot_be_copied_goes_key_by_key_and_is_said(bench: MakeBench) -> None:
    notes: list[str] = []

    async def collect(step: str) -> None:
        notes.extend(note for batch in one.actions.batches for note in batch.notes)

    one = await bench(way="stream", on_step=collect)
    one.mover.copy_errors.append(CannotFollow("the source runs EVAL"))
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert len(one.mover.copies) == 1
    assert one.mover.moved == [("s1:6379", "s2:6379", tuple(SLOTS))]
    assert "by keys: the source runs EVAL" in notes


@pytest.mark.parametrize("way", ["stream", "auto"])
async def test_where_the_target_reads_no_payloads_no_key_moves_one_by_one(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """hidden: the source is swept behind a copy that was given up, as nothing else is done there."""
    swept_behind: list[int] = []
    swept = Bench.sweep

    async def sweep(self: Bench, group_id: int) -> None:
        if group_id == 1:
            swept_behind.append(len(self.mover.copies))
        await swept(self, group_id)

    monkeypatch.setattr(Bench, "sweep", sweep)
    one = await bench(way=way)
    one.mover.reads_payloads = False
    one.mover.copy_errors.append(CannotFollow("the source runs EVAL"))
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        while not one.actions.deferred:
            await asyncio.sleep(0)
    [(_, _, reason)] = one.actions.deferred
    assert "takes keys only by the replication stream, as commands; that is not done: the source runs EVAL" in str(
        reason
    )
    assert swept_behind == [0, 1]
    assert len(one.mover.copies) == 1
    assert state_of(one.ledger.table) is SlotState.PENDING
    # The target was upgraded.
    one.mover.reads_payloads = True
    one.actions.retry()
    await one.at_rest()
    assert one.mover.moved or len(one.mover.copies) == 2


async def test_hidden_a_restarted_topom_that_has_no_way_sweeps_the_source_that_was_left(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows of no lost copy, but of the mark at the source."""
    swept: list[int] = []

    async def sweep(self: Bench, group_id: int) -> None:
        swept.append(group_id)

    monkeypatch.setattr(Bench, "sweep", sweep)
    one = await bench(way="keys")
    one.mover.reads_payloads = False
    one.mover.hides.add("s1:6379")
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        while not one.actions.deferred:
            await asyncio.sleep(0)
    assert swept == [2, 1]
    assert state_of(one.ledger.table) is SlotState.PENDING


async def test_copies_that_are_lost_again_and_again_are_given_up(bench: MakeBench) -> None:
    one = await bench(way="stream")
    one.mover.copy_errors += [SourceUnavailable("it is gone")] * MOST_COPIES
    one.run()
    await one.edit(send)
    await one.at_rest(20.0)
    assert len(one.mover.copies) == MOST_COPIES
    assert len(one.mover.moved) == 1


async def test_after_lost_copies_the_source_is_swept_before_keys_move_one_by_one(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hidden: a copy may have been given up at its very end. Then DBSIZE leaves the source's keys out until a sweep."""
    swept_behind: list[int] = []
    swept = Bench.sweep

    async def sweep(self: Bench, group_id: int) -> None:
        if group_id == 1 and not self.mover.moved:
            swept_behind.append(len(self.mover.copies))
        await swept(self, group_id)

    monkeypatch.setattr(Bench, "sweep", sweep)
    one = await bench(way="stream")
    one.mover.settle_errors += [SourceUnavailable("it is gone")] * MOST_COPIES
    one.run()
    await one.edit(send)
    await one.at_rest(20.0)

    assert len(one.mover.moved) == 1
    assert swept_behind == list(range(MOST_COPIES + 1))


@pytest.mark.parametrize("where", ["copy_errors", "settle_errors"])
async def test_after_a_fault_in_the_program_keys_move_one_by_one_at_once(bench: MakeBench, where: str) -> None:
    notes: list[str] = []

    async def collect(step: str) -> None:
        notes.extend(note for batch in one.actions.batches for note in batch.notes)

    one = await bench(way="stream", on_step=collect)
    getattr(one.mover, where).append(AttributeError("no such name"))
    one.run()
    await one.edit(send)
    with structlog.testing.capture_logs() as said:
        await one.at_rest(20.0)
    assert len(one.mover.copies) == 1
    assert one.mover.copies[0].closed
    assert len(one.mover.moved) == 1
    assert any(note.startswith("by keys: the copy ended by a fault (AttributeError)") for note in notes)
    [fault] = [event for event in said if event["event"] == "copy_broke"]
    assert isinstance(fault["exc_info"], AttributeError), "with its traceback"


async def test_a_copy_that_is_lost_before_the_lock_costs_no_lock(bench: MakeBench) -> None:
    async def lose(step: str) -> None:
        if step == "preparing stored" and len(one.mover.copies) == 1:
            one.mover.copy_errors.append(SourceUnavailable("it is gone"))

    one = await bench(way="stream", on_step=lose)
    proxy = await FakeProxy(one, 1).register()
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert len(one.mover.copies) == 2
    assert states(proxy).count("prepared") == 1


async def test_a_target_that_is_another_process_by_then_costs_no_key_at_the_source(bench: MakeBench) -> None:
    """What the source still has may be all that there is: an operator says whether it may go."""
    steps: list[str] = []

    async def restart(step: str) -> None:
        steps.append(step)
        if step == "finished stored":
            one.mover.run_ids["s2:6379"] = "another"

    one = await bench(way="stream", on_step=restart)
    await one.ledger.change(lambda state, epoch: replace(state, data_ids={1: "one", 2: "two"}))
    one.run()
    await one.edit(send)
    await one.at_rest()
    async with asyncio.timeout(60):
        while "at rest" not in steps or one.actions.batches:
            await asyncio.sleep(0.002)
    assert "cleaned" not in steps
    assert one.ledger.state.data_ids == {2: "two"}


async def test_as_many_replicas_as_the_action_says_have_all_before_the_lock_and_within_it(bench: MakeBench) -> None:
    """What an operator sets meanwhile is for actions that begin later."""
    one = await bench(way="stream", barrier_seconds=5.0)
    one.mover.min_replicas = 2
    seen: list[tuple[int | None, SlotState | None]] = []

    async def confirming() -> None:
        one.mover.min_replicas = 0
        seen.append((one.mover.confirmed[-1][1], state_of(one.ledger.table)))

    one.mover.confirming = confirming
    one.run()
    await one.edit(send)
    await one.at_rest()
    wanted = [(2, SlotState.PREPARING), (2, SlotState.PREPARED), (None, SlotState.FINISHED)]
    assert seen == wanted


@pytest.mark.parametrize("late", [False, True])
async def test_if_replicas_lack_keys_the_lock_is_given_up_and_it_is_said(bench: MakeBench, late: bool) -> None:
    one = await bench(way="stream", barrier_seconds=0.2)
    one.mover.min_replicas = 1
    locks = 0

    async def confirming() -> None:
        nonlocal locks
        if state_of(one.ledger.table) is SlotState.PREPARED:
            locks += 1
            if locks == 1 and late:
                await asyncio.Event().wait()
            elif locks == 1:
                raise TooFewReplicas("none of the replicas has it")

    one.mover.confirming = confirming
    proxy = await FakeProxy(one, 1).register()
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        while not any(
            "of its replicas" in str(why) or "the replicas" in str(why) for why in one.actions.reasons().values()
        ):
            await asyncio.sleep(0.002)
    assert one.ledger.table.slots[0].owner_id == 1
    await one.at_rest()
    assert states(proxy).count("prepared") == 2
    assert [copy.closed for copy in one.mover.copies] == [True, True], "what was settled cannot go on"


async def test_replicas_that_lag_before_the_lock_cost_neither_a_lock_nor_the_copy(bench: MakeBench) -> None:
    one = await bench(way="stream")
    one.mover.min_replicas = 1
    lags = [True, True]
    said: list[str] = []

    async def confirming() -> None:
        if lags:
            lags.pop()
            raise TooFewReplicas("none of them has it")
        said.extend(str(reason) for reason in one.actions.reasons().values())

    one.mover.confirming = confirming
    proxy = await FakeProxy(one, 1).register()
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert len(one.mover.copies) == 1
    assert states(proxy).count("prepared") == 1
    assert any("none of them has it" in one for one in said)


async def test_replicas_that_stay_behind_after_the_switch_do_not_keep_slots_from_coming_to_rest(
    bench: MakeBench,
) -> None:
    one = await bench(way="stream")

    async def confirming() -> None:
        raise TooFewReplicas("none of them has it")

    one.mover.confirming = confirming
    one.run()
    await one.edit(send)
    await one.at_rest()


async def test_bounded_a_target_that_ends_each_copy_and_then_fails_its_check_is_copied_to_no_more(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is killed for its memory, and takes a while to be back."""

    async def fail(copy: FakeCopy) -> None:
        one.mover.refusing[copy.pair[1]] = TargetUnavailable("it starts")
        raise TargetUnavailable("it was killed")

    async def start_targets() -> None:
        while True:
            await one.until(lambda table: bool(one.actions.deferred), 20.0)
            one.mover.refusing.clear()
            one.actions.retry()

    monkeypatch.setattr(FakeCopy, "nearly_level", fail)
    one = await bench(way="stream")
    one.run()
    await one.edit(send)
    starting = asyncio.create_task(start_targets())
    await one.at_rest(20.0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert len(one.mover.copies) == MOST_COPIES
    assert one.mover.moved == [("s1:6379", "s2:6379", tuple(SLOTS))]


async def test_where_a_copy_is_the_only_way_it_is_tried_again_after_a_while(bench: MakeBench) -> None:
    """What a batch has learned is kept by the next one, but not for ever."""
    one = await bench(way="stream")
    one.mover.reads_payloads = False
    one.mover.copy_errors.append(CannotFollow("the source runs EVAL"))
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        while not one.actions.deferred:
            await asyncio.sleep(0)
    clock = one.actions.choosing._clock
    one.actions.choosing._clock = lambda: clock() + GIVEN_UP_SECONDS + 1
    one.actions.retry()
    await one.at_rest()
    assert [bool(copy.settled) for copy in one.mover.copies] == [False, True]


async def test_when_an_operator_retries_a_copy_is_made_again_at_once(bench: MakeBench) -> None:
    """Where a cancelled slot wakes what waits, nobody has seen to why the copy failed."""
    one = await bench(way="stream")
    one.mover.reads_payloads = False
    one.mover.copy_errors.append(CannotFollow("the source runs EVAL"))
    one.run()
    await one.edit(send)
    async with asyncio.timeout(60):
        while not one.actions.deferred:
            await asyncio.sleep(0)
    orders = Orders(one.ledger, one.actions)
    checks = len(one.mover.checked)
    await orders.cancel("15")
    async with asyncio.timeout(60):
        while len(one.mover.checked) == checks or not one.actions.deferred:
            await asyncio.sleep(0)
    assert len(one.mover.copies) == 1
    await orders.retry(None)
    await one.at_rest()
    assert [bool(copy.settled) for copy in one.mover.copies] == [False, True]


async def test_when_an_operator_retries_an_earlier_batch_of_the_pair_counts_no_more(bench: MakeBench) -> None:
    one = await bench(way="auto", filled=True)
    choosing = one.actions.choosing
    choosing._given_up[1, 2] = choosing._clock() + GIVEN_UP_SECONDS, "the source runs EVAL"
    assert choosing._given_up_lately((1, 2), "auto")
    await Orders(one.ledger, one.actions).retry(None)
    assert not choosing._given_up_lately((1, 2), "auto")


async def test_a_copy_that_ends_in_a_pause_begins_anew_only_after_it(bench: MakeBench) -> None:
    """It would cost the source a snapshot at a time at which nothing is to move."""
    one = await bench(way="stream")

    async def paused_until_it_ends() -> None:
        one.mover.copying = None
        await one.ledger.change(lambda state, epoch: replace(state, migration_changes={"paused": True}))
        raise SourceUnavailable("the copy takes longer than deadlines are noted for")

    one.mover.copying = paused_until_it_ends
    one.run()
    await one.edit(send)
    await one.until(lambda table: bool(one.mover.copies) and state_of(table) is SlotState.PENDING)
    async with asyncio.timeout(60):
        while (reason := one.actions.reasons().get(0)) is None or "paused" not in reason.what:
            await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    assert len(one.mover.copies) == 1
    await one.ledger.change(lambda state, epoch: replace(state, migration_changes={}))
    await one.at_rest()
    assert len(one.mover.copies) == 2
