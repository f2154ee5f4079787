"""What is known against replicas is stored before it is shown, and outlives leaders; an order fills them anew."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slots.access import ServerAccess
from tests.unit.topom.placement.test_applying import Case
from topom.cluster import differing, records, topology
from topom.cluster.state import Differs
from topom.copies.digests import checks
from topom.copies.digests.checks import Check, Digests, Stage
from topom.copies.digests.errors import CheckRuns, NothingToCheck
from topom.copies.digests.sums import ABSENT, Difference, Looked
from topom.copies.digests.walk import Walk
from topom.store import STATE


class FoundDigests(Digests):
    """Checks that find what the test says, once the test lets them."""

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
    """A topom's checks, and its engine of copies: group 1 with replicas on nodes b and c, group 2 with one on b."""

    async def begin_leading(self) -> None:
        """The first topom, or the next one."""
        await self.start({1: "a:1,b:1,c:1", 2: "d:2,b:2"}, "p:9")
        ledger = self.bench.ledger
        if ledger.state.joining and not self.started:
            await ledger.change(lambda state, epoch: replace(state, joining={}))
        self.started = True
        self.digests = FoundDigests(ledger, ServerAccess(), lambda: 5.0)
        self.differing = self.digests.differing

    started = False

    async def check(self, group_id: int, server: str, wrong: int, uncompared: int = 0) -> Check:
        self.digests.wrong, self.digests.uncompared = wrong, uncompared
        (check,) = self.digests.start(group_id, server, 0)
        await until(lambda: group_id not in self.digests._tasks)
        return check

    async def fill_all(self) -> None:
        """Look until every server that can be told now was told."""
        for _ in range(3):
            await self.look_at_copies()

    def unread(self, group_id: int = 1) -> set[str]:
        return set(self.bench.ledger.table.groups[group_id].unread)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(checks, "STORE_SECONDS", 0.001)
    monkeypatch.setattr(checks, "SHOW_SECONDS", 0.001)
    room = Room()
    await room.begin_leading()
    return room


async def test_what_a_check_finds_is_stored_before_it_is_told_and_the_next_leader_knows_it(room: Room) -> None:
    room.store.fail_before = 3
    check = await room.check(1, "b:1", 20)
    assert check.stage is Stage.DIFFERENT
    stored = records.decode(await room.store.book(STATE).read())
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
    with pytest.raises(CheckRuns):
        await room.digests.resync(1, "b:1")
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


async def test_a_replica_is_filled_anew_when_an_operator_says_so(room: Room) -> None:
    await room.check(1, "b:1", 3)
    await room.fill_all()
    assert room.servers.told == [], "nobody has said that its keys may be lost"
    told = "it may be the master that lost something. If the master is, fill b:1 anew"
    assert told in (room.differing.problem("b:1") or "")
    assert await room.digests.resync(1, None) == ["b:1"]
    with pytest.raises(CheckRuns, match="filled anew"):
        room.digests.start(1, "b:1", 0)
    with pytest.raises(CheckRuns, match="filled already"):
        await room.digests.resync(1, "b:1")
    await room.fill_all()
    assert room.servers.told == [("b:1", "a:1")]
    assert "being filled anew" in (room.differing.problem("b:1") or "")
    assert room.unread() == {"b:1"}
    room.fill("b:1")
    await room.fill_all()
    assert room.differing.of("b:1") is None
    assert room.unread() == set()
    (event,) = [event for event in room.bench.ledger.state.events if event.what == "replica_resynced"]
    assert "b:1 was filled anew" in event.text
    assert room.servers.told == [("b:1", "a:1")]


async def test_a_replica_that_was_restarted_before_it_was_whole_is_told_again(room: Room) -> None:
    """run-id: it came up again with the data that it was told to forget, and goes on with its master from there."""
    await room.check(1, "b:1", 3)
    await room.digests.resync(1, "b:1")
    await room.fill_all()
    room.servers.restarts["b:1"] = 1
    room.fill("b:1")
    await room.look_at_copies()
    assert room.servers.told == [("b:1", "a:1")] * 2
    assert room.unread() == {"b:1"}
    room.fill("b:1")
    await room.fill_all()
    assert room.unread() == set()
    assert len(room.servers.told) == 2


async def test_one_replica_of_a_node_is_filled_anew_at_a_time_by_whoever_leads(room: Room) -> None:
    await room.check(1, "b:1", 3)
    await room.check(1, "c:1", 3)
    await room.check(2, "b:2", 3)
    for group in (1, 2):
        await room.digests.resync(group, None)
    await room.fill_all()
    assert room.servers.told == [("b:1", "a:1")]
    await room.begin_leading()
    await room.fill_all()
    assert room.servers.told == [("b:1", "a:1")], "it is just being filled, by the word of the leader before"
    room.fill("b:1")
    await room.fill_all()
    assert {server for server, _ in room.servers.told} == {"b:1", "b:2", "c:1"}
    room.fill("b:2", "c:1")
    await room.fill_all()
    assert room.differing.entries == []


async def test_what_only_the_replica_has_is_named(room: Room) -> None:
    """Its master may have lost the key."""
    room.digests.extra = 1
    await room.check(1, "b:1", 3)
    assert "1 is only at the replica, so it may be the master that lost them" in room.bench.ledger.state.events[-1].text


async def test_an_operator_is_told_what_cannot_be(room: Room) -> None:
    with pytest.raises(NothingToCheck):
        await room.digests.resync(1, None)
    with pytest.raises(NothingToCheck):
        await room.digests.resync(1, "c:1")
    await room.check(1, "c:1", 0)
    assert await room.digests.resync(1, "c:1") == ["c:1"]
    room.servers.of("c:1").down = True
    await room.fill_all()
    assert "no answer" in room.joins.reasons["c:1"].what
    room.servers.of("c:1").down = False
    await room.fill_all()
    assert room.servers.told == [("c:1", "a:1")]


def test_what_is_known_is_of_replicas_only(room: Room) -> None:
    state = room.bench.ledger.state
    for gone in (Differs("a:1", 1, 3), Differs("b:2", 1, 3), Differs("b:1", 7, 3)):
        assert differing.marked(state, gone) is state
    known = differing.marked(state, Differs("b:1", 1, 3))
    assert differing.kept(state, replace(known, version=state.version + 1)).table.epoch == state.version + 1
