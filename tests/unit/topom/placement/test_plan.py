"""Placement applied to servers: the picture, the steps of a plan, and how they change what is stored."""

import random
from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom import errors
from topom.cluster.placement_run import Kept, Run, Step
from topom.cluster.state import ClusterState, Fenced, Leaving, Marked, PoolServer
from topom.placement import changes
from topom.placement.picture import LEAVES, SILENT, ConditionOf, Picture, draw
from topom.placement.plan import Planned, plan
from topom.placement.planner import Copies, Node, Rules
from topom.reasons import Kind, Reason
from topom.servers.detector import Condition
from topom.servers.readings import Replication
from topom.servers.whole import copy_refused

TWO = Rules(2)


def state_of(groups: dict[int, str], pool: str = "", **options: object) -> ClusterState:
    """Groups of servers named ``node:port``, written with commas between them; the pool is written likewise."""
    made = {
        number: Group(number, tuple(f"{one}{number}" for one in servers.split(",") if one))
        for number, servers in groups.items()
    }
    entries = {address: PoolServer(address) for address in pool.split(",") if address}
    table = SlotTable(5, tuple(Slot(i, 1) for i in range(16)), made)
    return replace(ClusterState(7, "w" * 32, PRODUCT, table, pool=entries), **options)  # type: ignore[arg-type]


def failed(*servers: str) -> ConditionOf:
    return lambda server: Condition.FAILED if server in servers else Condition.ALIVE


ALIVE = failed()


def planned(state: ClusterState, condition_of: ConditionOf = ALIVE, rules: Rules = TWO) -> Planned:
    return plan(state, draw(state, condition_of), rules)


def leaving(kind: str, id: str) -> dict[str, Leaving]:
    entry = Leaving(kind, id, "", 1.0)
    return {entry.key: entry}


# -- the picture -------------------------------------------------------------------------------------------


def test_nodes_are_those_of_groups_and_of_the_pool() -> None:
    state = state_of({1: "a:,b:", 2: "b:"}, "c:1")
    state = replace(state, pool={"c:1": PoolServer("c:1", "n3", "rome")})
    picture = draw(state, failed())
    assert picture.nodes == {"a": Node("a"), "b": Node("b"), "n3": Node("n3", "rome")}
    assert picture.table == {1: Copies("a", ("b",)), 2: Copies("b")}
    assert picture.free == {"n3": ("c:1",)}


def test_a_node_is_not_there_while_all_its_servers_have_failed_or_it_leaves() -> None:
    state = state_of({1: "a:,b:", 2: "a:,c:"})
    picture = draw(state, failed("b:1"))
    assert picture.absent == {"b": SILENT}
    assert picture.table[1] == Copies("a")
    assert picture.gone[1] == ("b:1",)
    picture = draw(replace(state, leaving=leaving("node", "a")), failed())
    assert picture.absent == {"a": LEAVES}
    assert picture.table == {1: Copies("", ("b",)), 2: Copies("", ("c",))}
    # If one server of a node has failed, no group loses the node.
    picture = draw(state_of({1: "a:,b:", 2: "a:,b:"}), failed("b:1"))
    assert "b" in picture.nodes
    assert picture.table == {1: Copies("a"), 2: Copies("a", ("b",))}


def test_two_copies_on_one_node_count_as_one() -> None:
    state = state_of({1: ""})
    state = replace(state, table=SlotTable(5, state.table.slots, {1: Group(1, ("a:1", "a:2", "b:1", "b:2"))}))
    assert draw(state, failed()).table == {1: Copies("a", ("b",))}


def test_groups_that_cannot_be_copied_are_left_out_and_said() -> None:
    state = state_of({1: "a:,b:", 2: "", 3: "a:,b:", 4: "b:"}, leaving=leaving("group", "4"))
    picture = draw(state, failed("a:3"))
    assert set(picture.table) == {1}
    assert "has no server" in picture.left_out[2].what
    assert (picture.left_out[3].kind, "--force" in picture.left_out[3].to_do) == (Kind.SERVER, True)
    assert "on its way out" in picture.left_out[4].what


def test_servers_of_the_pool_that_may_not_be_taken() -> None:
    state = state_of({1: "a:"}, "b:1,b:2,c:1,d:1", leaving=leaving("node", "c") | leaving("server", "b:2"))

    def suspected(server: str) -> Condition:
        return Condition.SUSPECTED if server == "d:1" else Condition.ALIVE

    picture = draw(state, suspected, {"b:1": Reason(Kind.DATA, "b:1 holds 3 keys")})
    assert picture.free == {}
    assert set(picture.nodes) == {"a", "b"}
    assert sorted(picture.unusable) == ["b:1", "b:2", "c:1", "d:1"]


# -- the plan ----------------------------------------------------------------------------------------------


def test_missing_copies_are_taken_from_the_pool() -> None:
    found = planned(state_of({1: "a:", 2: "b:"}, "a:9,b:9"))
    assert [(step.kind, step.group, step.server) for step in found.steps] == [("copy", 1, "b:9"), ("copy", 2, "a:9")]
    assert found.missing == ()
    assert planned(state_of({1: "a:,b:", 2: "b:,a:"}, "a:9,b:9")) == Planned((), (), found.target)


def test_a_copy_without_a_server_there_goes_elsewhere_or_is_said_to_be_missing() -> None:
    found = planned(state_of({1: "a:", 2: "b:", 3: "c:"}, "d:9,d:8,d:7"))
    assert {step.node for step in found.steps} == {"d"}
    assert len(found.steps) == 3
    found = planned(state_of({1: "a:", 2: "b:"}))
    assert found.steps == ()
    assert "slotferry pool add HOST:PORT --node b" in found.missing[0].to_do
    found = planned(state_of({1: "a:"}))
    assert "only 1 node is there" in found.missing[0].what


def test_surplus_copies_are_left_and_said() -> None:
    found = planned(state_of({1: "a:,b:,c:", 2: "b:,c:", 3: "c:,a:"}))
    assert found.steps == ()
    assert "none is removed by itself" in found.missing[0].what


def test_what_failed_is_replaced_and_then_goes_to_the_pool() -> None:
    state = state_of({1: "a:,b:", 2: "b:,c:", 3: "c:,a:"}, "a:9,b:9,c:9")
    found = planned(state, failed("b:1"))
    assert [(step.kind, step.server) for step in found.steps] == [("copy", "b:9"), ("retire", "b:1")]
    assert found.steps[1].round > found.steps[0].round
    assert found.steps[1].keep == 2
    # It stays while there is no other one: it may come back.
    assert planned(replace(state, pool={}), failed("b:1")).steps == ()


def test_a_node_that_leaves_is_emptied() -> None:
    state = state_of({1: "a:,b:", 2: "b:,a:"}, "c:9,c:8", leaving=leaving("node", "a"))
    found = planned(state)
    assert found.target == {1: Copies("b", ("c",)), 2: Copies("b", ("c",))}
    last = max(step.round for step in found.steps)
    assert {(step.group, step.server) for step in found.steps if step.kind == "retire"} == {(1, "a:1"), (2, "a:2")}
    assert all(step.round == last for step in found.steps if step.kind == "retire")
    promoted = [step for step in found.steps if step.kind == "promote"]
    assert [(step.group, step.server) for step in promoted][:1] == [(1, "b:1")]


def test_a_master_without_replicas_leaves_once_its_copy_leads() -> None:
    found = planned(state_of({1: "a:"}, "c:9", leaving=leaving("node", "a")), rules=Rules(1))
    assert [(step.kind, step.server, step.leads) for step in found.steps] == [
        ("copy", "c:9", True),
        ("retire", "a:1", False),
    ]


def done(state: ClusterState, steps: tuple[Step, ...]) -> ClusterState:
    """The state once all the steps are done, by the functions that do them."""
    if not steps:
        return state
    epoch = state.table.epoch
    state = changes.begun(state, steps, "topom", 1.0)
    while state.placement.run is not None and (current := state.placement.run.current):
        step = current[0]
        group = state.table.groups[step.group]
        assert group.master is not None
        epoch += 1
        if step.kind == "copy" and step.state != "joined":
            state = changes.joined(changes.copying(state, step), epoch, step, group.master)
        elif step.kind == "retire":
            state = changes.left(state, epoch, step, [step.server], group.master)
        else:
            servers = (step.server, *(one for one in group.servers if one != step.server))
            assert step.server in group.servers
            table = state.table.changed(epoch, groups=[replace(group, servers=servers)])
            state = replace(state, table=table)
            if step.kind == "copy":
                state = changes.left(state, epoch + 1, step, step.instead_of, step.server)
                epoch += 1
            else:
                state = changes.advanced(state, step, "done")
        in_groups = [server for one in state.table.groups.values() for server in one.servers]
        assert len(in_groups) == len(set(in_groups))
        assert not set(in_groups) & state.pool.keys()
    return changes.ended(state)


def copies_of(picture: Picture) -> int:
    return sum(len(copies.holders) for copies in picture.table.values())


@pytest.mark.parametrize("seed", range(60))
def test_plans_lead_to_what_they_say_and_come_to_rest(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randint(2, 5))]
    groups = {}
    for number in range(1, chance.randint(2, 9)):
        servers = chance.sample(nodes, chance.randint(1, 2))
        groups[number] = ",".join(f"{node}:" for node in servers)
    pool = ",".join(f"{node}:{port}" for node in nodes for port in range(100, 100 + chance.randint(0, 12)))
    state = state_of(groups, pool)
    dead = chance.choice(nodes) if chance.random() < 0.5 and len(nodes) > 2 else ""
    condition_of: ConditionOf = lambda server: (  # noqa: E731
        Condition.FAILED if server.startswith(f"{dead}:") else Condition.ALIVE
    )
    before = copies_of(draw(state, condition_of))
    servers = {*state.pool, *(server for group in state.table.groups.values() for server in group.servers)}
    for _ in range(12):
        found = planned(state, condition_of)
        # Each server is taken once, and a server that has to do something is there at that time.
        taken = [(step.round, step.server) for step in found.steps if step.kind == "copy"]
        assert len(taken) == len(set(taken))
        state = done(state, found.steps)
        picture = draw(state, condition_of)
        assert picture.table == found.target or not found.steps
        assert copies_of(picture) >= before
        before = copies_of(picture)
        assert servers == {*state.pool, *(one for group in state.table.groups.values() for one in group.servers)}
        if not found.steps:
            break
    else:
        raise AssertionError("it does not come to rest")
    lacking = [copies for copies in picture.table.values() if len(copies.holders) < min(2, len(picture.nodes))]
    # If a group still lacks a copy, every node without a copy of it lacks a server.
    for copies in lacking:
        assert not [node for node in picture.free if node not in copies.holders]
        assert found.missing


# -- what is stored ----------------------------------------------------------------------------------------


COPY = Step(1, 1, "copy", "c", "c:9", instead_of=("b:1",))


def running(*steps: Step, state: ClusterState | None = None) -> ClusterState:
    return changes.begun(state or state_of({1: "a:,b:"}, "c:9,d:9"), steps, "topom", 1.0)


def test_what_is_replaced_leaves_in_the_write_that_takes_the_whole_one_in() -> None:
    state = running(COPY)
    filled = changes.copying(state, COPY)
    assert filled.table is state.table
    assert not filled.pool["c:9"].wipe
    filled = changes.told(filled, COPY.server, COPY.group)
    assert filled.pool["c:9"].wipe
    new = changes.joined(filled, 8, COPY, "a:1")
    assert new.table.groups[1].servers == ("a:1", "c:9")
    assert set(new.pool) == {"b:1", "d:9"}
    assert new.pool["b:1"].wipe
    assert new.placement.run is not None
    assert new.placement.run.current == ()


def test_a_master_is_never_taken_out() -> None:
    step = replace(COPY, instead_of=("a:1",))
    new = changes.joined(running(step), 8, step, "a:1")
    assert new.table.groups[1].servers == ("a:1", "b:1", "c:9")
    retire = Step(1, 1, "retire", "a", "a:1")
    assert changes.left(running(retire), 8, retire, ["a:1"], "a:1").table.groups[1].servers == ("a:1", "b:1")


def test_steps_that_were_overtaken_change_nothing() -> None:
    state = running(COPY)
    with pytest.raises(changes.StepOvertaken, match="not the master"):
        changes.joined(state, 8, COPY, "b:1")
    with pytest.raises(changes.StepOvertaken, match="not in the pool"):
        changes.joined(replace(state, pool={}), 8, COPY, "a:1")
    for out in (leaving("node", "c"), leaving("server", "c:9")):
        with pytest.raises(changes.StepOvertaken, match="on its way out"):
            changes.joined(replace(state, leaving=out), 8, COPY, "a:1")
    with pytest.raises(changes.StepOvertaken, match="ended"):
        changes.joined(changes.ended(state), 8, COPY, "a:1")
    locked = state.table.changed(8, groups=[replace(state.table.groups[1], locked=True)])
    with pytest.raises(errors.GroupLocked):
        changes.joined(replace(state, table=locked), 9, COPY, "a:1")
    with pytest.raises(changes.PlacementRuns):
        changes.begun(state, [COPY], "topom", 1.0)
    with pytest.raises(changes.NothingToPlace):
        changes.ended(changes.ended(state))


def test_a_step_that_is_dropped_takes_along_what_came_after_it_for_its_group() -> None:
    later, other = Step(2, 1, "promote", "c", "c:9"), Step(2, 2, "copy", "d", "d:9")
    state = running(COPY, later, other, state=state_of({1: "a:,b:", 2: "b:"}, "c:9,d:9"))
    new = changes.dropped(state, COPY, Reason(Kind.BUSY, "it is gone", 1.0))
    assert new.placement.run is not None
    assert [(step.state, bool(step.refusal)) for step in new.placement.run.steps] == [
        ("dropped", True),
        ("dropped", True),
        ("waiting", False),
    ]
    assert new.placement.run.current == (other,)


def test_a_server_that_is_wiped_does_not_count_as_keeping_anybody_off() -> None:
    marked = {"a:1": Marked("process", 1), "c:9": Marked("process", 1)}
    state = replace(state_of({1: "a:,b:"}, "c:9"), fenced={"x": Fenced("x", 1, 1)}, marked=marked)
    assert changes.copying(running(COPY, state=state), COPY).marked.keys() == {"a:1"}


def test_what_is_stored_is_read_again() -> None:
    kept = Kept(
        True,
        Run(1.5, "operator x", (COPY, replace(COPY, round=2, state="dropped", refusal=Reason(Kind.BUSY, "gone", 1.0)))),
    )
    assert Kept.from_document(kept.to_document()) == kept
    assert Kept.from_document(Kept().to_document()) == Kept()


@pytest.mark.parametrize(
    ("behind", "problem"),
    [
        (Replication(False, "s", 90, ("a", 1), link_up=True), None),
        (Replication(False, "s", 80, ("a", 1), link_up=True), "20 bytes behind"),
        (Replication(False, "s", 100, ("a", 1), link_up=False), "being filled"),
        (Replication(False, "s", 100, ("a", 1), link_up=True, filling=True), "being filled"),
        (Replication(False, "t", 100, ("a", 1), link_up=True), "not of a:1"),
        (Replication(True, "s", 100), "a master itself"),
    ],
)
def test_what_is_whole(behind: Replication, problem: str | None) -> None:
    found = copy_refused("b:1", "a:1", Replication(True, "s", 100), behind, 10)
    assert found is None if problem is None else problem in str(found)
