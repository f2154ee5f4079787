"""Which server is at an address: one server by two names, one that took another's place, and when that is known."""

from dataclasses import replace

import pytest

from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.cluster.state import ClusterState, PoolServer
from topom.errors import ServerInUse
from topom.servers.detector import Condition
from topom.servers.identities import Identities, NotCompared, ReplicaOfAnother, SameServer, with_run_ids
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.replication import ServerReplication

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


class Addresses(ServerReplication):
    """Which process answers where: a name is an address at which a process answers."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is asked of any server
        self.at: dict[str, Reading] = {}
        self.asked: list[str] = []

    async def look(self, address: str) -> Replication:
        return (await self.read(address)).replication

    async def read(self, address: str) -> Reading:
        self.asked.append(address)
        if address not in self.at:
            raise ServerFailed(f"{address} does not answer")
        return self.at[address]


def master(run_id: str, stream: str = "s") -> Reading:
    return Reading(Replication(True, stream, 9), run_id, 0)


class Case:
    """Group 1 with server a:1, group 2 with b:1, and c:1 in the pool."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.servers = Addresses()
        self.conditions: dict[str, Condition] = {}
        self.identities = Identities(
            self.bench.ledger, self.servers, lambda server: self.conditions.get(server, Condition.ALIVE)
        )

    async def start(self) -> "Case":
        await self.bench.start()
        self.identities.start()
        for group, server, run_id in ((1, "a:1", ONE), (2, "b:1", TWO)):
            self.servers.at[server] = master(run_id, f"stream of {server}")
            await self.bench.edit(
                lambda table, epoch, group=group, server=server: topology.add_group(table, epoch, group, [server])  # type: ignore[misc]
            )
        await self.bench.ledger.change(lambda state, epoch: replace(state, pool={"c:1": PoolServer("c:1")}))
        return self

    def all_heard(self) -> None:
        """Every known server that answers says its run id."""
        for server, said in self.servers.at.items():
            self.identities.heard(server, said.run_id)


@pytest.fixture
async def case() -> Case:
    return await Case().start()


async def test_one_server_by_two_names_is_refused_at_the_door(case: Case) -> None:
    for alias in ("a.example:1", "c.example:1"):
        case.servers.at[alias] = case.servers.at["a:1"]
    with pytest.raises(SameServer, match=r"a\.example:1 is the same server as a:1, .* in group 1"):
        await case.identities.admit(["a.example:1"], ["a.example:1"], 2, wipe=True)
    # When: the server that topom has does not answer any more, and was seen before.
    case.all_heard()
    del case.servers.at["a:1"]
    with pytest.raises(ServerInUse, match="the same server as a:1"):
        await case.identities.admit(["a.example:1"], [], 3, wipe=False)
    # When: both names are new.
    case.servers.at |= {name: master(THREE) for name in ("n:1", "n.example:1")}
    with pytest.raises(SameServer, match=r"n\.example:1 and n:1 are the same server|n:1 and n\.example:1 are"):
        await case.identities.admit(["n:1", "n.example:1"], ["n.example:1"], 3, wipe=True)
    # Then: a server that does not answer comes in, and so does another server.
    assert await case.identities.admit(["x:1"], ["x:1"], 1, wipe=False) == {}
    assert await case.identities.admit(["n:1"], ["n:1"], 1, wipe=False) == {"n:1": THREE}


async def test_only_those_are_asked_that_the_new_one_may_be(case: Case) -> None:
    case.servers.at |= {"c:1": master(THREE), "n:1": master("4" * 40), "a.example:1": master(ONE)}
    case.all_heard()
    assert await case.identities.admit(["n:1"], [], 3, wipe=False) == {"n:1": "4" * 40}
    assert case.servers.asked == ["n:1"]
    case.servers.asked.clear()
    with pytest.raises(SameServer):
        await case.identities.admit(["a.example:1"], [], 3, wipe=False)
    assert case.servers.asked == ["a.example:1", "a:1"]
    # When: a:1 is another process by now. Then: its former name is no reason to refuse a server.
    case.servers.at["a:1"] = master("5" * 40)
    assert await case.identities.admit(["a.example:1"], [], 3, wipe=False) == {"a.example:1": ONE}
    # When: a replica comes, it is looked at whose.
    case.servers.asked.clear()
    case.servers.at["n:2"] = replace(
        master("6" * 40), replication=Replication(False, "stream of b:1", 9, ("elsewhere", 5), link_up=True)
    )
    with pytest.raises(ReplicaOfAnother):
        await case.identities.admit(["n:2"], [], 3, wipe=False)
    assert case.servers.asked == ["n:2", "a:1", "b:1"]


async def test_run_id_a_server_that_was_restarted_behind_topom_is_noticed_before_anything_is_done(case: Case) -> None:
    case.servers.at["c:1"] = master(THREE)
    case.all_heard()
    again = master("7" * 40)
    case.servers.at |= {"a:1": again, "a.example:1": again}
    run_ids = await case.identities.admit(["a.example:1"], [], 3, wipe=False)

    def come_in(state: ClusterState, epoch: int) -> ClusterState:
        table = topology.add_group(state.table, epoch, 3, ["a.example:1"])
        return with_run_ids(replace(state, table=table), run_ids)

    await case.bench.ledger.change(come_in)
    with pytest.raises(NotCompared, match=r"a\.example:1 is being compared"):
        case.identities.require("a.example:1")
    case.all_heard()
    with pytest.raises(SameServer):
        case.identities.require("a.example:1")


async def test_two_requests_at_once_do_not_bring_in_one_server_twice(case: Case) -> None:
    first = {"n:1": THREE}

    def add_first(state, epoch):  # type: ignore[no-untyped-def]
        case.identities.require_new(state, first)
        table = topology.add_server(state.table, epoch, 1, "n:1")
        return with_run_ids(replace(state, table=table), first)

    await case.bench.ledger.change(add_first)
    with pytest.raises(SameServer, match=r"n\.example:1 is the same server as n:1"):
        await case.bench.ledger.change(
            lambda state, epoch: (case.identities.require_new(state, {"n.example:1": THREE}), state)[1]
        )


async def test_a_replica_of_one_group_is_not_taken_for_one_of_another(case: Case) -> None:
    copy = Replication(False, "stream of a:1", 9, ("elsewhere", 5), link_up=True)
    new = replace(copy, stream="?", following=("a", 1), link_up=False, filling=True)
    for said in (copy, new):
        case.servers.at["r:1"] = Reading(said, THREE, 5)
        with pytest.raises(ReplicaOfAnother, match=r"r:1 is a replica of a:1, the master of group 1.*--wipe"):
            await case.identities.admit(["r:1"], ["r:1"], 2, wipe=False)
        with pytest.raises(ReplicaOfAnother):
            await case.identities.admit(["r:1"], [], 3, wipe=True)
        assert await case.identities.admit(["r:1"], ["r:1"], 1, wipe=False) == {"r:1": THREE}
        assert await case.identities.admit(["r:1"], ["r:1"], 2, wipe=True) == {"r:1": THREE}
        # When: it was brought in while it did not answer, and has to be filled.
        with pytest.raises(ReplicaOfAnother, match="group 1"):
            await case.identities.require_no_copy(2, "r:1", As.NEW)
        await case.identities.require_no_copy(1, "r:1", As.NEW)
        await case.identities.require_no_copy(2, "r:1", As.SPARE)


async def test_an_address_that_leads_to_another_known_server_is_in_conflict(case: Case) -> None:
    case.servers.at["c:1"] = master(THREE)
    case.all_heard()
    case.all_heard()
    case.identities.require("a:1", "b:1", "c:1")
    # When: what was c:1 is a:1 now.
    case.identities.heard("c:1", ONE)
    for address in ("a:1", "c:1"):
        with pytest.raises(SameServer, match=r"c:1 in the pool"):
            case.identities.require(address)
    case.identities.require("b:1")
    # When: it is a server of its own again, which was just started.
    case.identities.heard("c:1", "4" * 40)
    assert case.identities.conflict("a:1") is None
    # When: the surplus name is removed.
    case.identities.heard("c:1", ONE)
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool={}))
    assert case.identities.conflict("a:1") is None


async def test_nothing_is_done_to_a_server_before_it_was_compared(case: Case) -> None:
    """given the other one may have been restarted at the same time, and may be the same server."""
    with pytest.raises(NotCompared):
        case.identities.require("a:1")
    case.servers.at["c:1"] = master(THREE)
    case.all_heard()
    case.identities.heard("a:1", "4" * 40)
    with pytest.raises(NotCompared, match="a:1 is being compared"):
        case.identities.require("a:1")
    # Then: topom waits only for servers that answer.
    case.conditions["c:1"] = Condition.FAILED
    with pytest.raises(NotCompared, match="b:1"):
        case.identities.require("a:1")
    case.identities.heard("b:1", TWO)
    case.identities.require("a:1")
    case.identities.heard("b:1", "4" * 40)
    with pytest.raises(SameServer):
        case.identities.require("a:1")


async def test_who_was_seen_last_is_stored_for_whoever_leads_next(case: Case) -> None:
    case.all_heard()
    await case.identities._store()
    assert case.bench.ledger.state.run_ids == {"a:1": ONE, "b:1": TWO}
    version = case.bench.ledger.state.version
    await case.identities._store()
    assert case.bench.ledger.state.version == version, "nothing is written that is stored already"
    next_one = Identities(case.bench.ledger, case.servers, lambda server: Condition.SUSPECTED)
    del case.servers.at["a:1"]
    case.servers.at["a.example:1"] = master(ONE)
    with pytest.raises(SameServer):
        await next_one.admit(["a.example:1"], [], 3, wipe=False)
    # When: the server leaves. Then: its name is free.
    await case.bench.edit(lambda table, epoch: topology.remove_group(table, epoch, 1))
    assert case.bench.ledger.state.run_ids == {"b:1": TWO}
    assert await next_one.admit(["a.example:1"], [], 3, wipe=False) == {"a.example:1": ONE}


async def test_a_conflict_is_told_once(case: Case) -> None:
    case.all_heard()
    case.identities.heard("b:1", ONE)
    for _ in range(2):
        case.identities._tell()
    await case.bench.ledger.change(lambda state, epoch: replace(state))
    told = [event for event in case.bench.ledger.state.events if event.what == "server_twice"]
    assert len(told) == 1
    assert "a:1 in group 1 and b:1 in group 2 are one server" in told[0].text
