"""A proxy that was fenced off a server stays off it, whatever the server forgets, and however long topom is away."""

import os
import signal
from collections.abc import AsyncIterator

import pytest

from slots.connections import fence_user
from slots.reserved import FENCED
from tests.integration.cluster.harness import eventually, log_of, plain_client
from tests.integration.faults.cluster import FaultCluster
from tests.integration.worker.harness import slot_of
from tests.integration.worker.wire import Wire

KEY = next(key for number in range(100) if slot_of(key := f"key {number}") < 512)
"""Of group 1, until its slot moves to group 2."""
OTHER = next(key for number in range(100) if slot_of(key := f"key {number}") >= 512)
"""Of group 1 all the time."""
REASONS = (
    b"may have forgotten that this proxy was fenced off it",
    b"was fenced off the servers",
    b"has fenced this proxy off",
)


@pytest.fixture
async def fresh() -> AsyncIterator[FaultCluster]:
    """A cluster whose proxies have used both servers' slots, and know both servers."""
    cluster = FaultCluster(
        {"proxy_lease_seconds": 1.0}, {"workers": 1, "lock_hold_seconds": 0.3, "backend_connect_seconds": 0.5}
    )
    async with cluster, cluster.visit():
        for address in cluster.proxy_addresses:
            async with Wire(address) as wire:
                for key in (KEY, OTHER):
                    assert await wire.say("SET", key, "before") == b"+OK\r\n"
        yield cluster
        cluster.mend()


async def moved_without_the_second(cluster: FaultCluster) -> str:
    """Move the key's slot without the second proxy, and end topom; the identity that was fenced."""
    instance = (await cluster.instances())[cluster.proxy_addresses[1]]
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 512, 2: 512})
    async with Wire(cluster.proxy_addresses[0]) as wire:
        assert await wire.say("SET", KEY, "after") == b"+OK\r\n"
    await cluster.topom.kill()
    return instance


async def forget(server: str, instance: str) -> None:
    """Take the marks of a fence away from a server."""
    async with plain_client(server) as direct:
        await direct.hdel(FENCED.decode(), instance)
        await direct.execute_command("ACL", "DELUSER", fence_user(instance))


async def served_again(cluster: FaultCluster) -> None:
    """Once topom is back, the proxy takes another identity and the table that there is now."""
    cluster.mend()
    await cluster.restart_topom()
    await cluster.all_online()
    async with Wire(cluster.proxy_addresses[1]) as wire:

        async def get() -> bytes:
            return await wire.say("GET", KEY)

        await eventually(get, lambda reply: reply == b"$5\r\nafter\r\n", "what was written meanwhile")


async def refused(address: str, *words: str) -> bytes:
    """The error of a proxy that names the reason. No request before that may succeed either."""
    async with Wire(address) as wire:

        async def ask() -> bytes:
            reply = await wire.say(*words)
            assert reply.startswith((b"-ERR server ", b"-TRYAGAIN ")), reply
            return reply

        return await eventually(ask, lambda reply: any(reason in reply for reason in REASONS), "the reason")


async def test_a_server_that_has_forgotten_a_fence_is_not_used_by_who_has_not_seen_it(fresh: FaultCluster) -> None:
    """final-fence: the proxy is paused and cut off all the while; the former owner restarts without marks."""
    cluster = fresh
    cluster.signal_proxy(1, signal.SIGSTOP)
    cluster.topom_relays[1].cut()
    instance = await moved_without_the_second(cluster)
    server = cluster.servers[1][0]
    for servers in cluster.servers.values():
        await forget(servers[0].address, instance)
    await server.kill()
    await cluster.restart(server)
    cluster.signal_proxy(1, signal.SIGCONT)
    for key in (KEY, OTHER):
        for words in (("SET", key, "astray"), ("GET", key)):
            assert REASONS[0] in await refused(cluster.proxy_addresses[1], *words)
    async with plain_client(server.address) as direct:
        assert not await direct.exists(KEY)
        assert await direct.get(OTHER) == b"before"
    await served_again(cluster)


async def test_a_fence_that_one_worker_has_seen_is_final(fresh: FaultCluster) -> None:
    """final-fence: no worker uses any server, also where the marks are taken away from the same process."""
    cluster = fresh
    supervisor, address = cluster.proxies[1], cluster.proxy_addresses[1]
    os.kill(supervisor.pid, signal.SIGSTOP)
    cluster.topom_relays[1].cut()
    instance = await moved_without_the_second(cluster)
    await refused(address, "SET", KEY, "astray")
    for servers in cluster.servers.values():
        await forget(servers[0].address, instance)

    async def found() -> bool:
        return any(entry.get("event") == "fence_found" for entry in log_of(supervisor))

    for supervisor_knows in (False, True):
        assert await found() == supervisor_knows
        for words in (("SET", KEY, "astray"), ("GET", KEY), ("SET", OTHER, "astray"), ("GET", OTHER)):
            assert REASONS[1] in await refused(address, *words)
        os.kill(supervisor.pid, signal.SIGCONT)
        await eventually(found, bool, "the supervisor to know of the fence")
    async with plain_client(cluster.servers[1][0].address) as direct:
        assert not await direct.exists(KEY)
        assert await direct.get(OTHER) == b"before"
    await served_again(cluster)


async def test_without_topom_servers_that_were_not_started_anew_are_used_on(fresh: FaultCluster) -> None:
    """This holds also over new connections, for databases that were not used before."""
    cluster = fresh
    await cluster.topom.kill()
    for relay in cluster.relays.values():
        fault = relay.cut()
        relay.restrict_to_present(fault)
    for address in cluster.proxy_addresses:
        async with Wire(address) as wire:
            assert await wire.say("SELECT", "5") == b"+OK\r\n"
            for key in (KEY, OTHER):

                async def stored(key: str = key, wire: Wire = wire) -> bytes:
                    return await wire.say("SET", key, "without")

                await eventually(stored, lambda reply: reply == b"+OK\r\n", "the server to be used")
    await cluster.restart_topom()
