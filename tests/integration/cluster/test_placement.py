"""Placement applied to servers: replicas from the pool, promotions, a topom that dies, a node that is lost."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from slotferry.calls import TopomRefused
from slotferry.redis_server import RedisServer
from slotferry.traffic.placement import Layout
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import (
    Cluster,
    Counting,
    check_clean,
    eventually,
    plain_client,
    traffic_on,
)
from tests.integration.cluster.test_replica_reads import PROMPT

QUICK = {"server_suspect_seconds": 1.5, "server_fail_seconds": 3.0, "server_view_seconds": 10.0}
GROUPS = 4


async def pooled(cluster: Cluster, node: str, count: int) -> list[RedisServer]:
    """Start servers on a node, and put them into the pool."""
    servers = [await cluster.add_server(1) for _ in range(count)]
    for server in servers:
        cluster.groups[1].remove(server.address)
        await cluster.api.add_to_pool(server.address, node=node)
    return servers


async def nodes_of(cluster: Cluster) -> dict[int, list[str]]:
    """By group, the nodes of its servers, the master's first."""
    return {group["id"]: [server["node"] for server in group["servers"]] for group in await cluster.api.groups()}


async def over(cluster: Cluster) -> Mapping[str, Any]:
    """Wait until nothing is being applied any more."""
    return await eventually(cluster.api.placement, lambda found: found["run"] is None, "the placement to be over")


def masters(placed: Mapping[int, Sequence[str]], node: str) -> int:
    return sum(servers[0] == node for servers in placed.values())


@pytest.mark.long
async def test_a_node_joins_and_one_is_lost(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=GROUPS,
        proxies=1,
        workers=1,
        topom_settings={
            **QUICK,
            "ha": "topom",
            "placement_settle_seconds": 1.0,
        },
        redis_arguments=PROMPT,
    )
    for group in await cluster.api.groups():
        await cluster.api.set_place(group["id"], group["servers"][0]["address"], node="n1")
    found = await cluster.api.placement()
    assert "only 1 node is there" in str(found["plan"]["missing"][0])
    with pytest.raises(TopomRefused, match="only 1 node is there"):
        await cluster.api.apply_placement()
    alias = f"localhost:{cluster.servers[1][0].port}"
    with pytest.raises(TopomRefused, match=f"is the same server as {cluster.servers[1][0].address}"):
        await cluster.api.add_to_pool(alias, node="n2", wipe=True)
    second = await pooled(cluster, "n2", GROUPS - 1)
    filled = (await cluster.add_server(1)).address
    cluster.groups[1].remove(filled)
    async with plain_client(filled) as client:
        await client.set("a", "b")
    with pytest.raises(TopomRefused, match="holds 1 key,"):
        await cluster.api.add_to_pool(filled, node="n2")

    def lacking(found: Mapping[str, Any]) -> bool:
        return len(found["plan"]["steps"]) > 1 and "no server is left in the pool" in str(found["plan"]["missing"][0])

    await eventually(cluster.api.placement, lacking, "a plan for all groups but one")
    await cluster.api.add_to_pool(filled, node="n2", wipe=True)
    async with (
        traffic_on(cluster.proxy_addresses, keys=1000, rate=500.0) as traffic,
        Counting(cluster.proxy_addresses[0]) as counting,
    ):
        assert len((await cluster.api.apply_placement())["run"]["steps"]) > GROUPS
        await eventually(
            cluster.api.placement,
            lambda found: any(step["state"] == "copying" for step in found["run"]["steps"]),
            "a copy to be made",
        )
        await cluster.topom.kill()
        await cluster.restart_topom()
        await over(cluster)
        placed = await nodes_of(cluster)
        assert all(sorted(servers) == ["n1", "n2"] for servers in placed.values()), placed
        assert masters(placed, "n2") >= 1, placed
        await counting.progress()
        await counting.stop()
        assert not counting.errors, counting.errors[:5]
        await counting.check()
        await check_clean(traffic, Layout.from_api(await cluster.api.status(), await cluster.api.slots()))
    assert (await cluster.api.placement())["plan"]["steps"] == []
    assert (await cluster.api.pool())["servers"] == []

    # A node is lost, and another one has room.
    await cluster.load_ballast()
    for group in await cluster.api.groups():
        async with plain_client(group["servers"][0]["address"]) as client:
            assert await client.wait(1, 30_000) == 1
    await pooled(cluster, "n3", GROUPS)
    await cluster.api.set_auto_placement(True)
    lost = {filled, *(server.address for server in second)}
    for process in cluster.servers[1]:
        if process.address in lost:
            os.kill(process.pid, signal.SIGKILL)

    def replaced(placed: Mapping[int, Sequence[str]]) -> bool:
        return all(sorted(servers) == ["n1", "n3"] for servers in placed.values())

    await eventually(lambda: nodes_of(cluster), replaced, "copies on n3 instead of n2")
    found = await over(cluster)
    nodes = {node["name"]: node for node in found["nodes"]}
    assert nodes["n2"]["reason"]["what"] == "none of its servers answers"
    assert nodes["n2"]["leads"] == nodes["n2"]["follows"] == []
    assert {server["address"] for server in (await cluster.api.pool())["servers"]} == lost
    await cluster.check_ballast()
    events = [event["what"] for event in (await cluster.api.events(limit=500))["events"]]
    assert events.count("placement_begun") >= 2
