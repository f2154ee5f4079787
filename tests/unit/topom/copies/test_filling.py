"""The engine of all copies: one at a time on a node, no matter who asks, and nothing is wiped without permission."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.topom.placement.test_applying import Case
from topom.cluster import topology
from topom.cluster.joins import with_new
from topom.cluster.placement_run import Step
from topom.cluster.state import ClusterState
from topom.placement import changes
from topom.servers.detector import Condition
from topom.servers.readings import Reading

COPY = Step(1, 1, "copy", "b", "b:7")


@pytest.fixture
async def case() -> Case:
    case = Case()
    await case.start({1: "a:1", 2: "c:2"}, "b:7")
    return case


async def join(case: Case, group_id: int, server: str) -> None:
    """Have a server join a group."""

    def add(state: ClusterState, epoch: int) -> ClusterState:
        table = topology.add_server(state.table, epoch, group_id, server)
        return with_new(state, replace(state, table=table))

    await case.bench.ledger.change(add)


async def begin_looking(case: Case) -> None:
    """Let the engine begin what it can, and go no further."""
    looking = asyncio.create_task(case.filling.look())
    for _ in range(50):
        await asyncio.sleep(0)
    assert looking.done()


async def test_a_copy_waits_for_a_server_of_its_node_that_joins(case: Case) -> None:
    await case.begin(COPY)
    await join(case, 2, "b:8")
    await case.look()
    assert case.servers.told == [("b:8", "c:2")]
    assert "b:8 is whole: a node gives or takes one copy at a time" in str(dict(case.placements.reasons))
    case.fill("b:8")
    await case.look()
    assert case.servers.told == [("b:8", "c:2"), ("b:7", "a:1")]


async def test_a_server_that_joins_waits_for_a_copy_of_its_masters_node(case: Case) -> None:
    await case.begin(COPY)
    await case.look()
    await join(case, 1, "d:8")
    await case.look_at_copies()
    assert case.servers.told == [("b:7", "a:1")]
    assert "waits until b:7 is whole" in case.joins.reasons["d:8"].what
    case.fill("b:7")
    await case.look(2)
    assert case.servers.told == [("b:7", "a:1"), ("d:8", "a:1")]


async def test_what_is_not_wanted_any_more_is_not_told(case: Case) -> None:
    await case.begin(COPY)
    await join(case, 2, "d:8")
    async with case.bench.barrier.locking():
        await case.filling.look()
        await case.placements._look()
        await begin_looking(case)
        assert case.states() == {"b:7": "copying"}
        assert case.filling._begun.keys() == {"b:7", "d:8"}
        await case.bench.ledger.change(lambda state, epoch: changes.ended(state))
        await case.bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 2, "d:8"))
        await case.bench.edit(lambda table, epoch: topology.add_group(table, epoch, 5, ["d:8"]))
    await case.look_at_copies()
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
        await case.filling.look()
        await case.placements._look()
        await begin_looking(case)
        case.servers.keys["b:7"] = 3
    await case.look()
    assert case.servers.told == []
    assert case.states() == {"b:7": "dropped"}


async def test_no_copy_begins_before_all_servers_were_asked(case: Case) -> None:
    await case.begin(COPY)
    await join(case, 1, "d:8")
    case.servers.of("d:8").follows = "a:1"
    # As if an earlier topom had begun to fill d:8.
    await case.placements._look()
    assert case.states() == {"b:7": "waiting"}
    await case.look()
    assert case.servers.told == []
    assert "waits until d:8 is whole" in str(dict(case.placements.reasons))
    case.fill("d:8")
    await case.look()
    assert case.servers.told == [("b:7", "a:1")]


async def test_what_was_said_before_a_server_was_told_does_not_count(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(case, 2, "d:8")
    async with case.bench.barrier.locking():
        await begin_looking(case)
        assert case.filling._begun.keys() == {"d:8"}
        go_on, read = asyncio.Event(), case.servers.read

        async def read_late(address: str) -> Reading:
            said = await read(address)
            await go_on.wait()
            return said

        with monkeypatch.context() as patch:
            patch.setattr(case.servers, "read", read_late)
            looking = asyncio.create_task(case.filling.look())
            for _ in range(10):
                await asyncio.sleep(0)
    await asyncio.gather(*case.filling._tasks.values())
    go_on.set()
    await looking
    await asyncio.gather(*case.filling._tasks.values())
    assert case.servers.told == [("d:8", "c:2")]


async def test_copies_that_come_to_share_a_node_do_not_wait_for_each_other() -> None:
    case = Case()
    await case.start({1: "a:1", 2: "c:2,a:2"}, "b:7,d:7")
    await case.begin(COPY, Step(1, 2, "copy", "d", "d:7"))
    async with case.bench.barrier.locking():
        await case.filling.look()
        await case.placements._look()
        assert case.states() == {"b:7": "copying", "d:7": "copying"}
        await case._promote(2, "a:2")
    await case.look()
    assert sorted(case.servers.told) == [("b:7", "a:1"), ("d:7", "a:2")]


async def test_bounded_a_server_that_has_failed_is_not_asked(case: Case) -> None:
    """Each question to it would take the whole time limit, and one of the places of which all have few."""
    await join(case, 1, "b:8")
    case.conditions["b:8"] = Condition.FAILED
    asked: list[str] = []
    read = case.servers.read

    async def note(address: str) -> Reading:
        asked.append(address)
        return await read(address)

    case.servers.read = note  # type: ignore[method-assign]
    await case.look_at_copies()
    assert asked == ["a:1"]
    assert "does not answer" in str(case.joins.reasons["b:8"])
    case.conditions["b:8"] = Condition.ALIVE
    await case.look_at_copies()
    assert case.servers.told == [("b:8", "a:1")]
