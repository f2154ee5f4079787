"""Servers that join a group: which are told to follow, when they count as whole, and what they may not be before."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, Case, FakeServer, FakeServers, hurry
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster import fences, topology
from topom.cluster.joins import with_new, without
from topom.cluster.state import ClusterState, Fenced, Joining, Marked
from topom.copies import deciding, filling, joining
from topom.copies.joining import Joins, Seen
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import As
from topom.servers.readings import Replication
from topom.servers.redis_servers import Fencing

__all__ = ["hurry"]

NEW, OTHER = "n:1", "n:2"


def state(*servers: str) -> ClusterState:
    return ClusterState(2, "w", PRODUCT, SlotTable.empty(16).changed(1, groups=[Group(1, servers), Group(2, ("o:1",))]))


def test_who_joins() -> None:
    old = state("m:1", "r:1")
    new = replace(old, table=topology.add_server(old.table, 3, 1, NEW))
    assert with_new(old, new, wipe=True).joining == {NEW: Joining(NEW, True)}
    assert with_new(old, old) is old
    # A server that was in the group before does not join, and neither does the first server of a group.
    promoted = replace(old, table=topology.promote(old.table, 3, 1, "r:1"))
    assert with_new(old, promoted) is promoted
    first = replace(old, table=topology.add_group(old.table, 3, 3, ["a:1", "a:2"]))
    assert with_new(old, first).joining == {"a:2": Joining("a:2")}


def test_who_joins_no_more() -> None:
    joined = replace(state("m:1", NEW, OTHER), joining={server: Joining(server) for server in (NEW, OTHER)})
    assert without(joined, set()) is joined
    assert without(joined, {NEW}).joining.keys() == {OTHER}
    gone = replace(joined, table=topology.remove_server(joined.table, 3, 1, NEW))
    assert without(gone, set()).joining.keys() == {OTHER}
    master = replace(joined, table=topology.promote(joined.table, 3, 1, NEW))
    assert without(master, set()).joining.keys() == {OTHER}


def test_who_was_seen_whole_is_so_only_as_what_it_was_seen() -> None:
    entry = Joining(NEW)
    joined = replace(state("m:1", "r:1", NEW), joining={NEW: entry})
    seen = {NEW: Seen(1, "m:1", entry)}
    assert joining.without_whole(joined, seen).joining == {}
    # Meanwhile its group got another master, or it came to another group, or it was added again.
    other = replace(joined, table=topology.promote(joined.table, 3, 1, "r:1"))
    assert joining.without_whole(other, seen) is other
    gone = topology.remove_server(joined.table, 3, 1, NEW)
    moved = replace(joined, table=topology.add_server(gone, 4, 2, NEW))
    assert joining.without_whole(moved, seen) is moved
    again = replace(joined, joining={NEW: Joining(NEW)})
    assert joining.without_whole(again, seen) is again


def test_what_is_filled_keeps_nobody_off() -> None:
    marked = {"m:1": Marked("process", 1), NEW: Marked("process", 1)}
    before = replace(state("m:1", NEW), fenced={"a": Fenced("a", 1, 1), "b": Fenced("b", 2, 2)}, marked=marked)
    after = fences.emptied(before, NEW)
    assert [fences.cut_off(after, one) for one in after.fenced.values()] == [{"m:1"}, set()]
    assert fences.emptied(before, OTHER) is before


# -- by itself ---------------------------------------------------------------------------------------------


class Streams(FakeServers):
    """Servers: each master has a stream of its own, and a replica has that stream once it was filled."""

    def __init__(self) -> None:
        super().__init__()
        self.all[NEW] = FakeServer()
        self.all[OTHER] = FakeServer()
        self.filling: set[str] = set()
        self.unfilled: set[str] = set()
        """Replicas that hold another master's data, or nothing."""
        self.most_at_once = 0

    async def look(self, address: str) -> Replication:
        said = await super().look(address)
        follows = self.all[address].follows
        if follows is None:
            return replace(said, stream=address)
        whole = address not in self.filling | self.unfilled
        return replace(
            said,
            stream=follows if whole else f"old of {address}",
            link_up=said.link_up and whole,
            filling=address in self.filling,
        )

    async def follow(
        self, address: str, master: str, told_as: As, sure: str = "", anew: bool = False, decided: str = ""
    ) -> str:
        run_id = await super().follow(address, master, told_as, sure, anew, decided)
        self.unfilled.discard(address)
        self.filling.add(address)
        self.most_at_once = max(self.most_at_once, len(self.filling))
        return run_id


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that wait are looked at again soon."""
    monkeypatch.setattr(deciding, "FOREIGN_SECONDS", 0.05)
    monkeypatch.setattr(filling, "FILLING_SECONDS", 0.05)


class Joined(Case):
    """A group of three, to which others are added."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: Streams = Streams()
        self.paused: Reason | None = None

    async def add(self, *servers: str, wipe: bool = False) -> None:
        def add(state: ClusterState, epoch: int) -> ClusterState:
            table = state.table
            for server in servers:
                table = topology.add_server(table, epoch, 1, server)
            return with_new(state, replace(state, table=table), wipe)

        await self.bench.ledger.change(add)

    @property
    def waiting(self) -> set[str]:
        return set(self.bench.ledger.state.joining)


@asynccontextmanager
async def joins(case: Joined) -> AsyncIterator[Joins]:
    """A topom that makes servers whole."""
    async with case.topom() as bench:
        one = Joins(bench.ledger, case.servers, lambda: case.paused)
        case.filling.serve(one)
        case.filling.wake()
        yield one


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


@pytest.fixture
async def case() -> Joined:
    return Joined()


async def test_an_empty_server_is_filled_and_then_whole(case: Joined) -> None:
    async with joins(case) as one:
        await case.add(NEW)
        await until(lambda: "is being filled by m:1" in str(one.reasons.get(NEW)))
        assert case.servers.all[NEW].follows == MASTER
        assert case.waiting == {NEW}
        case.servers.filling.clear()
        await until(lambda: not case.waiting)
        assert case.bench.ledger.state.events[-1].what == "server_whole"


async def test_the_next_topom_goes_on(case: Joined) -> None:
    async with joins(case):
        await case.add(NEW)
        await until(lambda: NEW in case.servers.filling)
    async with joins(case):
        assert case.waiting == {NEW}
        case.servers.filling.clear()
        await until(lambda: not case.waiting)


async def test_a_copy_already_is_left_as_it_is(case: Joined) -> None:
    case.servers.all[NEW].follows = MASTER
    async with joins(case):
        await case.add(NEW)
        await until(lambda: not case.waiting)
        assert case.servers.most_at_once == 0


async def test_a_replica_of_somebody_else_is_told_after_a_while(case: Joined) -> None:
    case.servers.all[NEW].follows = OTHER
    async with joins(case) as one:
        # When: it is being filled, and the server that it follows may be the master by another name.
        case.servers.filling.add(NEW)
        await case.add(NEW)
        await until(lambda: "filled" in str(one.reasons.get(NEW)))
        await asyncio.sleep(3 * deciding.FOREIGN_SECONDS)
        assert case.servers.all[NEW].follows == OTHER
        # When: it is whole, but with another master's data.
        case.servers.filling.clear()
        await until(lambda: case.servers.all[NEW].follows == MASTER)
        case.servers.filling.clear()
        await until(lambda: not case.waiting)


async def test_keys_are_lost_only_by_an_operators_word(case: Joined) -> None:
    case.servers.keys[NEW] = 5
    async with joins(case) as one:
        await case.add(NEW)
        await until(lambda: "5 keys, which becoming a replica would delete; empty it" in str(one.reasons.get(NEW)))
        await case.bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, NEW))
        await until(lambda: not case.waiting)
        assert case.servers.all[NEW].follows is None
        await case.add(NEW, wipe=True)
        await until(lambda: case.servers.all[NEW].follows == MASTER)


async def test_a_replica_without_a_link_may_be_the_only_copy(case: Joined) -> None:
    case.servers.keys[NEW] = 5
    case.servers.all[NEW].follows = OTHER
    case.servers.all[OTHER].down = True
    async with joins(case) as one:
        await case.add(NEW)
        await until(lambda: "5 keys, which becoming a replica would delete; empty it" in str(one.reasons.get(NEW)))
        assert case.servers.all[NEW].follows == OTHER
        case.servers.all[OTHER].down = False
        await until(lambda: case.servers.all[NEW].follows == MASTER)


async def test_it_is_asked_for_keys_again_right_before_it_is_told(case: Joined) -> None:
    async with joins(case) as one:
        async with case.bench.barrier.locking():
            await case.add(NEW)
            await until(lambda: case.filling._begun.keys() == {NEW})
            await asyncio.sleep(0.02)
            case.servers.keys[NEW] = 5
        await until(lambda: "5 keys, which becoming a replica would delete; empty it" in str(one.reasons.get(NEW)))
        assert case.servers.all[NEW].follows is None


async def test_nobody_is_told_while_a_proxy_may_take_it_for_another_groups(case: Joined) -> None:
    async with joins(case):
        case.proxy.answer = lambda table: None
        await case.add(NEW)
        await until(lambda: case.filling._begun.keys() == {NEW})
        await asyncio.sleep(0.05)
        assert case.servers.all[NEW].follows is None
        case.proxy.answer = lambda table: True
        case.proxy.wake()
        await until(lambda: case.servers.all[NEW].follows == MASTER)


async def test_whoever_became_whole_keeps_its_master(case: Joined) -> None:
    async with joins(case):
        await case.add(NEW)
        await until(lambda: NEW in case.servers.filling)
    # When: another topom, which has told it nothing, finds it whole.
    async with joins(case):
        case.servers.filling.clear()
        await until(lambda: not case.waiting)
        assert case.servers.kept == [NEW]


async def test_one_server_of_a_node_is_filled_at_a_time(case: Joined) -> None:
    async with joins(case) as one:
        await case.add(NEW, OTHER)
        await until(lambda: "one copy at a time" in str(one.reasons.get(OTHER)))
        await until(lambda: case.servers.filling == {NEW})
        case.servers.filling.clear()
        await until(lambda: case.servers.filling == {OTHER})
        case.servers.filling.clear()
        await until(lambda: not case.waiting)
        assert case.servers.most_at_once == 1


async def test_who_does_not_answer_is_filled_once_it_does(case: Joined) -> None:
    case.servers.all[NEW].down = True
    async with joins(case) as one:
        await case.add(NEW)
        await until(lambda: "no answer" in str(one.reasons.get(NEW)))
        case.servers.all[NEW].down = False
        await until(lambda: NEW in case.servers.filling)


async def test_nobody_is_told_while_its_group_is_given_another_master(case: Joined) -> None:
    case.hang_at = "lock acknowledged"
    async with joins(case) as one:
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        await case.add(NEW)
        await until(lambda: NEW not in one.reasons and NEW in case.waiting)
        await asyncio.sleep(0.05)
        assert case.servers.all[NEW].follows is None
        promoting.cancel()
    case.hang_at = ""
    async with joins(case):
        await until(lambda: case.servers.all[NEW].follows == case.bench.ledger.table.master_of(1))
    assert SECOND in case.bench.ledger.table.groups[1].servers


async def test_nobody_is_told_while_it_is_not_decided_who_is_the_master(case: Joined) -> None:
    async with joins(case) as one:
        await case.bench.edit(lambda table, epoch: topology.lock_group(table, epoch, 1))
        await case.add(NEW)
        await until(lambda: "its group was changed just now" in str(one.reasons.get(NEW)))
        assert case.servers.all[NEW].follows is None
        await case.bench.edit(lambda table, epoch: topology.unlock_group(table, epoch, 1))
        await until(lambda: case.servers.all[NEW].follows == MASTER)


async def test_fences_that_are_put_up_while_a_server_is_told_do_not_count(case: Joined) -> None:
    """given the marks are among what the master's copy replaces."""
    async with joins(case):
        bench = case.bench
        follow, fence = case.servers.follow, bench.fencer.fence
        late, told = asyncio.Event(), asyncio.Event()

        def up() -> bool:
            return not fences.lacking(bench.ledger.state, NEW)

        async def fenced_late(wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
            outcome = await fence(wanted)
            late.set()
            await told.wait()
            return outcome

        async def follow_amid_fences(
            address: str, master: str, told_as: As, sure: str, anew: bool, decided: str
        ) -> str:
            bench.fencer.fence = fenced_late  # type: ignore[method-assign]
            late_fences.append(asyncio.create_task(bench.barrier.fence_removed([NEW])))
            await late.wait()
            bench.fencer.fence = fence  # type: ignore[method-assign]
            assert await bench.barrier.fence_removed([NEW]) == {}
            assert up()
            return await follow(address, master, told_as, anew=anew)

        late_fences: list[asyncio.Task[dict[str, str]]] = []
        await bench.members.fence([case.proxy.member.record.id], "removed", "it is gone", only_lost=False)  # type: ignore[union-attr]
        case.servers.follow = follow_amid_fences  # type: ignore[method-assign]
        await case.add(NEW)
        await until(lambda: NEW in case.servers.filling and not up())
        case.servers.follow = follow  # type: ignore[method-assign]
        told.set()
        assert "told to follow" in str(await late_fences[0])
        assert not up()
        # When: it was told before. Then: a fence counts.
        assert await bench.barrier.fence_removed([NEW]) == {}
        assert up()


async def test_nobody_is_filled_while_topom_is_paused(case: Joined) -> None:
    case.paused = Reason(Kind.PAUSED, "switches are changed")
    async with joins(case):
        await case.add(NEW)
        await asyncio.sleep(0.1)
        assert (case.waiting, case.servers.all[NEW].follows) == ({NEW}, None)
        case.paused = None
        await until(lambda: case.servers.all[NEW].follows == MASTER)
        # When: it is paused again. Then: that the server is whole is noted all the same.
        case.paused = Reason(Kind.PAUSED, "switches are changed")
        case.servers.filling.clear()
        await until(lambda: not case.waiting)
