"""Real Sentinels watch a group, and topom and the proxies follow them, over the life of one cluster."""

import asyncio
import os
import signal

import pytest

from cli.client import TopomRefused
from tests.integration.cluster.harness import Cluster, Counting, eventually, log_of, plain_client
from tests.integration.cluster.sentinels import (
    Sentinel,
    all_know,
    master_of,
    switched_at,
    watched_cluster,
)


async def test_a_group_is_watched_and_its_new_masters_are_followed() -> None:
    async with watched_cluster() as (cluster, sentinels):
        await sentinels_are_added_and_kept_in_step(cluster, sentinels)
        await one_that_lies_is_not_believed(cluster, sentinels)
        await a_killed_master_is_followed(cluster, sentinels)
        await a_master_that_hangs_is_followed_with_a_sentinel_lost(cluster, sentinels)
        await sentinels_leave(cluster, sentinels)


async def sentinels_are_added_and_kept_in_step(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    for sentinel in sentinels:
        await cluster.api.add_sentinel(sentinel.address)
    with pytest.raises(TopomRefused, match="known already"):
        await cluster.api.add_sentinel(sentinels[0].address)
    with pytest.raises(TopomRefused, match="does not answer as a Sentinel"):
        await cluster.api.add_sentinel(cluster.servers[2][0].address)
    master = cluster.servers[1][0].address

    async def named() -> set[str]:
        return {one["masters"].get("1", "") for one in (await cluster.api.sentinels())["sentinels"]}

    await eventually(named, lambda found: found == {master}, "all Sentinels to watch group 1")
    for sentinel in sentinels:
        fields = await sentinel.fields(1)
        assert (fields["quorum"], fields["down-after-milliseconds"]) == ("2", "600")
        # A group without a replica is of no use to a Sentinel.
        assert await sentinel.names(2) is None
    # What somebody else changed is put right.
    await sentinels[0].call("REMOVE", "watched-1")
    await sentinels[1].call("SET", "watched-1", "quorum", 3)
    await cluster.api.resync_sentinels()
    assert await sentinels[0].names(1) == master
    assert (await sentinels[1].fields(1))["quorum"] == "2"
    await all_know(sentinels, replicas=2)


async def one_that_lies_is_not_believed(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    master, replica = cluster.servers[1][0], cluster.servers[1][1]
    epoch = (await cluster.api.status())["epoch"]
    liar = sentinels[2]
    await liar.call("REMOVE", "watched-1")
    await liar.call("MONITOR", "watched-1", "127.0.0.1", cluster.servers[2][0].port, 2)

    async def named() -> list[str]:
        return [one["masters"].get("1", "") for one in (await cluster.api.sentinels())["sentinels"]]

    await eventually(
        named, lambda found: found == [master.address] * 2 + [cluster.servers[2][0].address], "topom to hear the lie"
    )
    assert await master_of(cluster) == master.address
    assert (await cluster.api.status())["epoch"] == epoch
    # In time it is told the truth; an operator need not wait.
    await cluster.api.resync_sentinels()
    await eventually(named, lambda found: found == [master.address] * 3, "all to name the master again")
    # A majority that names a replica which follows the master is out of date, and is put right.
    for sentinel in sentinels[1:]:
        await sentinel.call("REMOVE", "watched-1")
        await sentinel.call("MONITOR", "watched-1", "127.0.0.1", replica.port, 2)
    await eventually(named, lambda found: found == [master.address] * 3, "the outdated ones to be told the master")
    assert (await cluster.api.status())["epoch"] == epoch
    await all_know(sentinels, replicas=2)


async def a_killed_master_is_followed(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    master = cluster.servers[1][0]
    seen: asyncio.Queue[float] = asyncio.Queue()
    listening = asyncio.create_task(switched_at(sentinels[0], seen))
    counts = [Counting(address, 4, f"killed:{address}") for address in cluster.proxy_addresses]
    async with counts[0], counts[1]:
        await master.kill()
        at = await seen.get()
        loop = asyncio.get_running_loop()
        took = []
        for count in counts:
            await count.progress()
            took.append(loop.time() - at)
        print("seconds from +switch-master until every client had an answer, by proxy:", took)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert await master_of(cluster) != master.address
    assert all(not count.errors or master.address in " ".join(count.errors) for count in counts)
    master.start()
    await master.ready()


async def a_master_that_hangs_is_followed_with_a_sentinel_lost(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    await all_know(sentinels, replicas=2)
    await sentinels[2].kill()
    former = await master_of(cluster)
    process = next(server for server in cluster.servers[1] if server.address == former)
    counts = [Counting(address, 4, f"hung:{address}") for address in cluster.proxy_addresses]
    async with counts[0], counts[1]:
        os.kill(process.pid, signal.SIGSTOP)
        for count in counts:
            await count.progress()
        master = await master_of(cluster)
        assert master != former
        os.kill(process.pid, signal.SIGCONT)
        for count in counts:
            await count.progress()
    assert await master_of(cluster) == master
    # Former masters stay in their group, as replicas once they are back.
    group = next(group for group in await cluster.api.groups() if group["id"] == 1)
    assert len(group["servers"]) == 3
    for server in cluster.servers[1]:
        if server.address != master:

            async def replication(address: str = server.address) -> dict[str, object]:
                async with plain_client(address) as client:
                    return dict(await client.info("replication"))

            await eventually(replication, lambda said: said.get("role") == "slave", "a former master to follow")
    switches = [entry for entry in log_of(cluster.topom) if entry.get("event") == "master_switched"]
    assert [entry["sentinels"] for entry in switches] == [3, 2] or len(switches) == 2


async def sentinels_leave(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    told = await cluster.api.remove_sentinel(sentinels[2].address)
    assert list(told["failed"]) == [sentinels[2].address]
    assert (await cluster.api.remove_sentinel(sentinels[0].address))["failed"] == {}
    assert await sentinels[0].names(1) is None
    found = await cluster.api.sentinels()
    assert [one["address"] for one in found["sentinels"]] == [sentinels[1].address]
    # Which Sentinels there are is stored.
    await cluster.topom.kill()
    await cluster.restart_topom()
    found = await cluster.api.sentinels()
    assert [one["address"] for one in found["sentinels"]] == [sentinels[1].address]
