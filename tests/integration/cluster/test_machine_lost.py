"""A machine with a proxy and a master is lost: another master is made by itself, and the machine comes back."""

import asyncio
import os
import signal

import pytest

from slots.connections import ADMIN
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica
from tests.integration.worker.harness import slot_of
from tests.integration.worker.wire import Wire

ALLOWANCE = 3.0
SETTINGS = {
    "server_suspect_seconds": 1.0,
    "server_fail_seconds": 2.0,
    "server_view_seconds": 10.0,
    "heartbeat_seconds": 0.3,
    "proxy_lease_seconds": 2.0,
    "ha": "topom",
    "ha_lost_proxies": "stand_down",
    "stand_down_seconds": ALLOWANCE,
}
KEYS = [key for number in range(100) if slot_of(key := f"{number} key {number}") < 512]
"""Of group 1."""


async def known_to_proxies(cluster: Cluster, replica: str) -> None:
    """Both proxies have looked at a replica, and topom has answered each of them since."""

    async def looks() -> list[str]:
        async with plain_client(replica) as client:
            return [entry["name"] for entry in await client.client_list() if entry["name"] == ADMIN]

    async def requests() -> list[int]:
        return [proxy["counters"]["requests"] for proxy in (await cluster.api.status())["proxies"]]

    await eventually(looks, lambda names: len(names) >= 2, "both proxies to look at the replica")
    before = await requests()
    for address in cluster.proxy_addresses:
        async with plain_client(address) as client:
            await client.set(KEYS[0], 0)
    more = "a heartbeat of each proxy"
    await eventually(requests, lambda now: all(n > b for n, b in zip(now, before, strict=True)), more)


async def serve_without_topom(cluster: Cluster, replica: str) -> None:
    """While topom is silent a group is served as long as its replicas answer, and one without replicas in any case."""
    loop = asyncio.get_running_loop()
    server = next(server.pid for server in cluster.servers[1] if server.address == replica)
    other = next(key for number in range(100) if slot_of(key := f"{number} key {number}") >= 512)
    await known_to_proxies(cluster, replica)
    async with Wire(cluster.proxy_addresses[0]) as one, Wire(cluster.proxy_addresses[1]) as two:
        os.kill(cluster.topom.pid, signal.SIGSTOP)
        until = loop.time() + 1.5 * ALLOWANCE
        while loop.time() < until:
            for wire in (one, two):
                assert await wire.say("SET", KEYS[0], 0) == b"+OK\r\n"
            await asyncio.sleep(0.02)
        os.kill(server, signal.SIGSTOP)

        async def refused() -> bytes:
            return await one.say("GET", KEYS[0])

        await eventually(refused, lambda reply: reply.startswith(b"-TRYAGAIN"), "the group to be served no more")
        assert await one.say("SET", other, 0) == b"+OK\r\n"
        os.kill(server, signal.SIGCONT)
        for wire in (one, two):

            async def served(wire: Wire = wire) -> bytes:
                return await wire.say("SET", KEYS[0], 0)

            await eventually(served, lambda reply: reply == b"+OK\r\n", "the group to be served")
        os.kill(cluster.topom.pid, signal.SIGCONT)
    await cluster.online(2)


@pytest.mark.long
async def test_a_lost_machine_is_done_without(start_cluster: StartCluster) -> None:
    """given a proxy and a master that stop with requests under way, none of those is acknowledged when they wake.

    Proxies that hear no topom serve a group all the while if its replicas answer.
    """
    cluster = await start_cluster(
        groups=2,
        proxies=2,
        workers=1,
        topom_settings=SETTINGS,
        proxy_settings={"lock_hold_seconds": 0.5},
        redis_arguments=PROMPT,
    )
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    master, replica = await servers_of(cluster, 1)
    machine = [
        cluster.proxies[0].pid,
        cluster.worker_pids(0)[0],
        next(server.pid for server in cluster.servers[1] if server.address == master),
    ]

    async def stands_down() -> list[object]:
        return [proxy["stand_down_seconds"] for proxy in (await cluster.api.status())["proxies"]]

    await eventually(
        stands_down, lambda found: found == [ALLOWANCE, ALLOWANCE], "proxies that say that they stand down"
    )
    await serve_without_topom(cluster, replica)
    first, second, *_ = KEYS
    async with Wire(cluster.proxy_addresses[0]) as before, Wire(cluster.proxy_addresses[0]) as after:
        for key in (first, second):
            assert await before.say("SET", key, 0) == b"+OK\r\n"
        assert await after.say("GET", first) == b"$1\r\n0\r\n"
        async with plain_client(master) as client:
            assert await client.wait(1, 30_000) == 1
        # When: one request is at the master when the master stops, and will be run when the master wakes.
        os.kill(machine[2], signal.SIGSTOP)
        before.send("INCR", first)
        async with plain_client(cluster.proxy_addresses[0]) as client:
            await eventually(
                client.client_list,
                lambda clients: any(entry["owed"] == "1" for entry in clients if entry["cmd"] == "incr"),
                "a request at the master",
            )
        for pid in machine[:2]:
            os.kill(pid, signal.SIGSTOP)
        # And: another request is in the proxy's socket.
        after.send("INCR", second)
        await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == replica, "another master")
        async with plain_client(cluster.proxy_addresses[1], socket_timeout=20) as client:
            for key in (first, second):
                assert await client.incrby(key, 100) == 100
        # Then: it comes back, the worker and the master first, so that topom tells neither of them anything.
        for pid in reversed(machine[1:]):
            os.kill(pid, signal.SIGCONT)
        for wire in (before, after):
            assert (await wire.heard()).startswith((b"-ERR server", b"-TRYAGAIN"))
        os.kill(machine[0], signal.SIGCONT)
        await cluster.online(2)
        await all_follow(cluster, 1)
        assert await servers_of(cluster, 1) == [replica, master]
        for wire, key in ((before, second), (after, first)):

            async def get(wire: Wire = wire, key: str = key) -> bytes:
                return await wire.say("GET", key)

            await eventually(get, lambda reply: reply == b"$3\r\n100\r\n", "what the other proxy wrote")
    events = [event["what"] for event in (await cluster.api.events(limit=100))["events"]]
    assert "proxy_stood_down" in events
