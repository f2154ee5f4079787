"""Which replica takes the place of a failed master, when, and when topom does nothing by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, Case, hurry
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeProxy, MemoryStore
from topom.cluster import topology
from topom.cluster.events import What
from topom.cluster.hands_off import HandsOff
from topom.cluster.protection import Protection
from topom.cluster.state import Joining, Leaving
from topom.cluster.topology import all_servers
from topom.copies.joining import Joins
from topom.masters.failover import Masters, MastersSettings
from topom.masters.offsets import Offsets
from topom.reasons import Kind
from topom.servers.detector import Condition, Judgement
from topom.servers.health import Health

__all__ = ["hurry"]

GROUP = Group(1, ("m:1", "r:1", "r:2"))
SETTINGS = MastersSettings(active=True, lag_bytes=100, fail_seconds=5.0, wait_for_lost_proxies=True)


async def test_protection_holds_until_members_are_back_or_an_operator_says_so() -> None:
    bench = await Bench().start()
    protection = Protection(0.5, bench.ledger)
    for lost, active in ((0, False), (2, False), (3, True)):
        protection.look(lost, 4)
        assert protection.active is active
    await protection.lift()
    protection.look(4, 4)
    await protection.end_lifting()
    assert not protection.active, "lifted for those that are lost now"
    protection.look(2, 4)
    await protection.end_lifting()
    protection.look(3, 4)
    assert protection.active, "another loss is another matter"
    protection = Protection(0.5, bench.ledger)
    await protection.lift()
    protection.look(4, 4)
    assert protection.active, "it cannot be lifted before it is on"
    protection.look(0, 0)
    assert not protection.active


async def test_protection_ends_once_enough_members_have_been_back_for_a_while() -> None:
    bench = await Bench().start()
    protection = Protection(0.5, bench.ledger, settle_seconds=2.0)
    for lost, now, active in ((3, 0.0, True), (2, 1.0, True), (3, 2.0, True), (2, 3.0, True), (1, 4.9, True)):
        protection.look(lost, 4, now=now)
        assert protection.active is active, now
    protection.look(1, 4, now=5.0)
    assert not protection.active


async def test_the_next_topom_knows_that_protection_was_lifted() -> None:
    store = MemoryStore()
    first = await Bench(store).start()
    protection = Protection(0.5, first.ledger)
    protection.look(3, 4)
    await protection.lift()
    second = await Bench(store).start()
    protection = Protection(0.5, second.ledger)
    assert protection.lifted is not None
    assert (protection.lifted.lost, protection.lifted.members) == (3, 4)
    # Nothing is known yet. That does not mean that nothing is lost.
    protection.look(0, 4, unsure=4)
    await protection.end_lifting()
    protection.look(3, 4, unsure=1)
    await protection.end_lifting()
    assert protection.lifted is not None
    assert not protection.active
    # An event that cannot be stored now is stored later.
    protection.look(1, 4, unsure=1)
    store.fail_before = 1
    await protection.end_lifting()
    assert protection.lifted is not None
    await protection.end_lifting()
    assert protection.lifted is None
    protection.look(3, 4)
    assert protection.active
    assert [event.what for event in second.ledger.state.events[-1:]] == ["protection_restored"]


def test_a_lost_master_is_replaced_while_slots_are_in_motion() -> None:
    table = SlotTable.empty(4).changed(1, groups=[GROUP, Group(2, ("o:1",))])
    table = table.changed(2, [Slot(0, 1), Slot(1, 1, Action(SlotState.MIGRATING, 2))])
    locked = topology.lock_group(table, 3, 1, lost=True)
    assert (locked.groups[1].locked, locked.groups[1].lost) == (True, True)
    assert SlotTable.from_wire(locked.to_wire()) == locked
    for unlocked in (topology.unlock_group(locked, 4, 1), topology.promote(locked, 4, 1, "r:1")):
        assert (unlocked.groups[1].locked, unlocked.groups[1].lost) == (False, False)


class FakeHealth(Health):
    """Judges servers by whether they are down."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.looked = asyncio.Event()
        self.doubted: set[str] = set()

    def of(self, server: str) -> Judgement:
        down = server in self._case.servers.all and self._case.servers.all[server].down
        doubted = server in self.doubted
        return Judgement(Condition.FAILED if down else Condition.ALIVE, 3 * down, 3, doubted)

    def silence(self, server: str) -> float:
        return 20.0


@asynccontextmanager
async def watching(case: Case, wait_for_lost_proxies: bool = True) -> AsyncIterator[tuple[Bench, Masters]]:
    """A topom that replaces masters by itself."""
    async with case.topom() as bench:
        health = FakeHealth(case)
        settings = replace(SETTINGS, wait_for_lost_proxies=wait_for_lost_proxies)
        offsets = Offsets(bench.ledger, case.servers, lambda server: not case.servers.all[server].down, 100)
        masters = Masters(
            bench.ledger,
            bench.members,
            health,
            case.promotions,
            case.servers,
            HandsOff(bench.ledger, Protection(0.5, bench.ledger)),
            offsets,
            settings,
        )
        await offsets.ask()
        tasks = [asyncio.create_task(work) for work in (masters.run(), keep_looking(health))]
        try:
            yield bench, masters
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def keep_looking(health: FakeHealth) -> None:
    while True:
        health.looked.set()
        await asyncio.sleep(0.005)


async def test_a_failed_master_is_replaced_and_comes_back_as_a_replica() -> None:
    case = Case()
    async with watching(case) as (bench, _):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        case.servers.all[MASTER].down = True
        await bench.until(lambda table: table.groups[1].master == FIRST)
        locked = [table.groups[1] for table in case.proxy.seen if table.groups[1].locked]
        assert [group.lost for group in locked] == [True]
        case.servers.all[MASTER].down = False
        # It says that it is a master, and has what no other server has.
        case.servers.all[MASTER].data += 1
        await eventually(lambda: case.servers.all[MASTER].follows == FIRST)
        await case.settled()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_lost_proxy_that_may_write_to_the_former_master(waits: bool) -> None:
    case = Case()
    async with watching(case, waits) as (bench, masters):
        lost = await FakeProxy(bench, 2, lambda table: None).register()
        assert lost.member is not None
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        lost.member.lost = True
        bench.fencer.down.add(MASTER)
        case.servers.all[MASTER].down = True
        if waits:
            # one-owner
            await eventually(lambda: f"cannot be fenced at {MASTER}" in str(masters.reasons.get(1)))
            assert bench.ledger.table.groups[1].master == MASTER
            assert case.servers.all[FIRST].follows == MASTER
            bench.fencer.down.clear()
        await bench.until(lambda table: table.groups[1].master == FIRST)
        assert bench.fencer.fenced[lost.instance] >= {FIRST, SECOND}
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_a_paused_topom_replaces_nobody_until_it_is_resumed() -> None:
    case = Case()
    async with watching(case) as (bench, masters):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        hands_off = HandsOff(bench.ledger, Protection(0.5, bench.ledger))
        await hands_off.pause("switches are changed")
        case.servers.all[MASTER].down = True
        await eventually(lambda: "has paused topom (switches are changed)" in str(masters.reasons.get(1)))
        assert bench.ledger.table.groups[1].master == MASTER
        await hands_off.resume()
        await bench.until(lambda table: table.groups[1].master == FIRST)
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_the_loss_of_many_is_left_to_the_operator() -> None:
    case = Case()
    async with watching(case) as (bench, masters):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        assert len(all_servers(bench.ledger.table)) + len(bench.members.all()) == 5
        for server in (MASTER, SECOND):
            case.servers.all[server].down = True
        member = case.proxy.member
        assert member is not None
        member.lost = True
        await eventually(lambda: "slotferry protection off" in str(masters.reasons.get(1)))
        assert bench.ledger.table.groups[1].master == MASTER
        member.lost = False
        await bench.until(lambda table: table.groups[1].master == FIRST)
        await eventually(lambda: not masters.reasons)
        told = [event.what for event in bench.ledger.state.events]
        # The failover took along what had happened before.
        for what in (What.PROTECTION_ON, What.MASTER_NOT_REPLACED, What.PROTECTION_OVER):
            assert told.index(what) < told.index(What.MASTER_CHANGED)
        event = bench.ledger.state.events[told.index(What.MASTER_NOT_REPLACED)]
        assert event.reason is not None
        assert (event.reason.kind, "slotferry protection off" in event.reason.to_do) == (Kind.PROTECTED, True)
        why = event.text
        assert why.startswith(f"{MASTER}, the master of group 1, has failed and is not replaced yet: 3 of 5 members")
        for server in (MASTER, SECOND):
            case.servers.all[server].down = False
        await case.settled()


@pytest.mark.parametrize("both", [False, True])
async def test_of_equals_who_is_on_its_way_out_takes_over_only_if_all_are(both: bool) -> None:
    case = Case()
    async with watching(case) as (bench, _):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        entries = [Leaving("server", FIRST, "", 1.0), *([Leaving("server", SECOND, "", 1.0)] if both else [])]
        leaving = {entry.key: entry for entry in entries}
        await bench.ledger.change(lambda state, epoch: replace(state, leaving=leaving))
        case.servers.all[MASTER].down = True
        await bench.until(lambda table: table.groups[1].master == (FIRST if both else SECOND))
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_who_is_on_its_way_out_takes_over_if_it_has_more() -> None:
    """given a replica that lags, what only the leaving one has is not lost."""
    case = Case()
    async with watching(case) as (bench, _):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        case.servers.all[SECOND].stuck = True
        entry = Leaving("node", "r", "", 1.0)
        await bench.edit(lambda table, epoch: topology.set_place(table, epoch, 1, SECOND, None, "other"))
        await bench.ledger.change(lambda state, epoch: replace(state, leaving={entry.key: entry}))
        before = case.servers.all[SECOND].data
        await bench.until(lambda table: case.servers.all[FIRST].data > before)
        case.servers.all[MASTER].down = True
        case.servers.all[FIRST].data = case.acknowledged
        await bench.until(lambda table: table.groups[1].master not in (MASTER, None))
        assert bench.ledger.table.groups[1].master == FIRST
        case.servers.all[MASTER].down = case.servers.all[SECOND].stuck = False
        await case.settled()


async def test_who_was_never_whole_does_not_take_over() -> None:
    case = Case()
    async with case.topom() as bench:
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        await Offsets(bench.ledger, case.servers, lambda server: True, 100).look()
        joining = {server: Joining(server) for server in (FIRST, SECOND)}
        await bench.ledger.change(lambda state, epoch: replace(state, joining=joining))
    # When: the next topom has not heard the master itself.
    case.servers.all[MASTER].down = True
    async with watching(case) as (bench, masters):
        await eventually(lambda: "was not seen whole since" in str(masters.reasons.get(1)))
        await bench.ledger.change(lambda state, epoch: replace(state, joining={FIRST: Joining(FIRST)}))
        await bench.until(lambda table: table.groups[1].master == SECOND)
        case.servers.all[MASTER].down = False
        await eventually(lambda: case.servers.all[MASTER].follows == SECOND)
        assert case.servers.all[FIRST].follows == MASTER, "it is told as one that joins (topom.copies.joining)"
        case.filling.serve(Joins(bench.ledger, case.servers))
        case.filling.wake()
        await case.settled()


@pytest.mark.parametrize("known", [True, False])
async def test_a_topom_that_has_just_come_to_lead_knows_what_a_replica_lacks(known: bool) -> None:
    case = Case()
    async with case.topom() as bench:
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        for replica in (FIRST, SECOND):
            case.servers.all[replica].stuck = True
        case.servers.all[MASTER].data += 1000
        if known:
            await Offsets(bench.ledger, case.servers, lambda server: True, 100).look()
    case.servers.all[MASTER].down = True
    async with watching(case) as (bench, masters):
        why = "bytes behind what its master had" if known else "no topom knows how far m:1 was"
        await eventually(lambda: why in str(masters.reasons.get(1)))
        assert bench.ledger.table.groups[1].master == MASTER
        case.servers.all[MASTER].down = False


async def test_a_topom_that_was_cut_off_from_the_master_does_not_know_what_that_wrote_meanwhile() -> None:
    """Proxies reach the master, but topom and its replica do not. Then it dies."""
    case = Case()
    async with watching(case) as (bench, masters):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        offsets = masters._offsets
        await offsets.ask()
        for replica in (FIRST, SECOND):
            case.servers.all[replica].stuck = True
            case.servers.all[replica].down_seconds = 600
        offsets._asked_at[1] -= 600
        case.servers.all[MASTER].data += 1000
        case.servers.all[MASTER].down = True
        await eventually(lambda: "no topom saw what that wrote since" in str(masters.reasons.get(1)))
        assert bench.ledger.table.groups[1].master == MASTER
        case.servers.all[MASTER].down = False


async def test_the_first_of_many_to_be_found_lost_is_not_replaced_either() -> None:
    """given servers that are lost together, topom finds one after the other."""
    case = Case()
    async with watching(case) as (bench, masters):
        await bench.until(lambda table: case.acknowledged > 0)
        case.servers.replicate()
        health = masters._health
        assert isinstance(health, FakeHealth)
        others = [server for server in all_servers(bench.ledger.table) if server not in (MASTER, FIRST)]
        assert len(others) == 2
        health.doubted.update(others)
        case.servers.all[MASTER].down = True
        await eventually(lambda: "slotferry protection off" in str(masters.reasons.get(1)))
        assert bench.ledger.table.groups[1].master == MASTER
        health.doubted.clear()
        await bench.until(lambda table: table.groups[1].master == FIRST)
        case.servers.all[MASTER].down = False
        await case.settled()
