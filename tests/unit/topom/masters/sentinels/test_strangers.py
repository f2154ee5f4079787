"""Sentinels forget servers that are not in their group any more, one Sentinel after the other."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slots.access import ServerAccess
from slots.replies import Info
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.cluster.state import Joining, PoolServer
from topom.masters.sentinels import monitoring
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.aliases import Aliases
from topom.masters.sentinels.errors import SentinelsRemember, SentinelWatches
from topom.masters.sentinels.link import SentinelLink
from topom.masters.sentinels.links import Links
from topom.masters.sentinels.strangers import Known, Strangers, next_to_forget, replicas_of
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.unwatched import Unwatched
from topom.masters.sentinels.watch import Watch
from topom.placement.pool import with_server
from topom.servers.readings import Reading, Replication
from topom.servers.redis_servers import RedisServers

M, A, B, S, T = (f"10.0.0.{number}:6379" for number in range(1, 6))
GROUP = 7


def known(replicas: str, others: int = 2) -> Known:
    return Known(frozenset(replicas), others)


@pytest.mark.parametrize(
    ("said", "patient", "expected"),
    [
        ({"s1": known("a"), "s2": known("a"), "s3": known("a")}, True, None),
        ({"s1": known("ax"), "s2": known("ax"), "s3": known("ax")}, True, "s1"),
        ({"s1": known("a"), "s2": known("ax"), "s3": known("ax")}, True, "s2"),
        # The first has just begun anew, and does not know all others or all replicas yet.
        ({"s1": known("a", 1), "s2": known("ax"), "s3": known("ax")}, True, None),
        ({"s1": known(""), "s2": known("ax"), "s3": known("ax")}, True, None),
        ({"s1": known(""), "s2": known("ax"), "s3": known("ax")}, False, "s2"),
        # Nothing is lost if a Sentinel begins anew that is not settled itself.
        ({"s1": known("x"), "s2": known("ax"), "s3": known("ax")}, True, "s1"),
        # Two do not answer.
        ({"s1": known("ax", 2)}, True, "s1"),
        ({}, True, None),
    ],
)
def test_one_after_the_other(said: dict[str, Known], patient: bool, expected: str | None) -> None:
    assert next_to_forget(said, "x", "a", patient) == expected


def test_the_replicas_that_a_master_lists() -> None:
    info = {
        "role": "master",
        "slave0": {"ip": "10.0.0.2", "port": 6379},
        "slave1": {"ip": "::1", "port": 1},
        "slaves": 2,
    }
    assert replicas_of(Info(info)) == {A, "[::1]:1"}


def following(master: str, link_up: bool = True) -> Reading:
    """What a replica of that server says."""
    host, _, port = master.rpartition(":")
    return Reading(Replication(False, "s", 5, (host, int(port)), link_up), "x", 0)


class FakeLink(SentinelLink):
    """A Sentinel in memory. It finds all replicas of a master and all other Sentinels when it begins with that."""

    def __init__(self, address: str, case: "Case") -> None:
        super().__init__(address, ServerAccess(), 1.0)
        self.case = case
        self.knows: dict[str, set[str]] = {}
        self._asked = True

    async def list_replicas(self, names: Sequence[str]) -> None:
        self.listed = {name: frozenset(self.knows[name]) for name in names if name in self.knows}

    async def masters(self) -> dict[str, dict[str, str]]:
        return {name: {"name": name, "num-other-sentinels": "2"} for name in self.knows}


class FakeLinks(dict[str, FakeLink]):
    """Links that count how often all Sentinels had to begin again."""

    begun_again = 0

    def begin_again(self) -> None:
        self.begun_again += 1


class Case:
    """A group of a master and two replicas, a server that is not in it, and three Sentinels that know all of them."""

    def __init__(self) -> None:
        self.links = {name: FakeLink(f"{name}:26379", self) for name in ("s1", "s2", "s3")}
        self.follow = {A, B, S}
        """What the master lists; None if it does not answer."""
        self.processes: dict[str, str] = {}
        """For each address, another address of the same server."""
        self.released: list[str] = []
        self.begun: list[str] = []
        self.masters = {GROUP: M}
        self.says = {server: following(M) for server in (A, B)}

    async def start(self, bench: Bench) -> None:
        self.bench = bench
        self.name = monitoring.name_of(bench.ledger.state.product.name, GROUP)
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, GROUP, (M, A, B)))
        for link in self.links.values():
            link.knows[self.name] = {A, B, S}
        self.aliases = Aliases(bench.ledger, cast(RedisServers, self), Resolver())
        self.strangers = Strangers(
            bench.ledger,
            cast(RedisServers, self),
            Resolver(),
            cast(Telling, self),
            cast(Watch, self),
            cast(Links, self.links),
            self._release,
            self.aliases,
        )

    async def read(self, address: str) -> Reading | None:
        """What a replica says of itself; None if it does not answer."""
        return self.says.get(address)

    async def guarded(self, address: str, work: Callable[[Any], Awaitable[None]]) -> None:
        self.asked = address
        await work(self)

    async def info(self, section: str) -> dict[str, object]:
        if section == "server":
            return {"run_id": self.processes.get(self.asked, self.asked)}
        assert self.asked == M
        found = (one.rpartition(":") for one in sorted(self.follow))
        listed = [{"ip": host, "port": int(port)} for host, _, port in found]
        return {"role": "master", **{f"slave{number}": one for number, one in enumerate(listed)}}

    async def begin_one_anew(self, link: SentinelLink, group_id: int) -> bool:
        assert group_id == GROUP
        self.begun.append(link.address)
        cast(FakeLink, link).knows[self.name] = set(self.follow)
        return True

    async def _release(self, servers: Collection[str]) -> None:
        self.released += servers
        self.follow -= set(servers)

    async def pool(self, address: str) -> None:
        await self.bench.ledger.change(lambda state, epoch: with_server(state, PoolServer(address)))


@pytest.fixture
async def case(bench: Callable[..., Awaitable[Bench]]) -> Case:
    case = Case()
    await case.start(await bench())
    return case


async def test_one_that_follows_is_not_forgotten_but_known(case: Case) -> None:
    assert not case.strangers.complete
    assert not await case.strangers.look_once()
    assert (case.strangers.following, case.strangers.complete) == ({S}, True)
    assert (case.begun, case.released) == ([], [])


async def test_one_of_the_group_that_is_reached_by_another_address_is_no_stranger(case: Case) -> None:
    case.processes[S] = A
    assert not await case.strangers.look_once()
    assert case.strangers.following == frozenset()


async def test_nobody_is_a_stranger_while_a_name_cannot_be_resolved(case: Case) -> None:
    await case.bench.edit(lambda table, epoch: topology.add_server(table, epoch, GROUP, "no-such-host.invalid:1"))
    assert not await case.strangers.look_once()
    assert case.strangers.following == frozenset()


async def test_one_that_follows_nobody_is_forgotten_by_all(case: Case) -> None:
    case.follow = {A, B}
    for _ in range(3):
        assert await case.strangers.look_once()
    assert not await case.strangers.look_once()
    assert case.begun == ["s1:26379", "s2:26379", "s3:26379"]
    assert case.strangers.following == frozenset()


async def test_one_of_the_pool_that_a_sentinel_has_taken_back_is_released(case: Case) -> None:
    await case.pool(S)
    assert await case.strangers.look_once()
    assert (case.released, case.begun) == ([S], [])
    for _ in range(3):
        await case.strangers.look_once()
    assert len(case.begun) == 3


async def test_what_is_not_known_now_stays_as_it_was(case: Case) -> None:
    await case.strangers.look_once()
    for link in case.links.values():
        link.lost(TimeoutError())
    case.follow = {A, B}

    async def silent(address: str, work: object) -> None:
        return None

    case.guarded = silent  # type: ignore[method-assign]
    assert not await case.strangers.look_once()
    assert case.strangers.following == {S}
    await case.bench.edit(lambda table, epoch: topology.add_group(table, epoch, 8, (T, "10.0.0.6:1")))
    case.masters[8] = T
    await case.strangers.look_once()
    assert not case.strangers.complete


async def test_a_server_is_taken_by_no_other_group_while_a_sentinel_counts_it_to_this_one(case: Case) -> None:
    await case.strangers.require_forgotten(S, GROUP)
    with pytest.raises(SentinelsRemember, match=f"counts {S} as a replica of group {GROUP}.*it forgets it soon"):
        await case.strangers.require_forgotten(S, 1)
    case.follow = {A, B}
    await case.strangers.look_once()
    await case.strangers.look_once()
    case.links["s3"].lost(TimeoutError())
    with pytest.raises(SentinelsRemember, match=r"s3.*does not answer: bring it back, or remove it"):
        await case.strangers.require_forgotten(S, 1)
    await case.strangers.require_forgotten(T, 1)


async def test_no_sentinel_forgets_a_group_for_a_promotion_that_a_silent_one_keeps_from_being_made(case: Case) -> None:
    told: list[str] = []

    async def forget(link: SentinelLink, group_id: int) -> None:
        told.append(link.address)
        if link.address == silent:
            raise ConnectionError("refused")

    telling = cast(Telling, SimpleNamespace(forget=forget))
    links = FakeLinks(case.links)
    watch = Watch(case.bench.ledger, [*case.links])
    unwatched = Unwatched(telling, watch, cast(Links, links))
    silent = ""
    async with unwatched.during(GROUP):
        assert watch.unwatched == {GROUP}
    assert (len(told), links.begun_again) == (3, 1)
    silent = case.links["s2"].address
    with pytest.raises(SentinelWatches, match=r"refused.*slotferry sentinel remove"):
        async with unwatched.during(GROUP):
            pytest.fail("it might undo the promotion")
    assert (watch.unwatched, links.begun_again) == (set(), 2)
    told.clear()
    case.links["s2"].lost(TimeoutError())
    with pytest.raises(SentinelWatches, match="no answer"):
        async with unwatched.during(GROUP):
            pytest.fail("it might undo the promotion")
    assert (told, links.begun_again) == ([], 2)


# -- replicas that their master lists otherwise ------------------------------------------------------------


async def test_a_replica_that_its_master_lists_otherwise_is_told(case: Case) -> None:
    """given an address translation between them."""
    case.follow = {A, T}
    await case.strangers.look_once()
    assert case.aliases.reason(A) is None
    found = case.aliases.reason(B)
    assert found is not None
    assert found.what.startswith(f"{B} is known to its master, and so to every Sentinel, by another address ({T})")
    assert "replica-announce-ip 10.0.0.3, CONFIG SET replica-announce-port 6379" in found.to_do
    # When: it announces its own address.
    case.follow = {A, B}
    await case.strangers.look_once()
    assert case.aliases.reason(B) is None


@pytest.mark.parametrize("says", [None, following(A), following(M, link_up=False)])
async def test_a_replica_that_its_master_need_not_list_is_not_told(case: Case, says: Reading | None) -> None:
    """given it is silent, follows another replica, or has no link."""
    case.says = {B: says} if says is not None else {}
    case.follow = {A, T}
    await case.strangers.look_once()
    assert case.aliases.reason(B) is None


async def test_a_replica_that_is_missing_where_no_other_address_is_listed_is_not_told(case: Case) -> None:
    """given the master has not noted it yet."""
    case.follow = {A}
    await case.strangers.look_once()
    assert case.aliases.reason(B) is None


async def test_one_that_joins_or_has_left_is_not_told(case: Case) -> None:
    case.follow = {A, T}
    await case.strangers.look_once()
    assert case.aliases.reason(B) is not None
    await case.bench.ledger.change(lambda state, epoch: replace(state, joining={B: Joining(B)}))
    await case.strangers.look_once()
    assert case.aliases.reason(B) is None
    await case.bench.ledger.change(lambda state, epoch: replace(state, joining={}))
    await case.strangers.look_once()
    assert case.aliases.reason(B) is not None
    await case.bench.edit(lambda table, epoch: topology.remove_server(table, epoch, GROUP, B))
    await case.strangers.look_once()
    assert case.aliases.reason(B) is None
