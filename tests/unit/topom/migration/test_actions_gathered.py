"""Slots of one source that go to several targets: copied together by one stream, or one batch after the other."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from migrator.errors import SourceUnavailable, TargetUnavailable
from migrator.stream.changes import CannotFollow
from migrator.stream.errors import ReplicaLost
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import Bench, FakeCopy, MemoryStore
from topom.cluster import cancelling, differing, topology
from topom.cluster.topology import Move
from topom.migration.batches import Batch
from topom.migration.foreignkeys import SweepBrokenOff
from topom.migration.ways import Choice, Way
from topom.migrators import gathering

MakeBench = Callable[..., Awaitable[Bench]]
PAIRS = {2: (0, 1, 2), 3: (3, 4, 5), 4: (6, 7, 8)}
"""Targets, and the slots of group 1 that go there."""
TARGET_OF = {slot: target for target, slots in PAIRS.items() for slot in slots}


def send(table: SlotTable, epoch: int) -> SlotTable:
    return topology.apply_moves(table, epoch, [Move(slot, 1, target) for slot, target in TARGET_OF.items()])


def state_of(table: SlotTable, target: int) -> SlotState | None:
    action = table.slots[PAIRS[target][0]].action
    return action.state if action is not None else None


class Together:
    """A topom with one source and three targets; notes which copies and moves by keys go on at the same time."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        self.at_once: set[frozenset[int]] = set()
        """Targets of which keys were moving, by either way, at the same time."""
        self.keys: set[int] = set()
        """Those that went key by key."""
        self.shared_permits: list[set[int]] = []
        """What moved when a batch went key by key beside another one."""

    def look(self, table: SlotTable) -> None:
        moving = set()
        for slot in table.slots:
            if slot.action is None or slot.action.state in (SlotState.PENDING, SlotState.FINISHED):
                continue
            moving.add(slot.action.target_id)
            if not slot.action.copy:
                self.keys.add(slot.action.target_id)
        self.at_once.add(frozenset(moving))
        if len(moving) > 1 and moving & self.going_by_keys(table):
            self.shared_permits.append(moving)

    @staticmethod
    def going_by_keys(table: SlotTable) -> set[int]:
        actions = [slot.action for slot in table.slots if slot.action is not None]
        return {one.target_id for one in actions if not one.copy and one.state is not SlotState.PENDING}

    async def arrived(self, seconds: float = 20.0) -> None:
        table = await self.one.at_rest(seconds)
        assert self.shared_permits == []
        assert {slot: table.slots[slot].group_id for slot in TARGET_OF} == TARGET_OF
        assert all(table.slots[slot].group_id == 1 for slot in range(9, 16))

    def copies_to(self, target: int) -> list[FakeCopy]:
        return [copy for copy in self.one.mover.copies if copy.pair[1] == f"s{target}:6379"]

    def streams(self) -> Counter[str]:
        return Counter(copy.place.stream_id for copy in self.one.mover.copies)


def wait_for_others(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(gathering.Gathering.__init__, "__defaults__", (seconds,))


@pytest.fixture(autouse=True)
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever should not be waited for is noticed."""
    wait_for_others(monkeypatch, 1000.0)


@pytest.fixture
def together(bench: MakeBench) -> Callable[..., Awaitable[Together]]:
    async def make(filled: bool = True, **options: object) -> Together:
        one = await bench(filled=filled, **{"way": "stream", "barrier_seconds": 5.0, **options})
        if filled:
            await one.edit(lambda table, epoch: topology.add_group(table, epoch, 4, ["s4:6379"]))
        made = Together(one)
        one.ledger.listen(lambda old, new: made.look(new.table))
        return made

    return make


Make = Callable[..., Awaitable[Together]]


async def test_one_stream_for_all_targets(together: Make) -> None:
    it = await together()
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert list(it.streams().values()) == [3]
    assert it.keys == set()
    assert frozenset({2, 3, 4}) in it.at_once
    assert sorted(copy.settled for copy in it.one.mover.copies) == [[slots] for slots in PAIRS.values()]
    async with asyncio.timeout(60):
        while it.one.ledger.state.leftovers or it.one.actions.batches:
            await asyncio.sleep(0.002)


async def test_each_lock_is_that_of_one_target(together: Make) -> None:
    it = await together()
    locked: list[set[int]] = []

    async def settling() -> None:
        actions = [slot.action for slot in it.one.ledger.table.slots if slot.action is not None]
        locked.append({one.target_id for one in actions if one.state is SlotState.PREPARED})

    it.one.mover.settling = settling
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert sorted(map(tuple, locked)) == [(2,), (3,), (4,)]


async def test_no_copy_is_stored_before_all_know_their_way(together: Make) -> None:
    """From the first one on, the source is not swept, and no copy of it can begin (the bench's sweep says so)."""
    it = await together()
    swept: list[int] = []
    sweep = it.one.sweep

    async def slow(group_id: int) -> None:
        await asyncio.sleep(0.01 * group_id)
        await sweep(group_id)
        swept.append(group_id)

    it.one.actions.steps._beginnings._sweep = slow
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert len(it.one.mover.copies) == 3


@pytest.mark.parametrize("which", [(2,), (3,), (2, 4), (2, 3, 4)])
async def test_what_goes_key_by_key_waits_until_it_is_alone(together: Make, which: tuple[int, ...]) -> None:
    it = await together()
    chosen: list[int] = []

    def choose(batch: Batch, found: object) -> Choice:
        chosen.append(batch.target_id)
        return Choice(Way.KEYS if batch.target_id in which else Way.STREAM, "the test says so", None)

    it.one.actions.steps.copies._choose = choose
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert it.keys == set(which)
    assert it.one.mover.most_at_once == 1
    assert len(it.one.mover.copies) == 3 - len(which)
    assert len(it.streams()) == (1 if len(which) < 3 else 0)
    assert max(Counter(chosen).values()) <= 2, "it is looked at again when its turn comes"


@pytest.mark.parametrize("target", [2, 3, 4])
async def test_a_copy_that_is_given_up_goes_key_by_key_after_the_others(together: Make, target: int) -> None:
    it = await together()
    going = asyncio.Event()
    nearly_level = FakeCopy.nearly_level

    async def fail(copy: FakeCopy) -> None:
        if copy.pair[1] == f"s{target}:6379":
            await copy.place.gathering.begun(copy.place.one)
            raise CannotFollow("it evicts")
        await nearly_level(copy)

    it.one.mover.copying = going.wait  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCopy, "nearly_level", fail)
        it.one.run()
        await it.one.edit(send)
        await it.one.until(lambda table: state_of(table, target) is SlotState.PENDING and bool(it.copies_to(target)))
        async with asyncio.timeout(60):
            while len(it.one.actions.batches) > 2:
                await asyncio.sleep(0.002)
        assert {batch.target_id for batch in it.one.actions.batches} == {2, 3, 4} - {target}
        going.set()
        await it.arrived()
    assert it.keys == {target}
    assert len(it.copies_to(target)) == 1, "what was learned of it is kept"


async def test_if_the_stream_is_lost_all_begin_anew_together(together: Make) -> None:
    it = await together()
    it.one.mover.copy_errors += [SourceUnavailable("the link is lost")] * 3
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert list(it.streams().values()) == [3, 3]
    assert it.keys == set()


async def test_one_copy_that_is_lost_waits_for_the_others_and_begins_anew(together: Make) -> None:
    it = await together()
    level = asyncio.Event()
    it.one.mover.copy_errors.append(TargetUnavailable("it is gone"))
    it.one.mover.copying = level.wait  # type: ignore[assignment]
    it.one.run()
    await it.one.edit(send)
    async with asyncio.timeout(60):
        while len(it.one.actions.batches) != 2 or len(it.one.mover.copies) != 3:
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.05)
    assert len(it.one.mover.copies) == 3, "it does not begin beside them"
    level.set()
    await it.arrived()
    assert sorted(it.streams().values()) == [1, 3]


async def test_copies_that_are_lost_again_and_again_are_given_up(together: Make) -> None:
    it = await together()
    nearly_level = FakeCopy.nearly_level

    async def fail(copy: FakeCopy) -> None:
        if copy.pair[1] == "s3:6379":
            await copy.place.gathering.begun(copy.place.one)
            raise TargetUnavailable("it is gone")
        await nearly_level(copy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCopy, "nearly_level", fail)
        it.one.run()
        await it.one.edit(send)
        await it.arrived()
    assert it.keys == {3}
    assert len(it.copies_to(3)) == 3, "those of the batches before count"


@pytest.mark.parametrize("ends", ["lost", "cancelled"])
async def test_hidden_a_copy_that_ends_within_the_lock_has_the_source_swept_for_whoever_comes_next(
    together: Make, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The source leaves its keys out of DBSIZE until then, and what comes next may be for an hour under way."""
    it = await together()
    seen: list[str] = []
    sweep, settle = it.one.sweep, FakeCopy.settle

    async def noted(group_id: int) -> None:
        await sweep(group_id)
        seen.append(f"swept {group_id}")

    async def end(copy: FakeCopy, slots: Sequence[int]) -> None:
        await settle(copy, slots)
        if copy.pair[1] == "s4:6379" and "ended" not in seen:
            seen.append("ended")
            if ends == "lost":
                raise TargetUnavailable("it is gone")
            await it.one.ledger.change(lambda state, epoch: cancelling.cancel(state, epoch, PAIRS[4])[0])
            await asyncio.Event().wait()

    def choose(batch: Batch, found: object) -> Choice:
        return Choice(Way.KEYS if batch.target_id == 2 else Way.STREAM, "the test says so", None)

    def look(table: SlotTable) -> None:
        if 2 in it.going_by_keys(table) and "by keys" not in seen:
            seen.append("by keys")

    it.one.actions.steps._beginnings._sweep = noted
    it.one.actions.steps.copies._choose = choose
    it.one.ledger.listen(lambda old, new: look(new.table))
    monkeypatch.setattr(FakeCopy, "settle", end)
    it.one.run()
    await it.one.edit(send)
    await it.one.at_rest()
    assert "swept 1" in seen[seen.index("ended") : seen.index("by keys")]


async def test_a_target_whose_check_fails_keeps_nobody_waiting(together: Make) -> None:
    it = await together()
    it.one.mover.refusing["s3:6379"] = TargetUnavailable("it is gone")
    it.one.run()
    await it.one.edit(send)
    await it.one.until(lambda table: all(table.slots[slot].group_id != 1 for slot in (*PAIRS[2], *PAIRS[4])))
    async with asyncio.timeout(60):
        while [pair for pair, _, _ in it.one.actions.deferred] != [(1, 3)]:
            await asyncio.sleep(0.002)
    assert list(it.streams().values()) == [2]
    it.one.mover.refusing.clear()
    it.one.actions.retry()
    await it.arrived()


async def test_a_target_that_takes_long_is_left_behind_and_has_its_turn(
    together: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_others(monkeypatch, 0.05)
    it = await together()
    hangs = asyncio.Event()
    sweep = it.one.sweep

    async def slow(group_id: int) -> None:
        if group_id == 3:
            await hangs.wait()
        await sweep(group_id)

    it.one.actions.steps._beginnings._sweep = slow
    it.one.run()
    await it.one.edit(send)
    await it.one.until(lambda table: all(table.slots[slot].group_id != 1 for slot in (*PAIRS[2], *PAIRS[4])))
    assert state_of(it.one.ledger.table, 3) is SlotState.PENDING
    hangs.set()
    await it.arrived()
    assert sorted(it.streams().values()) == [1, 2]
    assert it.keys == set()


async def test_one_that_has_stored_its_copy_too_late_begins_anew(
    together: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its migrator is not told of it: the stream has begun without it."""
    wait_for_others(monkeypatch, 0.05)
    it = await together()
    begin = it.one.actions.steps.copies.begin
    hangs = [asyncio.Event()]
    late_ones: list[Batch] = []

    async def slow(batch: Batch, *others: object) -> None:
        if batch.target_id == 3 and hangs:
            late_ones.append(batch)
            await hangs.pop().wait()
        await begin(batch, *others)  # type: ignore[arg-type]

    late = hangs[0]
    monkeypatch.setattr(it.one.actions.steps.copies, "begin", slow)
    it.one.run()
    await it.one.edit(send)
    await it.one.until(lambda table: all(table.slots[slot].group_id != 1 for slot in (*PAIRS[2], *PAIRS[4])))
    assert state_of(it.one.ledger.table, 3) is SlotState.COPYING
    late.set()
    await it.arrived()
    assert it.keys == set()
    assert [bool(copy.settled) for copy in it.copies_to(3)] == [False, True]
    assert [batch.copies_lost for batch in late_ones] == [0], "nothing was lost"


@pytest.mark.parametrize("when", ["looking", "chosen", "copying"])
async def test_cancelling_one_target_leaves_the_others(together: Make, when: str) -> None:
    it = await together()
    reached, going = asyncio.Event(), asyncio.Event()
    sweep = it.one.sweep

    async def slow(group_id: int) -> None:
        if group_id == 3 and when in ("looking", "chosen"):
            reached.set()
            await going.wait()
        await sweep(group_id)

    async def copying() -> None:
        reached.set()
        if not going.is_set():
            await going.wait()

    it.one.actions.steps._beginnings._sweep = slow
    it.one.mover.copying = copying
    it.one.run()
    await it.one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    cancelled = 2 if when == "chosen" else 3
    slots = PAIRS[cancelled]
    await it.one.ledger.change(lambda state, epoch: cancelling.cancel(state, epoch, slots)[0])
    going.set()
    table = await it.one.at_rest()
    expected = {slot: 1 if target == cancelled else target for slot, target in TARGET_OF.items()}
    assert {slot: table.slots[slot].group_id for slot in TARGET_OF} == expected
    assert it.keys == set()


@pytest.mark.parametrize("order", ["cancel", "skip"])
async def test_some_slots_of_one_target_step_aside(together: Make, order: str) -> None:
    it = await together()
    reached, going = asyncio.Event(), asyncio.Event()

    async def copying() -> None:
        reached.set()
        await going.wait()

    it.one.mover.copying = copying
    it.one.run()
    await it.one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    if order == "cancel":
        await it.one.ledger.change(lambda state, epoch: cancelling.cancel(state, epoch, [3])[0])
    else:
        why = cancelling.Reason.now(gathering.Kind.PAUSED, "an operator wants it", "")
        await it.one.ledger.change(lambda state, epoch: cancelling.skip(state, epoch, {3: why}))
    going.set()
    moved = {slot for slot in TARGET_OF if slot != 3}
    await it.one.until(lambda table: all(table.slots[slot].group_id == TARGET_OF[slot] for slot in moved))
    assert it.one.ledger.table.slots[3].group_id == 1
    if order == "skip":
        await it.one.ledger.change(lambda state, epoch: cancelling.unskipped(state, [3]))
        await it.arrived()


STORED = {
    "all are copied": {2: SlotState.COPYING, 3: SlotState.COPYING, 4: SlotState.COPYING},
    "one is locked": {2: SlotState.COPYING, 3: SlotState.PREPARING, 4: SlotState.PREPARED},
    "one has switched": {2: SlotState.COPYING, 3: SlotState.FINISHED, 4: SlotState.PREPARING},
    "one is locked, one has switched": {2: SlotState.PREPARED, 3: SlotState.FINISHED, 4: SlotState.COPYING},
}


async def left_by_another(store: MemoryStore, states: dict[int, SlotState]) -> None:
    """Have the store in the state in which a topom has died."""
    one = await Bench(store, way="stream").start()
    for group_id in (1, 2, 3, 4):
        await one.edit(
            lambda table, epoch, group_id=group_id: topology.add_group(table, epoch, group_id, [f"s{group_id}:6379"])  # type: ignore[misc]
        )
    await one.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
    await one.edit(send)
    for target, slots in PAIRS.items():
        before = SlotState.COPYING
        await one.edit(
            lambda table, epoch, slots=slots, target=target: topology.begin(  # type: ignore[misc]
                table, epoch, slots, 0, "s1:6379", f"s{target}:6379", f"{target:032x}"
            )
        )
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.FINISHED):
            if before is states[target]:
                break
            await one.edit(
                lambda table, epoch, slots=slots, before=before, state=state: topology.advance(  # type: ignore[misc]
                    table, epoch, slots, before, state
                )
            )
            before = state
    await one.stop()


@pytest.mark.parametrize("way", ["stream", "keys"])
@pytest.mark.parametrize("states", STORED.values(), ids=STORED)
async def test_after_a_restart_all_arrive(together: Make, states: dict[int, SlotState], way: str) -> None:
    store = MemoryStore()
    await left_by_another(store, states)
    it = await together(filled=False, store=store, way=way)
    it.one.run()
    await it.arrived()
    gone_on = [target for target, state in states.items() if state is SlotState.FINISHED]
    if way == "stream":
        assert list(it.streams().values()) == [3 - len(gone_on)], "they gather anew"
        assert it.keys == set()
    else:
        assert it.keys == {2, 3, 4} - set(gone_on)
        assert it.one.mover.most_at_once == 1


@pytest.mark.parametrize("step", ["copying stored", "preparing stored", "prepared acknowledged", "finished stored"])
async def test_topom_dies_anywhere(together: Make, step: str) -> None:
    reached = asyncio.Event()

    async def stand_still(name: str) -> None:
        if name == step:
            reached.set()
            await asyncio.Event().wait()

    store = MemoryStore()
    first = await together(store=store, on_step=stand_still)
    first.one.run()
    await first.one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    await first.one.stop()
    assert all(copy.closed for copy in first.one.mover.copies)
    second = await together(filled=False, store=store)
    second.one.run()
    await second.arrived()


async def test_another_master_of_the_source_voids_all(together: Make) -> None:
    it = await together()
    reached, going = asyncio.Event(), asyncio.Event()

    async def copying() -> None:
        reached.set()
        await going.wait()

    it.one.mover.copying = copying
    await it.one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s5:6379"))
    it.one.run()
    await it.one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    await it.one.edit(lambda table, epoch: topology.promote(table, epoch, 1, "s5:6379"))
    going.set()
    await it.arrived()
    assert {copy.pair[0] for copy in it.one.mover.copies if copy.settled} == {"s5:6379"}


async def test_another_master_of_one_target_voids_its_copy_alone(together: Make) -> None:
    it = await together()
    reached, going = asyncio.Event(), asyncio.Event()

    async def copying() -> None:
        reached.set()
        await going.wait()

    it.one.mover.copying = copying
    await it.one.edit(lambda table, epoch: topology.add_server(table, epoch, 3, "s5:6379"))
    it.one.run()
    await it.one.edit(send)
    async with asyncio.timeout(60):
        await reached.wait()
    await it.one.edit(lambda table, epoch: topology.promote(table, epoch, 3, "s5:6379"))
    await it.one.until(lambda table: state_of(table, 3) is SlotState.PENDING)
    going.set()
    await it.arrived()
    assert [len(it.copies_to(target)) for target in (2, 4)] == [1, 1]


async def test_all_follow_the_same_replicas(together: Make) -> None:
    it = await together()
    for server in ("s8:6379", "s9:6379"):
        await it.one.edit(lambda table, epoch, server=server: topology.add_server(table, epoch, 1, server))
    it.one.mover.copy_errors += [ReplicaLost("the replica is lost")] * 3
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    said: list[Sequence[str]] = [copy.replicas for copy in it.one.mover.copies]
    assert said == [("s8:6379", "s9:6379")] * 3 + [("s9:6379",)] * 3


async def test_all_follow_what_the_first_of_them_may(together: Make) -> None:
    """A replica that is found to differ while they begin is no reason for two streams."""
    it = await together()
    for server in ("s8:6379", "s9:6379"):
        await it.one.edit(lambda table, epoch, server=server: topology.add_server(table, epoch, 1, server))
    found = differing.found("s8:6379", 1, 10, {}, 0.0)
    sweep = it.one.sweep
    once = [True]

    async def differs(group_id: int) -> None:
        if group_id == 3 and once:
            once.clear()
            await it.one.ledger.change(lambda state, epoch: differing.marked(state, found))
            raise SweepBrokenOff("it is looked at again")
        await sweep(group_id)

    it.one.actions.steps._beginnings._sweep = differs
    it.one.run()
    await it.one.edit(send)
    await it.arrived()
    assert list(it.streams().values()) == [3]
    assert len({copy.replicas for copy in it.one.mover.copies}) == 1


async def test_while_halted_nobody_begins(together: Make) -> None:
    it = await together()
    await it.one.ledger.change(
        lambda state, epoch: cancelling.replace(state, migration_changes={**state.migration_changes, "paused": True})
    )
    it.one.run()
    await it.one.edit(send)
    await asyncio.sleep(0.05)
    assert not it.one.actions.batches
    assert {state_of(it.one.ledger.table, target) for target in PAIRS} == {SlotState.PENDING}
