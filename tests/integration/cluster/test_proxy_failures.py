"""Proxies that are killed, paused and stopped while slots move: the others serve on, and no write goes astray."""

import asyncio
import os
import signal

import pytest

from slots.functions import slot
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import (
    Cluster,
    Counting,
    check_clean,
    eventually,
    log_of,
    plain_client,
    traffic_on,
)

SLOW = 100


async def start(start_cluster: StartCluster) -> Cluster:
    """Two groups, all slots at the first one; two proxies."""
    return await start_cluster(
        groups=2,
        proxies=2,
        workers=2,
        slots_on=[1],
        # One is killed or paused, and is lost after that.
        topom_settings={"heartbeat_seconds": 0.5, "proxy_lease_seconds": 5.0},
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_proxy_is_killed_in_the_middle_of_a_migration(start_cluster: StartCluster) -> None:
    cluster = await start(start_cluster)
    ours, theirs = cluster.proxy_addresses
    await cluster.load_ballast()
    async with traffic_on([ours]) as traffic, Counting(theirs) as counting:
        await cluster.api.set_migration(keys_per_second=SLOW)
        await cluster.api.move_slots("0-511", 2)
        await cluster.moving(10)
        await counting.progress()
        workers = cluster.worker_pids(1).values()
        await cluster.proxies[1].kill()

        async def left() -> list[int]:
            return [pid for pid in workers if is_alive(pid)]

        await eventually(left, lambda pids: not pids, "the workers to end with their supervisor")
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 512, 2: 512})
        await cluster.online(1)
        for server in (*cluster.groups[1], *cluster.groups[2]):
            assert len(await cluster.fence_users(server)) == 1
        await counting.stop()
        await check_clean(traffic, await cluster.layout())
    await counting.check(ours)
    assert await cluster.misplaced((0, 3)) == []

    cluster.proxies[1].start()
    await cluster.ready()
    await cluster.online(2)
    await cluster.check_ballast()

    # When: an empty server joins. By now the fence was set at every server that the lost proxy knows, and forgotten.
    spare = await cluster.add_server(2)
    await cluster.api.add_server(2, spare.address)

    async def role() -> str:
        async with plain_client(spare.address) as client:
            return str((await client.info("replication"))["role"])

    await eventually(role, lambda found: found == "slave", "the empty server to be filled")
    assert await cluster.fence_users(spare.address) == []


@pytest.mark.long
async def test_a_worker_is_killed_in_the_middle_of_a_migration(start_cluster: StartCluster) -> None:
    cluster = await start(start_cluster)
    ours, theirs = cluster.proxy_addresses
    await cluster.load_ballast()
    instances = {proxy["instance"] for proxy in await cluster.online(2)}
    async with traffic_on([ours]) as traffic, Counting(theirs) as counting:
        await cluster.api.set_migration(keys_per_second=SLOW)
        await cluster.api.move_slots("0-511", 2)
        await cluster.moving(10)
        first = cluster.worker_pids(1)[0]
        os.kill(first, signal.SIGKILL)

        async def worker() -> int:
            return cluster.worker_pids(1)[0]

        await eventually(worker, lambda pid: pid != first, "another worker in its place")
        await counting.progress()
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 512, 2: 512})
        await counting.progress()
        await counting.stop()
        await check_clean(traffic, await cluster.layout())
    await counting.check()
    assert [text for text in counting.errors if "onnection" not in text] == []
    assert {proxy["instance"] for proxy in await cluster.online(2)} == instances, "nothing had to be fenced"
    assert await cluster.misplaced((0, 3)) == []
    await cluster.ready()
    await cluster.check_ballast()


@pytest.mark.long
async def test_a_proxy_is_paused_for_longer_than_its_lease(start_cluster: StartCluster) -> None:
    cluster = await start(start_cluster)
    ours, theirs = cluster.proxy_addresses
    await cluster.load_ballast()
    former = {proxy["address"]: proxy["instance"] for proxy in await cluster.online(2)}
    async with traffic_on([ours]) as traffic, Counting(theirs, 50) as counting:
        assert any(slot("crc32", key.encode(), 1024) < 512 for key in counting.keys)
        cluster.signal_proxy(1, signal.SIGSTOP)
        # The clients go on sending: their commands wait in the paused workers' sockets, for slots that are leaving.
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest({1: 512, 2: 512})
        await cluster.online(1)
        cluster.signal_proxy(1, signal.SIGCONT)
        proxies = await cluster.online(2)
        await counting.progress()
        await counting.stop()
        await check_clean(traffic, await cluster.layout())
    # one-owner: no command that was sent by the old table has run.
    await counting.check()
    assert await cluster.misplaced((0, 3)) == []
    instances = {proxy["address"]: proxy["instance"] for proxy in proxies}
    assert instances[ours] == former[ours]
    assert instances[theirs] != former[theirs]
    await cluster.check_ballast()


@pytest.mark.long
async def test_sigterm_drains_a_proxy(start_cluster: StartCluster) -> None:
    cluster = await start(start_cluster)
    ours, theirs = cluster.proxy_addresses
    source = cluster.servers[1][0].pid
    async with traffic_on([ours]) as traffic:
        host, _, port = theirs.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"CLIENT SETNAME owed\r\n")
        assert await reader.readline() == b"+OK\r\n"
        async with plain_client(theirs) as other:
            # How many may be owed grows with the replies that there have been.
            writer.write(b"GET nothing\r\n" * 500)
            assert await reader.readexactly(2500) == b"$-1\r\n" * 500
            os.kill(source, signal.SIGSTOP)
            writer.write(b"INCR drained\r\n" * 500)
            await eventually(
                other.client_list,
                lambda clients: any(client["name"] == "owed" and client["owed"] == "500" for client in clients),
                "all commands to be in flight",
            )
        os.kill(cluster.proxies[1].pid, signal.SIGTERM)

        async def refused() -> bool:
            try:
                _, late = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                return True
            late.close()
            return False

        await eventually(refused, bool, "the proxy to stop listening")
        assert cluster.proxies[1].running
        os.kill(source, signal.SIGCONT)
        async with asyncio.timeout(60):
            assert await reader.read() == b"".join(b":%d\r\n" % number for number in range(1, 501))
        writer.close()
        assert await cluster.proxies[1].wait(60) == 0
        assert [proxy["address"] for proxy in await cluster.api.proxies()] == [ours], "it has left by itself"
        assert "proxy_lost" not in [entry.get("event") for entry in log_of(cluster.topom)]
        await check_clean(traffic, await cluster.layout())
