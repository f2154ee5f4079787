"""Which keys of a server may be swept, and that no slot comes to the server meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from migrator.errors import ForeignKeys, ServerUnavailable, SourceUnavailable, SweepOvertaken, TooFewReplicas
from migrator.facts import Facts
from migrator.sweep import SweepRecord, Swept, Warrant
from slots.access import ServerAccess
from slots.group import Group
from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.operators import eventually, send
from tests.unit.topom.topom_fakes import MIGRATION, Bench, FakeHandsOff, FakeMover, FakeProxy
from topom.cluster import cancelling, records, rules, topology
from topom.cluster.events import What
from topom.cluster.state import ClusterState
from topom.errors import OldKeysLeft, ServersUnreachable, SweepUnderWay
from topom.migration import sweeping
from topom.migration.actions import Actions
from topom.migration.foreignkeys import SweepBrokenOff, SweepWarrant
from topom.migration.sweeping import NotMaster, Sweeps
from topom.reasons import Kind, Reason
from topom.servers.detector import Condition, Judgement
from topom.servers.redis_servers import RedisServers
from topom.store import STATE


class FakeSweeper(FakeMover):
    """A mover whose servers have keys of slots, one each."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, set[int]] = {}
        self.data: dict[str, str] = {}
        self.swept: set[str] = set()
        self.sweeps: list[str] = []
        self.stopped: list[str] = []
        self.failing: list[Exception] = []
        self.gate: asyncio.Event | None = None

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        if server in self.swept and self.data.get(server) == data:
            return Swept(0)
        self.sweeps.append(server)
        keys = self.keys.setdefault(server, set())
        foreign = warrant.foreign()
        found = [slot for slot in keys if foreign[slot]]
        removed = 0
        if found:
            foreign = await warrant.begin(len(found), self.data.get(server) == data)
            for slot in sorted(slot for slot in keys if foreign[slot]):
                if self.gate is not None:
                    await self.gate.wait()
                if server in self.stopped:
                    raise SweepOvertaken("its token is gone")
                warrant.hold(removed)
                keys.remove(slot)
                removed += 1
        if self.failing:
            raise self.failing.pop(0)
        self.swept.add(server)
        self.data[server] = data
        return Swept(removed)

    async def stop_sweeping(self, server: str) -> None:
        if self.failing:
            raise self.failing.pop(0)
        self.stopped.append(server)


class SweptBench(Bench):
    """A bench whose targets are swept; slots 0 to 7 are at group 1, the others at 2, and none at 3."""

    def __init__(self) -> None:
        self.sweeper = FakeSweeper()
        super().__init__(mover=self.sweeper)
        self.two: dict[str, Reason] = {}
        self.unsure: dict[str, Reason] = {}
        self.sweeps = Sweeps(
            self.ledger,
            self.sweeper,
            RedisServers(ServerAccess(), 0.1),
            Healthy(),
            FakeHandsOff(),
            self.two.get,
            self.unsure.get,
        )
        self.actions = Actions(self.ledger, self.barrier, self.mover, MIGRATION, 0.05, None, self.sweeps.ensure)

    async def lay_out(self) -> None:
        await self.start()
        for group in (1, 2, 3):
            await self.edit(lambda table, epoch, group=group: topology.add_group(table, epoch, group, [f"s{group}:1"]))  # type: ignore[misc]
        await self.edit(lambda table, epoch: topology.assign(table, epoch, range(8), 1))
        await self.edit(lambda table, epoch: topology.assign(table, epoch, range(8, 16), 2))

    async def known(self, group: int) -> None:
        """It was seen without foreign keys, and has them back now."""
        server = f"s{group}:1"
        await self.sweeps.ensure(group)
        self.sweeper.swept.discard(server)
        self.sweeper.sweeps.clear()
        self.sweeper.keys[server] = set(range(16))


class Healthy:
    def of(self, server: str) -> Judgement:
        return Judgement(Condition.ALIVE, 0, 1)


@pytest.fixture
async def one() -> AsyncIterator[SweptBench]:
    made = SweptBench()
    await made.lay_out()
    yield made
    await made.stop()


async def test_a_target_is_swept_before_it_is_touched_and_anew_if_it_is_restarted_before_the_lock(
    one: SweptBench,
) -> None:
    await FakeProxy(one, 1).register()
    await one.known(3)
    restarted: list[str] = []

    async def restart(step: str) -> None:
        """The server has the same data again, while the slots wait."""
        if step == "preparing acknowledged" and not restarted:
            restarted.append(step)
            assert one.sweeper.keys["s3:1"] == set()
            one.sweeper.keys["s3:1"] = set(range(16))
            one.sweeper.swept.clear()
            one.sweeper.run_ids["s3:1"] = "another"
        if step == "prepared stored":
            assert one.sweeper.keys["s3:1"] == set()
            assert one.ledger.state.sweeping == {}

    one.actions.steps.stored.on_step = restart
    one.run()
    await send(one, range(4), 3)
    await one.at_rest()
    assert one.sweeper.sweeps == ["s3:1", "s3:1"]
    assert restarted
    texts = [event.text for event in one.ledger.state.events if event.what == What.SERVER_SWEPT]
    assert texts == ["16 keys of slots that it does not own were removed from s3:1 of group 3"] * 2


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("group_id", [1, 3])
async def test_owned_neither_end_of_a_copy_comes_to_count_as_swept(one: SweptBench, group_id: int, steps: int) -> None:
    """What is left at one of them is foreign there, and the table does not say so yet."""
    server = f"s{group_id}:1"
    one.sweeper.swept.discard(server)
    states = [SlotState.COPYING, SlotState.PREPARING, SlotState.PREPARED, SlotState.FINISHED]
    await one.edit(lambda table, epoch: topology.move(table, epoch, [0], 3))
    await one.edit(lambda table, epoch: topology.begin(table, epoch, [0], 0, "s", "t", "c0ffee"))
    for before, after in pairwise(states[: steps + 1]):
        await one.edit(partial(topology.advance, slots=[0], before=before, after=after))
    with pytest.raises(SweepBrokenOff, match="copied"):
        await one.sweeps.ensure(group_id)
    assert server not in one.sweeper.swept


async def test_slots_are_not_locked_for_a_server_that_is_being_swept(one: SweptBench) -> None:
    await FakeProxy(one, 1).register()
    await one.known(3)
    # An earlier sweep. It is not known whether it can still delete something.
    one.sweeper.swept.add("s3:1")
    await one.ledger.change(lambda state, epoch: replace(state, sweeping={"s3:1": "old"}))

    async def ensure(group_id: int) -> None:
        """Says that all is well."""

    careless = Actions(one.ledger, one.barrier, one.mover, MIGRATION, 0.05, None, ensure)
    one.actions = careless
    one.run()
    await send(one, range(4), 3)
    await eventually(lambda: "being removed there" in str(careless.reasons()))
    assert {slot.action.state for slot in one.ledger.table.slots[:4] if slot.action} == {SlotState.PREPARING}
    # A server that is found swept deletes nothing any more: a sweep that is under way is marked.
    await one.sweeps.ensure(3)
    assert one.ledger.state.sweeping == {}
    careless.retry()
    await one.at_rest()


async def test_unknown_data_is_refused_until_an_operator_says_so(one: SweptBench) -> None:
    await FakeProxy(one, 1).register()
    one.sweeper.keys["s3:1"] = {1, 9}
    one.run()
    await send(one, range(4), 3)
    await eventually(lambda: bool(one.actions.deferred))
    [(pair, slots, reason)] = one.actions.deferred
    assert (pair, slots) == ((1, 3), [0, 1, 2, 3])
    assert "s3:1 of group 3 holds 2 keys" in reason.what
    assert (reason.kind, "slotferry server sweep s3:1" in reason.to_do) == (Kind.DATA, True)
    assert one.sweeps.reasons["s3:1"].says(reason)
    await eventually(lambda: [event.what for event in one.ledger.state.events].count(What.FOREIGN_KEYS) == 1)
    assert one.sweeper.keys["s3:1"] == {1, 9}
    with pytest.raises(NotMaster):
        await one.sweeps.allow(3, "s1:1")
    assert await one.sweeps.allow(3, "s3:1") == 2
    assert one.sweeps.reasons == {}
    # That was only for the data that it had then.
    one.sweeper.swept.clear()
    one.sweeper.data.clear()
    one.sweeper.keys["s3:1"] = {9}
    with pytest.raises(ForeignKeys):
        await one.sweeps.ensure(3)
    assert await one.sweeps.allow(3, "s3:1") == 1
    one.actions.retry()
    await one.at_rest()


async def test_what_was_in_the_way_is_waited_for_shortly_and_what_an_operator_has_to_do_is_not(
    one: SweptBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(server: str) -> SweepRecord:
        return SweepRecord("a life", "", "")

    monkeypatch.setattr(one.sweeps, "_record", record)
    monkeypatch.setattr(sweeping, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(sweeping, "FIRST_WAIT_SECONDS", 3600.0)
    monkeypatch.setattr(sweeping, "LONGEST_WAIT_SECONDS", 3600.0)
    monkeypatch.setattr(sweeping, "FAILED_WAIT_SECONDS", 0.001)
    await one.known(3)
    await one.known(2)
    one.sweeper.data["s2:1"] = "nobody's"
    failures = 6
    one.sweeper.failing = [ServerUnavailable("the link is down") for _ in range(failures)]
    run = asyncio.create_task(one.sweeps.run())
    try:
        await eventually(lambda: not one.sweeper.failing and one.sweeper.keys["s3:1"] == set())
        assert one.sweeper.sweeps.count("s3:1") + one.sweeper.sweeps.count("s1:1") >= failures
        assert one.sweeper.sweeps.count("s2:1") == 1
        assert one.sweeper.keys["s2:1"] == set(range(16))
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_keys_that_a_server_was_given_while_it_was_in_no_group_are_not_swept(one: SweptBench) -> None:
    await one.known(3)
    one.sweeper.keys["s3:1"] = set()
    await one.edit(lambda table, epoch: topology.remove_server(table, epoch, 3, "s3:1"))
    one.sweeper.keys["s3:1"] = {1, 9}
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 3, "s3:1"))
    with pytest.raises(ForeignKeys):
        await one.sweeps.ensure(3)
    assert one.sweeper.keys["s3:1"] == {1, 9}


async def test_owned_what_a_group_has_left_waits_for_an_operator_if_its_server_was_in_no_group_meanwhile(
    one: SweptBench,
) -> None:
    """That slots left a group, or never came, says nothing of what another program has written at its server since."""
    await one.known(3)
    one.sweeper.keys["s3:1"] = set()
    await one.edit(lambda table, epoch: topology.move(table, epoch, [0], 3))
    await one.edit(lambda table, epoch: topology.begin(table, epoch, [0], 0, "s", "t", "c0ffee"))
    await one.edit(lambda table, epoch: topology.begin_anew(table, epoch, [0], SlotState.COPYING))
    await one.ledger.change(lambda state, epoch: cancelling.cancel(state, epoch, [0])[0])
    await one.edit(lambda table, epoch: topology.remove_server(table, epoch, 3, "s3:1"))
    one.sweeper.keys["s3:1"] = {0}
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 3, "s3:1"))
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0]))
    assert one.ledger.state.leftovers[3].keys() == {0}
    with pytest.raises(ForeignKeys):
        await one.sweeps.ensure(3)
    assert one.sweeper.keys["s3:1"] == {0}
    assert one.ledger.state.leftovers[3].keys() == {0}, "the slot does not come there either"


async def test_a_sweep_ends_when_its_slots_are_in_doubt(one: SweptBench) -> None:
    await one.known(1)
    one.sweeper.gate = asyncio.Event()
    task = asyncio.create_task(one.sweeps.ensure(1))
    await eventually(lambda: "s1:1" in one.ledger.state.sweeping)
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [9]))
    one.sweeper.gate.set()
    with pytest.raises(SweepBrokenOff):
        await task
    assert one.sweeper.keys["s1:1"] == set(range(16))
    # It is not known what an earlier sweep can still delete, until another one has come to its end.
    assert "s1:1" in one.ledger.state.sweeping
    # The data is still known; keys of the slot that is offline are left.
    await one.sweeps.ensure(1)
    assert one.sweeper.keys["s1:1"] == {*range(8), 9}
    assert one.ledger.state.sweeping == {}


async def test_owned_a_sweep_that_found_keys_by_other_slot_rules_deletes_none(
    one: SweptBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.known(1)
    begin = SweepWarrant.begin

    async def later(warrant: SweepWarrant, keys: int, known: bool) -> bytes:
        # The keys have been looked at, and now the rules change.
        await one.edit(lambda table, epoch: table.ruled(epoch, (SlotRule("bull:(*):*"),)))
        return await begin(warrant, keys, known)

    monkeypatch.setattr(SweepWarrant, "begin", later)
    with pytest.raises(SweepBrokenOff, match="slot rules have changed"):
        await one.sweeps.ensure(1)
    assert one.sweeper.keys["s1:1"] == set(range(16))
    assert one.ledger.state.sweeping == {}


async def test_run_id_a_sweep_ends_when_its_server_may_be_another_one(one: SweptBench) -> None:
    """A slot that it does not own by one name it may own by the other."""
    await one.known(1)
    one.sweeper.gate = asyncio.Event()
    task = asyncio.create_task(one.sweeps.ensure(1))
    await eventually(lambda: "s1:1" in one.ledger.state.sweeping)
    one.two["s1:1"] = Reason(Kind.OPERATOR, "s1:1 is s2:1 by another name")
    one.sweeper.gate.set()
    with pytest.raises(SweepBrokenOff, match="another name"):
        await task
    assert one.sweeper.keys["s1:1"] == set(range(16))


@pytest.mark.parametrize("allowed", [False, True])
async def test_run_id_no_key_goes_before_the_server_was_compared_with_the_others(
    one: SweptBench, allowed: bool
) -> None:
    """It has come in right behind a restart, perhaps, and owns these keys by another name."""
    await one.known(1)
    one.unsure["s1:1"] = Reason(Kind.BUSY, "s1:1 is being compared with the other servers")
    with pytest.raises(SweepBrokenOff, match="being compared"):
        await (one.sweeps.allow(1, "s1:1") if allowed else one.sweeps.ensure(1))
    assert one.sweeper.keys["s1:1"] == set(range(16))
    assert one.ledger.state.sweeping == {}
    one.unsure.clear()
    await one.sweeps.ensure(1)
    assert one.sweeper.keys["s1:1"] == set(range(8))


async def test_slots_are_not_given_to_a_server_that_is_being_swept(one: SweptBench) -> None:
    await one.known(1)
    one.sweeper.gate = asyncio.Event()
    task = asyncio.create_task(one.sweeps.ensure(1))
    await eventually(lambda: "s1:1" in one.ledger.state.sweeping)
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [9]))
    state = one.ledger.state

    def assigned(group_id: int) -> SlotTable:
        return topology.assign(state.table, state.version + 1, [9], group_id)

    def check(state: ClusterState, table: SlotTable) -> None:
        rules.no_slot_for_a_server_that_is_swept(state, replace(state, table=table))

    check(state, assigned(2))
    with pytest.raises(SweepUnderWay):
        check(state, assigned(1))
    # Nor if another group has its server.
    moved = state.table.changed(99, [Slot(9, 4)], [Group(1), Group(4, ("s1:1",))])
    with pytest.raises(SweepUnderWay):
        check(state, moved)
    one.sweeper.failing = [ServerUnavailable("s1:1 does not answer")]
    with pytest.raises(ServersUnreachable):
        await one.sweeps.stop("s1:1")
    assert "s1:1" in one.ledger.state.sweeping
    await one.sweeps.stop("s1:1")
    assert one.ledger.state.sweeping == {}
    check(one.ledger.state, assigned(1))
    one.sweeper.gate.set()
    with pytest.raises(SweepOvertaken):
        await task
    assert one.sweeper.keys["s1:1"] == set(range(16))
    await one.sweeps.stop("s1:1")
    await one.sweeps.stop(None)


async def test_the_end_of_one_sweep_is_not_that_of_the_next(one: SweptBench) -> None:
    """A server is slow to forget a sweep, and meanwhile another begins."""
    await one.known(1)
    await one.ledger.change(lambda state, epoch: replace(state, sweeping={"s1:1": "old"}))
    begun = asyncio.Event()

    async def slowly(server: str) -> None:
        begun.set()
        one.sweeper.gate = asyncio.Event()
        await eventually(lambda: one.ledger.state.sweeping.get("s1:1") != "old")

    one.sweeper.stop_sweeping = slowly  # type: ignore[method-assign]
    stopping = asyncio.create_task(one.sweeps.stop("s1:1"))
    await begun.wait()
    sweep = asyncio.create_task(one.sweeps.ensure(1))
    await stopping
    assert "s1:1" in one.ledger.state.sweeping
    assert one.sweeper.gate is not None
    one.sweeper.gate.set()
    await sweep
    assert one.ledger.state.sweeping == {}


async def test_what_is_swept_is_stored_and_taken_over(one: SweptBench) -> None:
    await one.known(1)
    await one.known(2)
    await one.ledger.change(lambda state, epoch: replace(state, sweeping={"s1:1": "x"}))
    stored = records.decode(await one.store.book(STATE).read())
    assert stored is not None
    assert stored.data_ids == one.ledger.state.data_ids
    assert set(stored.data_ids) == {1, 2, 3}
    assert stored.sweeping == {"s1:1": "x"}


async def copied_away(one: SweptBench, slot: int) -> None:
    """A slot has left group 1 by a copy, and its group was not swept since."""
    states = [SlotState.COPYING, SlotState.PREPARING, SlotState.PREPARED, SlotState.FINISHED]
    await one.edit(lambda table, epoch: topology.move(table, epoch, [slot], 3))
    await one.edit(lambda table, epoch: topology.begin(table, epoch, [slot], 0, "s", "t", "c0ffee"))
    for before, after in pairwise(states):
        await one.edit(partial(topology.advance, slots=[slot], before=before, after=after))
    await one.edit(lambda table, epoch: topology.come_to_rest(table, epoch, [slot]))


async def replicas_are_behind() -> None:
    raise TooFewReplicas("they are behind")


async def test_owned_an_offline_slot_comes_to_its_former_group_only_once_that_is_swept(one: SweptBench) -> None:
    await one.known(1)
    await copied_away(one, 0)
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0]))
    with pytest.raises(OldKeysLeft):
        await one.edit(lambda table, epoch: topology.assign(table, epoch, [0], 1))
    one.sweeper.withdraw_errors = [SourceUnavailable("s1:1 does not answer")]
    with pytest.raises(SourceUnavailable):
        await one.sweeps.ensure(1)
    assert one.ledger.state.leftovers[1].keys() == {0}, "a permit may be left there"
    one.sweeper.confirming = replicas_are_behind
    with pytest.raises(TooFewReplicas):
        await one.sweeps.ensure(1)
    assert one.ledger.state.leftovers[1].keys() == {0}, "a replica that becomes master may have the old keys"
    one.sweeper.confirming = None
    await one.sweeps.ensure(1)
    assert one.sweeper.withdrawn[-1] == ("s1:1", None)
    assert one.sweeper.keys["s1:1"] == set(range(1, 8))
    assert one.ledger.state.leftovers == {}
    await one.edit(lambda table, epoch: topology.assign(table, epoch, [0], 1))


async def test_owned_old_keys_are_left_if_the_server_has_them_again_while_its_replicas_are_waited_for(
    one: SweptBench,
) -> None:
    await one.known(1)
    await copied_away(one, 0)
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0]))

    async def restarted() -> None:
        one.sweeper.swept.discard("s1:1")
        one.sweeper.keys["s1:1"].add(0)

    one.sweeper.confirming = restarted
    with pytest.raises(SweepOvertaken):
        await one.sweeps.ensure(1)
    assert one.ledger.state.leftovers[1].keys() == {0}
    one.sweeper.confirming = None
    await one.sweeps.ensure(1)
    assert one.ledger.state.leftovers == {}
    assert 0 not in one.sweeper.keys["s1:1"]


@pytest.mark.parametrize("way", ["stream", "auto"])
async def test_keys_of_a_source_with_unknown_data_move_one_by_one(one: SweptBench, way: str) -> None:
    """After a copy, its keys of the slots could not be told from those that an operator may want."""
    notes: list[str] = []

    async def collect(step: str) -> None:
        notes.extend(note for batch in one.actions.batches for note in batch.notes)

    one.sweeper.keys["s1:1"] = set(range(9))
    one.sweeper.facts = {server: Facts(server, keys={0: 10**8}) for server in ("s1:1", "s3:1")}
    one.actions = Actions(
        one.ledger, one.barrier, one.mover, replace(MIGRATION, way=way), 0.05, collect, one.sweeps.ensure
    )
    one.run()
    await send(one, range(4), 3)
    await one.at_rest()
    assert one.sweeper.copies == []
    assert one.sweeper.moved == [("s1:1", "s3:1", tuple(range(4)))]
    said = "server s1:1 of group 1 holds 1 key of slots that belong to other groups"
    assert [note for note in set(notes) if note.startswith("by ")] == [note for note in set(notes) if said in note]
    assert 8 in one.sweeper.keys["s1:1"]


async def test_another_topom_stores_the_end_of_a_sweep_that_was_not_stored(
    one: SweptBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.known(1)
    await copied_away(one, 0)
    one.sweeper.keys["s1:1"] = set()
    one.sweeper.swept.add("s1:1")

    async def record(server: str) -> SweepRecord:
        return SweepRecord("a life", "a life", one.ledger.state.data_ids[int(server[1])])

    monkeypatch.setattr(one.sweeps, "_record", record)
    await one.sweeps.look()
    assert one.ledger.state.leftovers == {}


@pytest.mark.parametrize("meanwhile", ["another master", "another switch"])
async def test_a_sweep_says_nothing_of_another_master_nor_of_a_later_switch(one: SweptBench, meanwhile: str) -> None:
    await one.known(1)
    await copied_away(one, 0)
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s9:1"))
    swept, going_on = asyncio.Event(), asyncio.Event()
    sweep = one.sweeper.sweep

    async def slowly(server: str, data: str, warrant: Warrant) -> Swept:
        found = await sweep(server, data, warrant)
        swept.set()
        await going_on.wait()
        return found

    one.sweeper.sweep = slowly  # type: ignore[method-assign]
    task = asyncio.create_task(one.sweeps.ensure(1))
    await swept.wait()
    if meanwhile == "another master":
        # It was a replica, and has not got what was removed.
        await one.edit(lambda table, epoch: topology.promote(table, epoch, 1, "s9:1"))
        kept = {0}
    else:
        await copied_away(one, 1)
        kept = {1}
    going_on.set()
    await task
    assert one.ledger.state.leftovers[1].keys() == kept


async def test_owned_old_keys_of_a_replica_that_stood_still_go_before_a_slot_comes_to_it(one: SweptBench) -> None:
    """It was not waited for, as it was not online, and has become the master since."""
    await FakeProxy(one, 1).register()
    await one.known(1)
    await copied_away(one, 0)
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s9:1"))
    await one.sweeps.ensure(1)
    assert one.ledger.state.leftovers == {}
    one.sweeper.keys["s9:1"], one.sweeper.data["s9:1"] = set(range(8)), one.ledger.state.data_ids[1]
    await one.edit(lambda table, epoch: topology.promote(table, epoch, 1, "s9:1"))
    at_the_lock: list[set[int]] = []

    async def look(step: str) -> None:
        if step == "prepared stored":
            at_the_lock.append(set(one.sweeper.keys["s9:1"]))

    one.actions.steps.stored.on_step = look
    one.run()
    await send(one, [0], 1)
    await one.at_rest()
    assert at_the_lock == [set(range(1, 8))]


async def test_what_is_kept_for_an_operator_does_not_keep_its_slot_away(one: SweptBench) -> None:
    """The target may have lost what only the source has besides: an operator may want it alive again."""
    await FakeProxy(one, 1).register()
    await one.known(1)

    async def restart(step: str) -> None:
        if step == "finished stored":
            one.sweeper.run_ids["s3:1"] = "another"

    stream = replace(MIGRATION, way="stream")
    one.actions = Actions(one.ledger, one.barrier, one.mover, stream, 0.05, restart, one.sweeps.ensure)
    one.run()
    await send(one, [0], 3)
    await one.at_rest()
    assert 1 not in one.ledger.state.data_ids
    assert one.ledger.state.leftovers == {}
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [0]))
    await one.edit(lambda table, epoch: topology.assign(table, epoch, [0], 1))
