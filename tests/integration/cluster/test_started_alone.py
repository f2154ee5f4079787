"""Proxies that are started while topom is away: they serve by the table they have kept, unless slots have moved."""

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError

from proxy.supervisor.kept_table import coldstart
from proxy.supervisor.kept_table.tablefile import Kept, TableFile
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.connections import fence_user, proxy_prefix
from slots.group import Group
from slots.messages.message import Product
from slots.reserved import FENCED
from slots.slot import Slot
from slots.table import SlotTable
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, log_of, plain_client

INSTANCE = "ab" * 16


async def kill(cluster: Cluster) -> None:
    """Kill the proxy with its workers, and wait until topom has noticed."""
    cluster.signal_proxy(0, signal.SIGKILL)
    await cluster.proxies[0].wait(30)


async def events(cluster: Cluster, *names: str) -> list[dict[str, Any]]:
    """The proxy's log events of these names."""
    return [entry for entry in log_of(cluster.proxies[0]) if entry.get("event") in names]


@pytest.mark.long
async def test_one_owner_a_proxy_serves_alone_only_where_no_slot_has_moved(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    cluster = await start_cluster(
        groups=2,
        number_of_slots=64,
        slots_on=[1],
        topom_settings={"proxy_lease_seconds": 1.0, "heartbeat_seconds": 0.2},
        proxy_settings={"table_file": str(path)},
    )
    address = cluster.proxy_addresses[0]
    (before,) = await cluster.online(1)

    async def value() -> bytes | None:
        async with plain_client(address) as client:
            found: bytes | None = await client.get("k")
            return found

    async with plain_client(address) as client:
        await client.set("k", "1")

    async def known() -> set[str]:
        """Servers of which the file names the process."""
        found = TableFile(path).read()
        return set(found.processes) if found is not None else set()

    masters = {servers[0] for servers in cluster.groups.values()}
    await eventually(known, lambda found: found >= masters, "the servers' processes to be kept")
    await kill(cluster)
    assert await cluster.topom.stop() == 0
    cluster.proxies[0].start()
    await eventually(value, lambda found: found == b"1", "the proxy to serve without topom")
    assert [entry["instance"] for entry in await events(cluster, "serves_alone")] == [before["instance"]]
    await cluster.restart_topom()
    (again,) = await cluster.online(1)
    assert (again["id"], again["instance"]) == (before["id"], before["instance"]), "it is the member that it was"

    async def kept() -> int:
        return path.stat().st_size

    await eventually(kept, bool, "the newest table to be kept")
    await kill(cluster)
    # Slots move while it is away, which fences it; then topom goes.
    await cluster.api.move_slots("0-63", 2)
    await cluster.at_rest({1: 0, 2: 64})
    async with plain_client(cluster.groups[2][0]) as server:
        await server.set("k", "2")
    assert await cluster.topom.stop() == 0
    cluster.proxies[0].start()
    (refused,) = await eventually(
        lambda: events(cluster, "kept_table_not_served"), bool, "the kept table to be refused"
    )
    assert "has fenced this proxy off" in refused["reason"]
    with pytest.raises((RedisError, OSError)):
        await value()
    await cluster.restart_topom()
    (new,) = await cluster.online(1)
    assert new["instance"] != before["instance"]
    assert await eventually(value, bool, "the proxy to serve with topom") == b"2"
    assert len(await events(cluster, "serves_alone")) == 1


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    started = await start_redis("redis", tmp_path)
    yield started
    await started.stop()


async def test_what_keeps_a_proxy_from_serving_alone(server: RedisServer) -> None:
    table = SlotTable(3, (Slot(0, 1),), {1: Group(1, (server.address,))})
    kept = Kept(INSTANCE, Product(name="p", number_of_slots=1, slot_function="crc32", databases=16), table)

    async def found() -> str | None:
        return await coldstart.look_at_masters(kept, ServerAccess())

    async with plain_client(server.address) as client, plain_client(server.address) as old:
        await old.client_setname(f"{proxy_prefix(INSTANCE)}1.1.")
        # However old the server is by its clock, which may have been set since it was started.
        assert "was started after" in str(await found())
        kept = replace(kept, processes={server.address: str((await client.info("server"))["run_id"])})
        assert await found() is None
        names = [entry["name"] for entry in await client.client_list()]
        assert not any(name.startswith(proxy_prefix(INSTANCE)) for name in names), "what a former process left is ended"
        await client.hset(FENCED.decode(), INSTANCE, "1")
        assert "fenced" in str(await found())
        await client.delete(FENCED.decode())
        await client.execute_command("ACL", "SETUSER", fence_user(INSTANCE), "reset", "off")
        assert "fenced" in str(await found())
        await client.execute_command("ACL", "DELUSER", fence_user(INSTANCE))
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert "no master any more" in str(await found())
        await client.execute_command("REPLICAOF", "NO", "ONE")
    await server.stop()
    with pytest.raises(coldstart.Unknown, match="cannot be asked"):
        await found()
