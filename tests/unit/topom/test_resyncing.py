"""What is known against replicas is stored before it is told, and outlives leaders; which are filled anew, and when."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slots.access import ServerAccess
from tests.unit.topom.test_placement_applied import Case, FakeServers
from topom import topology
from topom.digests import checks, differing, resyncing
from topom.digests.checks import Check, Digests, Stage
from topom.digests.differing import Differing
from topom.digests.errors import CheckRuns, NothingToCheck
from topom.digests.resyncing import Resyncs
from topom.digests.sums import ABSENT, Difference, Looked
from topom.digests.walk import Walk
from topom.protection import Protection
from topom.replication import ServerFailed
from topom.state import Differs
from topom.store import records


class RefillingServers(FakeServers):
    """Servers in memory that may be told to be filled anew."""

    async def refill(self, address: str, master: str, run_id: str = "") -> None:
        (await self._reach(address)).whole = False
        self.told.append((address, master))


class FoundDigests(Digests):
    """Checks that find what the test says, once it lets them."""

    wrong = 0
    extra = 0
    uncompared = 0

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def _walk(self, check: Check, began: float) -> None:
        for slot in range(self.wrong):
            check.tally.differs(slot, 0, b"k", Looked("string"), ABSENT, Difference.MISSING)
        for slot in range(self.extra):
            check.tally.differs(slot, 0, b"k", ABSENT, Looked("string"), Difference.EXTRA)
        for slot in range(self.uncompared):
            check.tally.skip(slot, 0, b"k", "why")
        shown = asyncio.create_task(self._show(check, cast(Walk, SimpleNamespace(total=20)), began))
        try:
            await self.go_on.wait()
        finally:
            shown.cancel()


class Room(Case):
    """A topom's checks and resyncs: group 1 with replicas on nodes b and c, group 2 with one on b."""

    def __init__(self) -> None:
        super().__init__()
        self.servers = RefillingServers()
        self.failed: set[str] = set()

    async def begin_leading(self, by_itself: bool = True) -> None:
        """The first topom, or the next one."""
        await self.start({1: "a:1,b:1,c:1", 2: "d:2,b:2"}, "p:9")
        ledger = self.bench.ledger
        self.digests = FoundDigests(ledger, ServerAccess(), lambda: 5.0)
        self.differing = Differing(lambda: ledger.state)
        self.resyncs = Resyncs(
            ledger,
            self.servers,
            self.filling,
            self.digests,
            cast(Protection, self.protection),
            self.failed.__contains__,
            by_itself,
        )

    async def check(self, group_id: int, server: str, wrong: int, uncompared: int = 0, resync: bool = True) -> Check:
        self.digests.wrong, self.digests.uncompared = wrong, uncompared
        (check,) = self.digests.start(group_id, server, 0, resync)
        await until(lambda: not self.digests.runs(group_id))
        return check

    async def look_at_all(self) -> None:
        """Look until everything that can be told now was told."""
        await self.resyncs.look()
        for _ in range(100):
            await asyncio.sleep(0)

    def unread(self, group_id: int = 1) -> set[str]:
        return set(self.bench.ledger.table.groups[group_id].unread)

    async def die(self) -> None:
        """The topom's tasks end, wherever they are."""
        for task in list(self.resyncs._tasks.values()):
            task.cancel()
        await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setattr(resyncing, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(checks, "STORE_SECONDS", 0.001)
    monkeypatch.setattr(checks, "SHOW_SECONDS", 0.001)
    room = Room()
    await room.begin_leading()
    yield room
    await room.die()


async def test_what_a_check_finds_is_stored_before_it_is_told_and_the_next_leader_knows_it(room: Room) -> None:
    room.store.fail_before = 3
    check = await room.check(1, "b:1", 20)
    assert check.stage is Stage.DIFFERENT
    stored = records.decode(await room.store.read())
    assert stored is not None
    entry = Differs("b:1", 1, 20, 20, "0-15", 5.0)
    assert stored.differing == {"b:1": entry}
    assert room.unread() == {"b:1"}
    epoch = room.bench.ledger.table.epoch
    await room.begin_leading()
    assert room.bench.ledger.table.epoch > epoch
    assert room.differing.of("b:1") == entry
    assert "20 keys, in 20 slots (0-15, ...)" in (room.differing.problem("b:1") or "")
    assert room.unread() == {"b:1"}
    assert room.differing.of("c:1") is None


async def test_what_is_found_early_is_known_before_the_check_is_over(room: Room) -> None:
    room.digests.go_on.clear()
    room.digests.wrong = 1
    (check,) = room.digests.start(1, "b:1", 0)
    await until(lambda: room.differing.of("b:1") is not None)
    assert check.stage is Stage.RUNNING
    # It is not told to anybody while it is being looked at.
    await room.look_at_all()
    assert room.servers.told == []
    await room.digests.cancel(1)
    assert room.differing.of("b:1") is not None


async def test_what_is_known_goes_when_the_server_leaves_or_is_found_whole(room: Room) -> None:
    await room.check(1, "b:1", 3)
    await room.check(1, "c:1", 3)
    await room.check(1, "b:1", 0, uncompared=1)
    assert {entry.server for entry in room.differing.entries} == {"b:1", "c:1"}
    await room.check(1, "b:1", 0)
    assert {entry.server for entry in room.differing.entries} == {"c:1"} == room.unread()
    await room.bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, "c:1"))
    await room.bench.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "c:1"))
    assert room.differing.entries == []
    assert room.unread() == set()
    # The master of its group differs from nobody.
    await room.check(2, "b:2", 3)
    assert room.unread(2) == {"b:2"}
    await room.bench.edit(lambda table, epoch: topology.promote(table, epoch, 2, "b:2"))
    assert room.differing.entries == []
    assert room.unread(2) == set()


async def test_a_replica_is_filled_anew_by_itself_once_and_then_somebody_has_to_look(room: Room) -> None:
    await room.check(1, "b:1", 3)
    await room.look_at_all()
    assert room.servers.told == [("b:1", "a:1")]
    assert "being filled anew" in (room.differing.problem("b:1") or "")
    with pytest.raises(CheckRuns, match="filled anew"):
        room.digests.start(1, "b:1", 0)
    assert room.unread() == {"b:1"}
    room.fill("b:1")
    await until(lambda: room.differing.of("b:1") is None)
    assert room.unread() == set()
    (event,) = [event for event in room.bench.ledger.state.events if event.what == "replica_resynced"]
    assert "b:1 was filled anew" in event.text

    await room.begin_leading()
    await room.check(1, "b:1", 2)
    await room.look_at_all()
    assert room.servers.told == [("b:1", "a:1")], "once is enough"
    assert "after it had been filled anew" in (room.differing.problem("b:1") or "")
    # An operator may have it filled as often as they like.
    assert await room.resyncs.resync(1, None) == ["b:1"]
    room.fill("b:1")
    await until(lambda: room.differing.of("b:1") is None)
    assert len(room.servers.told) == 2
    await room.check(1, "b:1", 0)
    assert room.bench.ledger.state.differing == {}
    await room.check(1, "b:1", 2)
    await room.look_at_all()
    assert len(room.servers.told) == 3, "a check that found nothing begins the count anew"


async def test_it_is_not_filled_by_itself_where_that_is_not_safe(room: Room) -> None:
    ledger = room.bench.ledger

    async def told_after(change: Callable[[], Awaitable[object]] | None = None) -> int:
        if change is not None:
            await change()
        await room.look_at_all()
        return len(room.servers.told)

    await room.check(1, "b:1", 3, resync=False)
    assert await told_after() == 0, "an operator said that it is not to be"
    assert await room.resyncs.look() is None
    await room.check(1, "b:1", 3)
    room.protection.active = True
    assert await told_after() == 0
    room.protection.active = False
    room.failed.add("a:1")
    assert await told_after() == 0
    room.failed.clear()
    room.servers.of("a:1").down = True
    assert await told_after() == 0
    room.servers.of("a:1").down = False
    room.servers.of("b:1").whole = False
    assert await told_after() == 0, "it has no link"
    room.servers.of("b:1").whole = True
    assert await told_after(lambda: room.bench.edit(lambda table, epoch: topology.lock_group(table, epoch, 1))) == 0
    await room.bench.edit(lambda table, epoch: topology.unlock_group(table, epoch, 1))
    room.filling.note("b:8", frozenset({"b"}))
    assert await told_after() == 0, "another server of its node is being filled"
    room.filling.over("b:8")
    assert ledger.state.differing["b:1"].resyncs == 0
    assert await told_after() == 1
    # One at a time on a node.
    await room.check(2, "b:2", 3)
    assert await told_after() == 1
    room.fill("b:1")
    await until(lambda: room.differing.of("b:1") is None)
    async with asyncio.timeout(20):
        while len(room.servers.told) < 2:  # what filled b:1 may not have ended yet
            await room.look_at_all()
    assert room.servers.told == [("b:1", "a:1"), ("b:2", "d:2")]
    await room.die()
    await room.begin_leading(by_itself=False)
    await room.check(1, "c:1", 3)
    assert await told_after() == 2


async def test_what_only_the_replica_has_is_not_wiped_unasked(room: Room) -> None:
    """Its master may have lost it, and topom may die before anybody has looked."""
    room.digests.extra = 1
    await room.check(1, "b:1", 3)
    assert "1 are only at the replica" in room.bench.ledger.state.events[-1].text
    await room.look_at_all()
    await room.begin_leading()
    await room.look_at_all()
    assert room.servers.told == []
    assert room.unread() == {"b:1"}
    # When: an operator says that the master is right.
    await room.resyncs.resync(1, "b:1")
    assert room.servers.told == [("b:1", "a:1")]


async def test_the_next_leader_goes_on_with_what_was_begun(room: Room) -> None:
    await room.check(1, "b:1", 3)
    await room.look_at_all()
    await room.die()
    # It is just being filled: that goes on.
    await room.begin_leading(by_itself=False)
    await room.look_at_all()
    assert len(room.servers.told) == 1
    await room.die()
    # It is whole, and nobody knows whether it was told.
    room.fill("b:1")
    await room.begin_leading(by_itself=False)
    assert room.digests.is_resyncing("b:1")
    await room.look_at_all()
    assert len(room.servers.told) == 2
    room.fill("b:1")
    await until(lambda: room.differing.of("b:1") is None)
    assert room.bench.ledger.state.differing["b:1"].resyncs == 1


async def test_the_next_leader_does_not_fill_others_while_what_was_begun_goes_on(room: Room) -> None:
    """given two replicas of a group differ, and one of them is being filled when topom dies."""
    await room.check(1, "c:1", 3)
    await room.look_at_all()
    await room.check(1, "b:1", 3)
    await room.die()
    await room.begin_leading()
    for _ in range(3):
        await room.look_at_all()
    assert room.servers.told == [("c:1", "a:1")]
    room.fill("c:1")
    await until(lambda: room.differing.of("c:1") is None)
    async with asyncio.timeout(20):
        while len(room.servers.told) < 2:
            await room.look_at_all()
    assert room.servers.told[1:] == [("b:1", "a:1")]


async def test_an_operator_is_told_what_goes_wrong(room: Room) -> None:
    with pytest.raises(NothingToCheck):
        await room.resyncs.resync(1, None)
    await room.check(1, "b:1", 3, resync=False)
    await room.check(1, "c:1", 0)
    room.servers.of("b:1").down = True
    with pytest.raises(ServerFailed):
        await room.resyncs.resync(1, None)
    assert room.bench.ledger.state.differing["b:1"].stage == "differs"
    room.servers.of("c:1").down = True
    with pytest.raises(ServerFailed):
        await room.resyncs.resync(1, "c:1")
    assert "c:1" not in room.bench.ledger.state.differing
    room.servers.of("c:1").down = False
    assert await room.resyncs.resync(1, "c:1") == ["c:1"]
    assert room.servers.told == [("c:1", "a:1")]
    with pytest.raises(CheckRuns):
        await room.resyncs.resync(1, "c:1")


def test_what_is_known_is_of_replicas_only(room: Room) -> None:
    state = room.bench.ledger.state
    for gone in (Differs("a:1", 1, 3), Differs("b:2", 1, 3), Differs("b:1", 7, 3)):
        assert differing.marked(state, gone) is state
    known = differing.marked(state, Differs("b:1", 1, 3))
    assert differing.kept(state, replace(known, version=state.version + 1)).table.epoch == state.version + 1
