"""A machine with a proxy and a master is lost: another master is made by itself, and the machine comes back."""

import os
import signal

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica
from tests.integration.worker.harness import slot_of
from tests.integration.worker.wire import Wire

SETTINGS = {
    "server_suspect_seconds": 0.5,
    "server_fail_seconds": 1.0,
    "server_view_seconds": 10.0,
    "heartbeat_seconds": 0.3,
    "proxy_lease_seconds": 1.0,
    "ha": "topom",
    "ha_lost_proxies": "stand_down",
    "stand_down_seconds": 1.5,
}
KEYS = [key for number in range(20) if slot_of(key := f"key {number}") < 512]
"""Of group 1."""


async def test_a_lost_machine_is_done_without(start_cluster: StartCluster) -> None:
    """given a proxy and a master that stop with requests under way, none of those is acknowledged when they wake."""
    cluster = await start_cluster(
        groups=2,
        proxies=2,
        workers=1,
        topom_settings=SETTINGS,
        proxy_settings={"lock_hold_seconds": 1.0},
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

    await eventually(stands_down, lambda found: found == [1.5, 1.5], "proxies that say that they stand down")
    first, second, *_ = KEYS
    async with Wire(cluster.proxy_addresses[0]) as before, Wire(cluster.proxy_addresses[0]) as after:
        for key in (first, second):
            assert await before.say("SET", key, 0) == b"+OK\r\n"
        assert await after.say("GET", first) == b"$1\r\n0\r\n"
        async with plain_client(master) as client:
            assert await client.wait(1, 30_000) == 1
        # When: it is at the master when that stops, and will be run when it wakes.
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
        # And: it is in the proxy's socket.
        after.send("INCR", second)
        await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == replica, "another master")
        async with plain_client(cluster.proxy_addresses[1], socket_timeout=20) as client:
            for key in (first, second):
                assert await client.incrby(key, 100) == 100
        # Then: it comes back, the worker and the master first, so that nobody is told anything by topom.
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
