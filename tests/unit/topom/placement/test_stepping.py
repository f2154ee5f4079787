"""Steps of a placement while others change groups, servers leave, and servers of a group are dead."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.topom.placement.test_applying import Case
from topom.cluster import topology
from topom.cluster.placement_run import Step
from topom.cluster.state import ClusterState, Leaving, Promotion
from topom.leaving import nodes as leavingnodes
from topom.leaving import servers as leavingservers
from topom.placement import stepping
from topom.placement.changes import StepOvertaken
from topom.servers.detector import Condition

RETIRE = Step(1, 1, "retire", "b", "b:2")


async def leave(case: Case, kind: str, name: str) -> None:
    entry = Leaving(kind, name, "", 1.0)  # type: ignore[arg-type]
    await case.bench.ledger.change(lambda state, epoch: replace(state, leaving={**state.leaving, entry.key: entry}))


async def without(case: Case, *servers: str) -> None:
    for server in servers:
        await case.bench.edit(lambda table, epoch, server=server: topology.remove_server(table, epoch, 1, server))


async def test_a_step_of_a_group_whose_servers_were_removed_is_over() -> None:
    case = Case()
    await case.start({1: "a:1,b:2", 2: "c:3"}, "d:7")
    await case.begin(RETIRE, replace(RETIRE, server="a:1"))
    await without(case, "b:2", "a:1")
    await case.look()
    assert case.states() == {"b:2": "dropped", "a:1": "dropped"}
    await case.look(2)
    assert case.bench.ledger.state.placement.run is None


async def test_a_server_that_left_its_group_already_need_not_be_retired() -> None:
    case = Case()
    await case.start({1: "a:1,b:2", 2: "c:3"}, "d:7")
    await case.begin(RETIRE)
    await without(case, "b:2")
    await case.look()
    assert case.states() == {"b:2": "done"}


async def test_a_group_may_be_removed_while_it_is_asked_who_is_whole() -> None:
    case = Case()
    await case.start({1: "a:1,b:2", 2: "c:3"}, "d:7")
    await case.begin(RETIRE)
    case.conditions["b:2"] = Condition.FAILED
    looking = asyncio.create_task(case.look())
    await asyncio.sleep(0)
    await without(case, "b:2", "a:1")
    await case.bench.edit(lambda table, epoch: topology.remove_group(table, epoch, 1))
    await looking
    with pytest.raises(StepOvertaken, match="removed meanwhile"):
        await case.stepping._leave(RETIRE, ["b:2"])


async def test_a_former_master_leaves_though_another_server_of_its_group_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case()
    await case.start({1: "b:2,a:1,c:3"}, "d:7")
    case.servers.of("c:3").down = True
    case.servers.of("a:1").follows = None
    await case.bench.edit(lambda table, epoch: topology.promote(table, epoch, 1, "a:1"))

    def unfinished(state: ClusterState, epoch: int) -> ClusterState:
        return replace(state, promotions={1: Promotion("a:1", "b:2")})

    await case.bench.ledger.change(unfinished)
    await case.begin(replace(RETIRE, keep=1))
    case.conditions |= {"c:3": Condition.FAILED}
    await leave(case, "server", "b:2")
    # When: it still says that it is a master. Then: topom waits for it, but not for ever.
    await case.look()
    assert "b:2 does not follow a:1 yet" in str(dict(case.placements.reasons))
    assert case.states() == {"b:2": "waiting"}
    case.servers.of("b:2").follows = "a:1"
    await case.look()
    assert case.states() == {"b:2": "waiting"}, "its link is not up yet"
    assert "has no link to its master just now" in str(dict(case.placements.reasons))
    case.fill("b:2")
    await case.look()
    assert case.states() == {"b:2": "done"}
    assert case.groups()[1] == ["a:1", "c:3"]
    # Likewise.
    await case.bench.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "b:2"))
    case.servers.of("b:2").follows = None
    await case.look(2)
    await case.begin(replace(RETIRE, keep=1))
    monkeypatch.setattr(stepping, "PATIENCE_SECONDS", -1.0)
    await case.look()
    assert case.states() == {"b:2": "dropped"}


async def test_what_is_on_its_way_out_is_not_in_the_pool_afterwards() -> None:
    """An operator has said that it must go: if somebody starts it again, it may have data of its own."""
    case = Case()
    await case.start({1: "a:1,b:2,c:3"}, "d:7")
    await case.begin(replace(RETIRE, keep=2))
    await leave(case, "server", "b:2")
    case.conditions["b:2"] = Condition.FAILED
    await case.look()
    assert case.states() == {"b:2": "done"}
    assert case.groups()[1] == ["a:1", "c:3"]
    assert set(case.bench.ledger.state.pool) == {"d:7"}
    assert leavingservers.without_gone(case.bench.ledger.state).leaving == {}


async def test_a_copy_that_is_replaced_on_a_node_that_leaves_is_not_in_the_pool() -> None:
    case = Case()
    await case.start({1: "a:1,b:2"}, "d:7")
    await case.begin(Step(1, 1, "copy", "d", "d:7", instead_of=("b:2",)))
    await leave(case, "node", "b")
    await case.look()
    case.fill("d:7")
    await case.look()
    assert case.groups()[1] == ["a:1", "d:7"]
    assert case.bench.ledger.state.pool == {}
    assert leavingnodes.without_empty(case.bench.ledger.state).leaving == {}


@pytest.mark.parametrize(("kind", "name"), [("node", "d"), ("server", "d:7")])
@pytest.mark.parametrize("begun", [False, True])
async def test_nothing_is_copied_to_what_leaves(kind: str, name: str, begun: bool) -> None:
    case = Case()
    await case.start({1: "a:1", 2: "c:2"}, "d:7")
    await case.begin(Step(1, 1, "copy", "d", "d:7"), Step(1, 2, "copy", "e", "e:9"))
    if begun:
        await case.look()
    await leave(case, kind, name)
    await case.look()
    assert case.states()["d:7"] == "dropped"
    assert case.servers.told == ([("d:7", "a:1"), ("d:7", None)] if begun else [])


async def test_nobody_who_leaves_is_made_a_master() -> None:
    case = Case()
    await case.start({1: "a:1,b:2"}, "d:7")
    await case.begin(Step(1, 1, "promote", "b", "b:2"))
    await leave(case, "node", "b")
    await case.look()
    assert case.states() in ({"b:2": "dropped"}, {})
    assert case.groups()[1] == ["a:1", "b:2"]


@pytest.mark.parametrize("held_back", [True, False])
async def test_last_copy_what_may_hold_more_than_its_master_comes_to_the_pool_with_it(held_back: bool) -> None:
    """A former master that has what the new one lacks, say, because that was restarted with older data."""
    case = Case()
    await case.start({1: "a:1,b:2"}, "d:7")
    if held_back:
        case.servers.of("b:2").follows = None
        case.servers.of("b:2").stream = "of its own"
        case.servers.keys["b:2"] = 1_000_000
    await case.begin(Step(1, 1, "copy", "d", "d:7", instead_of=("b:2",)))
    await case.look()
    case.fill("d:7")
    await case.look()
    assert case.groups()[1] == ["a:1", "d:7"]
    entry = case.bench.ledger.state.pool["b:2"]
    assert (entry.wipe, entry.copy_of) == ((False, None) if held_back else (True, 1))


async def test_no_step_is_done_once_topom_is_paused() -> None:
    """An operator pauses it after the first promotion of a round."""
    case = Case()
    await case.start({1: "a:1,b:2", 2: "c:3,b:4"}, "d:7")
    promote = case._promote

    async def promote_and_pause(group_id: int, address: str) -> object:
        case.held = "paused"
        return await promote(group_id, address)

    case.stepping._promotions.promote = promote_and_pause  # type: ignore[method-assign]
    await case.begin(Step(1, 1, "promote", "b", "b:2"), Step(1, 2, "promote", "b", "b:4"))
    await case.look()
    assert case.groups() == {1: ["b:2", "a:1"], 2: ["c:3", "b:4"]}
    case.held = ""
    await case.look()
    assert case.groups()[2] == ["b:4", "c:3"]


@pytest.mark.parametrize("trouble", ["it does not answer", "it is being filled"])
async def test_a_server_that_cannot_be_judged_now_is_waited_for(trouble: str) -> None:
    """It would come to the pool without permission to wipe it, and nobody could take it."""
    case = Case()
    await case.start({1: "a:1,b:2"}, "d:7")
    await case.begin(Step(1, 1, "copy", "d", "d:7", instead_of=("b:2",)))
    await case.look()
    case.fill("d:7")
    server = case.servers.of("b:2")
    server.down, server.whole = trouble == "it does not answer", False
    await case.look()
    assert case.groups()[1] == ["a:1", "b:2"]
    assert "b:2" in str(dict(case.placements.reasons))
    server.down, server.whole = False, True
    await case.look()
    assert case.groups()[1] == ["a:1", "d:7"]
    entry = case.bench.ledger.state.pool["b:2"]
    assert (entry.wipe, entry.copy_of) == (True, 1)
