"""Servers that are filled, whoever has them filled: one at a time on a node, and none that nobody may wipe."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.topom.placement.test_applying import Case
from topom.cluster import topology
from topom.cluster.joins import with_new
from topom.cluster.placement_run import Step
from topom.copies import joining
from topom.copies.joining import Joins
from topom.placement import changes

COPY = Step(1, 1, "copy", "b", "b:7")


@pytest.fixture
async def case() -> Case:
    case = Case()
    await case.start({1: "a:1", 2: "c:2"}, "b:7")
    return case


async def join(case: Case, group_id: int, server: str) -> Joins:
    """A server that joins; what looks after it is looked at by hand."""

    def add(state: joining.ClusterState, epoch: int) -> joining.ClusterState:
        table = topology.add_server(state.table, epoch, group_id, server)
        return with_new(state, replace(state, table=table))

    await case.bench.ledger.change(add)
    return Joins(case.bench.ledger, case.servers, case.filling)


async def test_a_copy_waits_for_a_server_of_its_node_that_joins(case: Case) -> None:
    await case.begin(COPY)
    joins = await join(case, 2, "b:8")
    await joins._look()
    await case.look()
    assert case.servers.told == [("b:8", "c:2")]
    assert "b:8 is whole: one copy at a time" in str(dict(case.placements.reasons))
    case.fill("b:8")
    await joins._look()
    await case.look()
    assert case.servers.told == [("b:8", "c:2"), ("b:7", "a:1")]


async def test_a_server_that_joins_waits_for_a_copy_of_its_masters_node(case: Case) -> None:
    await case.begin(COPY)
    await case.look()
    joins = await join(case, 1, "d:8")
    await joins._look()
    assert case.servers.told == [("b:7", "a:1")]
    assert joins.reasons["d:8"].what.endswith("being filled: b:7")
    case.fill("b:7")
    await case.look()
    await joins._look()
    assert case.servers.told == [("b:7", "a:1"), ("d:8", "a:1")]


async def test_what_is_not_wanted_any_more_is_not_told(case: Case) -> None:
    await case.begin(COPY)
    joins = await join(case, 2, "d:8")
    async with case.bench.barrier.locking():
        looking = asyncio.gather(case.look(), joins._look())
        for _ in range(50):
            await asyncio.sleep(0)
        assert case.states() == {"b:7": "copying"}
        await case.bench.ledger.change(lambda state, epoch: changes.ended(state))
        await case.bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 2, "d:8"))
        await case.bench.edit(lambda table, epoch: topology.add_group(table, epoch, 5, ["d:8"]))
    await looking
    assert case.servers.told == []
    assert not case.bench.ledger.state.pool["b:7"].wipe


async def test_what_was_not_told_may_not_be_wiped(case: Case) -> None:
    await case.begin(COPY)
    case.servers.of("b:7").deaf = True
    await case.look()
    assert case.states() == {"b:7": "copying"}
    await case.placements.cancel()
    assert not case.bench.ledger.state.pool["b:7"].wipe, "nobody has said so, and it holds what it held"


async def test_it_is_asked_for_keys_again_before_it_is_told_again(case: Case) -> None:
    await case.begin(COPY)
    case.servers.of("b:7").deaf = True
    await case.look()
    case.servers.of("b:7").deaf = False
    case.servers.keys["b:7"] = 3
    await case.look()
    assert case.servers.told == []
    assert case.states() == {"b:7": "dropped"}


async def test_a_topom_that_died_after_it_told_has_it_noted_by_the_next(case: Case) -> None:
    await case.begin(COPY)
    case.servers.of("b:7").deaf = True
    await case.look()
    case.servers.of("b:7").deaf = False
    case.servers.of("b:7").follows = "a:1"
    await case.look()
    assert case.bench.ledger.state.pool["b:7"].wipe


async def test_keys_that_come_while_it_is_waited_for_the_lock_are_not_lost(case: Case) -> None:
    await case.begin(COPY)
    async with case.bench.barrier.locking():
        looking = asyncio.create_task(case.look())
        for _ in range(50):
            await asyncio.sleep(0)
        case.servers.keys["b:7"] = 3
    await looking
    assert case.servers.told == []
    assert case.states() == {"b:7": "dropped"}
