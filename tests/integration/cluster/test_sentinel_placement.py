"""Real Sentinels watch groups while servers are placed and leave: each ends with the right master and replicas."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from slotferry.traffic.placement import Layout
from tests.integration.cluster.harness import (
    Cluster,
    Counting,
    check_clean,
    eventually,
    log_of,
    plain_client,
    traffic_on,
)
from tests.integration.cluster.sentinels import DOWN_AFTER_MILLISECONDS, WATCHED, Sentinel, start_three
from tests.integration.cluster.test_placement import masters, nodes_of, over, pooled
from tests.integration.cluster.test_replica_reads import PROMPT

GROUPS = 6
OWN_PRIORITY = "50"
"""The priority of some servers, which they have to get back."""


@asynccontextmanager
async def watched_nodes() -> AsyncIterator[tuple[Cluster, list[Sentinel]]]:
    """Groups whose servers are all on node n1, one proxy, and three Sentinels that topom knows."""
    cluster = Cluster(
        groups=GROUPS,
        topom_settings={
            "product": WATCHED,
            "ha": "sentinel",
            "sentinel_down_after_milliseconds": DOWN_AFTER_MILLISECONDS,
            # Where no Sentinel has the votes of a majority, they try again after twice as long.
            "sentinel_failover_timeout_milliseconds": 5_000,
        },
        redis_arguments=PROMPT,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        await stack.enter_async_context(cluster.visit())
        sentinels = await start_three(cluster, stack)
        for sentinel in sentinels:
            await cluster.api.add_sentinel(sentinel.address)
        for group in await cluster.api.groups():
            await cluster.api.set_place(group["id"], group["servers"][0]["address"], node="n1")
        yield cluster, sentinels


async def agreed(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    """Wait until every Sentinel has each group's master and exactly its replicas, and knows the other Sentinels."""

    async def look() -> tuple[object, object]:
        said, wanted = [], []
        for group in await cluster.api.groups():
            servers = [server["address"] for server in group["servers"]]
            for sentinel in sentinels:
                wanted.append((servers[0], set(servers[1:]), len(sentinels) - 1))
                others = int((await sentinel.fields(group["id"]))["num-other-sentinels"])
                said.append((await sentinel.names(group["id"]), set(await sentinel.replicas(group["id"])), others))
        return said, wanted

    await eventually(look, lambda found: found[0] == found[1], "every Sentinel to have just the group's servers")


async def servers_of(cluster: Cluster, group_id: int) -> list[str]:
    group = next(group for group in await cluster.api.groups() if group["id"] == group_id)
    return [server["address"] for server in group["servers"]]


async def asked(address: str) -> tuple[str, str]:
    """Role and replica-priority of a server."""
    async with plain_client(address, decode_responses=True) as client:
        role = (await client.info("replication"))["role"]
        return role, (await client.config_get("replica-priority"))["replica-priority"]


@pytest.mark.long
async def test_servers_are_placed_and_leave_while_sentinels_watch() -> None:
    async with watched_nodes() as (cluster, sentinels):
        await nodes_join(cluster, sentinels)
        await a_master_is_drained(cluster, sentinels[2])
        await a_killed_master_is_replaced_by_a_server_of_its_group(cluster, sentinels)


async def nodes_join(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    second = await pooled(cluster, "n2", GROUPS)
    for server in second:
        async with plain_client(server.address) as client:
            await client.config_set("replica-priority", OWN_PRIORITY)
    async with (
        traffic_on(cluster.proxy_addresses, keys=1000, rate=500.0) as traffic,
        Counting(cluster.proxy_addresses[0]) as counting,
    ):
        await cluster.api.apply_placement()
        await over(cluster)
        placed = await nodes_of(cluster)
        assert all(sorted(nodes) == ["n1", "n2"] for nodes in placed.values()), placed
        # Another node makes room: what is replaced there goes to the pool.
        await pooled(cluster, "n3", GROUPS // 2)
        await cluster.api.apply_placement()
        await eventually(
            cluster.api.placement,
            lambda found: any(step["state"] == "copying" for step in found["run"]["steps"]),
            "a copy to be made",
        )
        # The next leader goes on: with the placement, and with what Sentinels are to elect and to forget.
        await cluster.topom.kill()
        await cluster.restart_topom()
        await over(cluster)
        placed = await nodes_of(cluster)
        assert all(masters(placed, node) == GROUPS // 3 for node in ("n1", "n2", "n3")), placed
        await agreed(cluster, sentinels)
        await counting.progress()
        await counting.stop()
        assert not counting.errors, counting.errors[:5]
        await counting.check()
        await check_clean(traffic, Layout.from_api(await cluster.api.status(), await cluster.api.slots()))
    barred = {one["server"] for one in log_of(cluster.topom) if one.get("event") == "server_not_electable"}
    assert {server.address for server in second} <= barred
    own = dict.fromkeys(barred, "100") | dict.fromkeys((server.address for server in second), OWN_PRIORITY)

    async def priorities() -> dict[str, str]:
        return {address: (await asked(address))[1] for address in barred}

    await eventually(priorities, lambda found: found == own, "all to have their own priority back")
    # Servers whose copies were replaced follow no server, and no Sentinel has made them replicas again.
    left = [server["address"] for server in (await cluster.api.pool())["servers"]]
    assert left
    for address in left:
        assert (await asked(address))[0] == "master"


async def a_master_is_drained(cluster: Cluster, sentinel: Sentinel) -> None:
    """But not as long as a Sentinel hangs, because it might undo that."""
    former, replica = await servers_of(cluster, 1)
    os.kill(sentinel.pid, signal.SIGSTOP)
    try:
        await cluster.api.drain_server(1, former, "it is old")

        async def waits_for() -> list[str]:
            return [str(entry["reason"]) for entry in (await cluster.api.status())["leaving"]]

        await eventually(
            waits_for,
            lambda found: f"{sentinel.address} does not answer" in found[0] and "slotferry sentinel remove" in found[0],
            "the reason why the master does not leave",
        )
        assert await servers_of(cluster, 1) == [former, replica]
    finally:
        os.kill(sentinel.pid, signal.SIGCONT)
    await eventually(lambda: servers_of(cluster, 1), lambda found: found == [replica], "the master to have left")


async def a_killed_master_is_replaced_by_a_server_of_its_group(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    """One that was removed and still follows the master is not elected, though it has as much."""
    master, replica = await servers_of(cluster, 2)
    removed = await cluster.add_server(2)
    await cluster.api.add_server(2, removed.address, node="n4")
    await eventually(lambda: asked(removed.address), lambda found: found == ("slave", "100"), "a replica to be whole")
    await cluster.api.remove_server(2, removed.address)
    for sentinel in sentinels:
        await eventually(
            partial(sentinel.replicas, 2), lambda found: found.get(removed.address) == "0", "it not to be electable"
        )
    process = next(one for servers in cluster.servers.values() for one in servers if one.address == master)
    await process.kill()
    await eventually(lambda: servers_of(cluster, 2), lambda found: found[0] != master, "another master")
    assert await servers_of(cluster, 2) == [replica, master]
    assert await asked(removed.address) == ("slave", "0")
