"""Real Sentinels watch a group, and topom and the proxies follow them, over the life of one cluster."""

import asyncio
import os
import signal

import pytest

from slotferry.calls import TopomRefused
from tests.integration.cluster.harness import BALLAST, Cluster, Counting, eventually, log_of, plain_client
from tests.integration.cluster.sentinels import (
    DOWN_AFTER_MILLISECONDS,
    Sentinel,
    all_know,
    master_of,
    switched_at,
    watched_cluster,
)
from tests.integration.worker.replicated import Gate

SLOW = 100
"""Keys a second, so that there are keys left to move when their master is killed."""


@pytest.mark.long
async def test_a_group_is_watched_and_its_new_masters_are_followed() -> None:
    async with watched_cluster() as (cluster, sentinels, gates):
        await sentinels_are_added_and_kept_in_step(cluster, sentinels)
        await one_that_lies_is_not_believed(cluster, sentinels)
        changed = await keys_have_left_and_changed_that_no_replica_heard_of(cluster, gates)
        await a_killed_master_is_followed(cluster, sentinels)
        await the_changed_keys_are_as_they_were_written(cluster, changed)
        # Before the next change: Sentinels may elect this one then.
        await the_killed_master_is_back_as_a_replica(cluster)
        await a_master_that_hangs_is_followed_with_a_sentinel_lost(cluster, sentinels)
        await topom_knows_its_sentinels_when_it_is_started_again(cluster, sentinels)
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
        assert (fields["quorum"], fields["down-after-milliseconds"]) == ("2", str(DOWN_AFTER_MILLISECONDS))
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


async def keys_have_left_and_changed_that_no_replica_heard_of(cluster: Cluster, gates: list[Gate]) -> list[bytes]:
    """Begin to move half of the slots away; give keys that have left and were written since. The replicas still have
    them."""
    await cluster.api.set_migration(keys_per_second=SLOW)
    await cluster.api.move_slots("0-511", 2)
    await cluster.moving(50)
    for gate in gates:
        gate.shut()
    async with plain_client(cluster.groups[2][0]) as target, plain_client(cluster.proxy_addresses[0]) as client:
        before = set(await target.keys("ballast:*"))
        await cluster.moving(150)
        left = sorted(set(await target.keys("ballast:*")) - before)
        assert left
        await client.mset(dict.fromkeys(left, "written since"))
    return left


async def the_changed_keys_are_as_they_were_written(cluster: Cluster, changed: list[bytes]) -> None:
    switch = next(entry for entry in log_of(cluster.topom) if entry.get("event") == "master_switched")
    assert switch["former"] == cluster.servers[1][0].address
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest({1: 512, 2: 512})
    expected = {f"ballast:{number}".encode(): f"value {number}".encode() for number in range(BALLAST)}
    expected |= dict.fromkeys(changed, b"written since")
    for address in cluster.proxy_addresses:
        async with plain_client(address) as client:
            found = dict(zip(expected, await client.mget(list(expected)), strict=True))
        assert found == expected
    async with plain_client(switch["master"]) as source, plain_client(cluster.groups[2][0]) as target:
        left, moved = await source.keys("ballast:*"), await target.keys("ballast:*")
    assert len(left) + len(moved) == BALLAST


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


async def the_killed_master_is_back_as_a_replica(cluster: Cluster) -> None:
    address = cluster.servers[1][0].address
    group = next(group for group in await cluster.api.groups() if group["id"] == 1)
    assert address in [server["address"] for server in group["servers"][1:]]

    async def role() -> str:
        async with plain_client(address) as client:
            return str((await client.info("replication"))["role"])

    # A Sentinel gives it ten seconds to become one by itself.
    await eventually(role, lambda found: found == "slave", "the killed master to follow the new one")


async def a_master_that_hangs_is_followed_with_a_sentinel_lost(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    await all_know(sentinels, replicas=2)
    await sentinels[2].kill()
    former = await master_of(cluster)
    process = next(server for server in cluster.servers[1] if server.address == former)
    counts = [Counting(address, 4, f"hung:{address}") for address in cluster.proxy_addresses]
    async with counts[0], counts[1]:
        os.kill(process.pid, signal.SIGSTOP)
        master = await eventually(lambda: master_of(cluster), lambda found: found != former, "another master")
        for count in counts:
            await count.progress()
        os.kill(process.pid, signal.SIGCONT)
        for count in counts:
            await count.progress()
    assert await master_of(cluster) == master
    switches = [entry for entry in log_of(cluster.topom) if entry.get("event") == "master_switched"]
    assert len(switches) == 2


async def topom_knows_its_sentinels_when_it_is_started_again(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    await cluster.topom.kill()
    await cluster.restart_topom()
    found = await cluster.api.sentinels()
    assert [one["address"] for one in found["sentinels"]] == [sentinel.address for sentinel in sentinels]


async def sentinels_leave(cluster: Cluster, sentinels: list[Sentinel]) -> None:
    told = await cluster.api.remove_sentinel(sentinels[2].address)
    assert list(told["failed"]) == [sentinels[2].address]
    assert (await cluster.api.remove_sentinel(sentinels[0].address))["failed"] == {}
    assert await sentinels[0].names(1) is None
    found = await cluster.api.sentinels()
    assert [one["address"] for one in found["sentinels"]] == [sentinels[1].address]
