"""Replicas are made masters of their groups while clients write: nothing is lost, and no client gets an error."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from slotferry.calls import TopomRefused, TopomUnreachable
from slotferry.redis_server import RedisServer
from slotferry.traffic.placement import Layout
from slots.functions import slot
from tests.integration.cluster.harness import (
    Cluster,
    Counting,
    check_clean,
    eventually,
    plain_client,
    running,
    traffic_on,
)
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here."""
    yield from running(
        Cluster(
            groups=2,
            proxies=2,
            workers=2,
            redis_arguments=PROMPT,
        )
    )


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster without keys."""
    async with shared_cluster.visit():
        for group in await shared_cluster.api.groups():
            async with plain_client(group["servers"][0]["address"]) as master:
                await master.flushall()
        yield shared_cluster


async def servers_of(cluster: Cluster, group_id: int) -> list[str]:
    """Addresses of a group's servers, the master first."""
    groups = {group["id"]: group for group in await cluster.api.groups()}
    return [server["address"] for server in groups[group_id]["servers"]]


async def all_follow(cluster: Cluster, group_id: int) -> None:
    """Wait until the replicas of a group follow its master, and have what it has."""
    master, *replicas = await servers_of(cluster, group_id)
    port = int(master.rpartition(":")[2])

    async def look() -> list[tuple[object, ...]]:
        found = []
        for replica in replicas:
            async with plain_client(replica) as client:
                said = await client.info("replication")
            found.append((said.get("master_port"), said.get("master_link_status")))
        return found

    await eventually(look, lambda found: set(found) == {(port, "up")}, f"{replicas} to follow {master}")


async def with_replicas(cluster: Cluster, group_id: int) -> list[RedisServer]:
    """Give a group two replicas, if it has none yet."""
    if len(await servers_of(cluster, group_id)) == 1:
        for _ in range(2):
            await add_replica(cluster, group_id)
    await all_follow(cluster, group_id)
    return cluster.servers[group_id]


@pytest.mark.long
async def test_each_replica_in_turn_under_load(cluster: Cluster) -> None:
    await with_replicas(cluster, 1)
    async with (
        traffic_on(cluster.proxy_addresses) as traffic,
        Counting(cluster.proxy_addresses[0], name="first") as first,
        Counting(cluster.proxy_addresses[1], name="second") as second,
    ):
        for _ in range(3):
            replica = (await servers_of(cluster, 1))[1]
            await cluster.api.promote(1, replica)
            assert (await servers_of(cluster, 1))[0] == replica
            async with plain_client(replica) as client:
                assert (await client.info("replication"))["role"] == "master"
            await first.progress()
            await second.progress()
            await all_follow(cluster, 1)
        for counting in (first, second):
            await counting.stop()
            assert not counting.errors, counting.errors[:5]
            await counting.check()
        await check_clean(traffic, await masters_of(cluster))


async def masters_of(cluster: Cluster) -> Layout:
    """Which server has to have which slot; replicas are not looked at."""
    return Layout.from_api(await cluster.api.status(), await cluster.api.slots())


@asynccontextmanager
async def held_locked(cluster: Cluster, server: str) -> AsyncIterator[asyncio.Task[object]]:
    """Inside the block, a promotion to ``server`` is under way, and its lock not acknowledged.

    The master holds a write, so that a worker that waits for the reply does not acknowledge the lock.
    """
    master = (await servers_of(cluster, 1))[0]
    proxy = cluster.proxy_addresses[0]
    key = next(name for n in range(9999) if slot("crc32", (name := f"held:{n}").encode(), 1024) < 512)
    async with plain_client(proxy, client_name="waits") as waiting, plain_client(proxy) as other:
        async with plain_client(master) as direct:
            await direct.execute_command("CLIENT", "PAUSE", "50000", "WRITE")
            reply = asyncio.create_task(waiting.incr(key))
            await eventually(
                other.client_list,
                lambda clients: any(client["name"] == "waits" and client["owed"] == "1" for client in clients),
                "a write to be in flight at the master",
            )
            promoting = asyncio.create_task(cluster.api.promote(1, server))
            await eventually(cluster.api.groups, lambda groups: groups[0]["locked"], "the group to be locked")
            try:
                yield promoting
            finally:
                await direct.execute_command("CLIENT", "UNPAUSE")
        assert await reply > 0


@pytest.mark.long
async def test_a_replica_that_stops_costs_a_pause_and_nothing_else(cluster: Cluster) -> None:
    servers = await with_replicas(cluster, 1)
    master, replica, _ = await servers_of(cluster, 1)
    process = next(server for server in servers if server.address == replica)
    async with traffic_on(cluster.proxy_addresses) as traffic, Counting(cluster.proxy_addresses[0]) as counting:
        async with held_locked(cluster, replica) as promoting:
            os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TopomRefused, match="as before, unlocked"):
            await promoting
        assert (await servers_of(cluster, 1))[0] == master
        await counting.progress()
        os.kill(process.pid, signal.SIGCONT)
        await all_follow(cluster, 1)
        await counting.stop()
        assert not counting.errors, counting.errors[:5]
        await counting.check()
        await check_clean(traffic, await masters_of(cluster))


@pytest.mark.long
async def test_topom_killed_while_a_group_is_locked(cluster: Cluster) -> None:
    await with_replicas(cluster, 1)
    master, replica, _ = await servers_of(cluster, 1)
    async with traffic_on(cluster.proxy_addresses) as traffic:
        async with held_locked(cluster, replica) as promoting:
            await cluster.topom.kill()
            with pytest.raises(TopomUnreachable):
                await promoting
        await cluster.restart_topom()
        await eventually(cluster.api.groups, lambda groups: not groups[0]["locked"], "the group to be unlocked")
        assert (await servers_of(cluster, 1))[0] == master
        await cluster.online(2)
        await cluster.api.promote(1, replica)
        await all_follow(cluster, 1)
        await check_clean(traffic, await masters_of(cluster))
