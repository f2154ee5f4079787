"""Plans of a few groups end and come to rest, with any set of servers."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.unit.topom.placement.test_plan import done, state_of
from topom.cluster.state import ClusterState, PoolServer
from topom.placement.picture import ConditionOf, draw
from topom.placement.plan import plan
from topom.placement.planner import Rules
from topom.servers.detector import Condition

STRICT = Rules(2, strict=True)


def failed_on(node: str) -> ConditionOf:
    return lambda server: Condition.FAILED if server.split(":")[0] == node else Condition.ALIVE


def promoted(state: ClusterState, condition_of: ConditionOf) -> ClusterState:
    """What ``ha`` does with masters that have failed."""
    for group in state.table.groups.values():
        alive = [server for server in group.servers if condition_of(server) is Condition.ALIVE]
        if alive and alive[0] != group.master:
            servers = (alive[0], *(server for server in group.servers if server != alive[0]))
            table = state.table.changed(state.table.epoch + 1, groups=[replace(group, servers=servers)])
            state = replace(state, table=table)
    return state


@pytest.mark.parametrize("seeds", [range(40), (75, 335, 461, 491)])
def test_whatever_servers_there_are_plans_end_and_none_begins_where_one_began(seeds: range | tuple[int, ...]) -> None:
    rounds = Counter[int]()
    for seed in seeds:
        chance = random.Random(seed)
        nodes = [f"n{number}" for number in range(chance.randint(2, 6))]
        places = {node: f"d{chance.randint(0, 2)}" if seed % 2 else "" for node in nodes}
        groups = {}
        for number in range(1, chance.randint(2, 10)):
            holders = chance.sample(nodes, min(len(nodes), chance.choice((1, 2, 2, 2, 3))))
            groups[number] = ",".join(f"{node}:" for node in holders)
        scarce = chance.choice((0, 1, 2, 12))
        pool = ",".join(f"{node}:{port}" for node in nodes for port in range(100, 100 + chance.randint(0, scarce)))
        state = state_of(groups, pool)
        state = replace(
            state, pool={one: PoolServer(one, one.split(":")[0], places[one.split(":")[0]]) for one in state.pool}
        )
        dead = ""
        for _ in range(4):
            condition_of = failed_on(dead)
            state = promoted(state, condition_of)
            begun = []
            while (found := plan(state, draw(state, condition_of), STRICT)).steps:
                table = draw(state, condition_of).table
                assert table not in begun, f"{seed}: it goes round in circles"
                begun.append(table)
                state = done(state, found.steps)
            rounds[len(begun)] += 1
            dead = chance.choice(nodes) if not dead and len(nodes) > 2 else ""
    assert max(rounds) < 8, rounds


def test_groups_whose_copies_share_a_datacenter_are_named() -> None:
    state = state_of({1: "a:,b:", 2: "b:,a:", 3: "a:,b:"})

    def sharing(*servers: str) -> list[str]:
        pooled = replace(state, pool={one: PoolServer(one, "c", "y") for one in servers})
        missing = plan(pooled, draw(pooled, failed_on("")), STRICT).missing
        return [one.what.split(":")[0] for one in missing if "share a datacenter" in one.what]

    assert sharing() == []
    # The third node may hold two copies of six.
    assert len(sharing("c:1", "c:2", "c:3")[0].split(",")) == 1
    assert len(sharing("c:1")[0].split(",")) == 2
