"""No copy is wiped unless another one is known to be whole (last-copy), over real servers that lose their data."""

import os
import signal
from typing import Any

import pytest
from redis.asyncio import Redis

from slotferry.calls import TopomRefused
from slotferry.redis_server import RedisServer
from slots.reserved import RESERVED
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client
from tests.integration.cluster.test_masters import QUICK
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica

KEYS = 5000


async def fill(client: Redis) -> None:
    for first in range(0, KEYS, 500):
        await client.mset({f"key:{number}": number for number in range(first, first + 500)})


async def keys_of(server: RedisServer) -> int:
    """How many keys of clients a server has."""
    async with plain_client(server.address) as client:
        return len([key async for key in client.scan_iter(count=1000) if not key.startswith(RESERVED)])


def process_of(cluster: Cluster, address: str) -> RedisServer:
    return next(server for server in cluster.servers[1] if server.address == address)


async def waits(cluster: Cluster, address: str) -> str:
    """What status says of a server of group 1."""
    servers: list[dict[str, Any]] = (await cluster.api.groups())[0]["servers"]
    return str(next(server["not_whole"] for server in servers if server["address"] == address))


@pytest.mark.long
async def test_a_master_that_came_back_empty_fills_nobody(start_cluster: StartCluster) -> None:
    """given a promotion that is not over, because a server of the group is down, and then a power cut."""
    cluster = await start_cluster(groups=1, proxies=1, workers=1, redis_arguments=PROMPT)
    for _ in range(2):
        await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    former, chosen, down = [process_of(cluster, address) for address in await servers_of(cluster, 1)]
    async with plain_client(former.address) as client:
        await fill(client)
        assert await client.wait(2, 30_000) == 2
    await down.kill()
    await cluster.api.promote(1, chosen.address)

    async def follows() -> bool:
        async with plain_client(former.address) as client:
            said = await client.info("replication")
        return (said.get("master_port"), said.get("master_link_status")) == (chosen.port, "up")

    await eventually(follows, bool, "the former master to follow")
    async with plain_client(former.address) as client:
        await client.save()
    # When: the power is cut. The new master has kept nothing. The former one has kept all but its master's address.
    await chosen.kill()
    await former.kill()
    for server in (chosen, former):
        server.start()
        await server.ready()
    assert (await keys_of(chosen), await keys_of(former)) == (0, KEYS)

    async def said() -> list[str]:
        return [
            event["text"] for event in (await cluster.api.events())["events"] if event["what"] == "master_lacks_data"
        ]

    (told, *_) = await eventually(said, bool, "an alarm")
    assert f"{former.address} holds {KEYS:,} keys and its master {chosen.address} 0" in told
    assert f"{former.address} holds {KEYS:,} keys" in await waits(cluster, former.address)
    assert await keys_of(former) == KEYS
    # When: an operator does as they are told.
    await chosen.kill()
    await cluster.api.promote(1, former.address, force=True)
    assert (await servers_of(cluster, 1))[0] == former.address
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    async with Redis(host=host, port=int(port)) as client:
        assert await client.get(f"key:{KEYS - 1}") == str(KEYS - 1).encode()
    for server in (chosen, down):
        server.start()
        await server.ready()
    await all_follow(cluster, 1)
    assert {await keys_of(server) for server in (former, chosen, down)} == {KEYS}


@pytest.mark.long
async def test_a_topom_that_has_just_come_to_lead_knows_that_a_replica_is_behind(start_cluster: StartCluster) -> None:
    """given a replica that was stopped while clients wrote, and a topom and a master that died."""
    settings = {**QUICK, "ha": "topom", "ha_lag_bytes_max": 100_000}
    cluster = await start_cluster(groups=2, proxies=1, workers=1, topom_settings=settings, redis_arguments=PROMPT)
    replica = await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    (master,) = [server for server in cluster.servers[1] if server is not replica]

    async def joins() -> bool:
        return any(server["joining"] for server in (await cluster.api.groups())[0]["servers"])

    await eventually(joins, lambda found: not found, "the replica to be whole")
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        async with plain_client(master.address) as client:
            # More than the sockets between them hold.
            for number in range(KEYS // 25):
                await client.set(f"large:{number}", "x" * 200_000)
            written = int((await client.info("replication"))["master_repl_offset"])
        # topom has stored the master's offset, up to an eighth of what a replica may lack.
        await cluster.offset_noted(1, past=written - 100_000 // 8 - 1)
        await cluster.topom.kill()
        await master.kill()
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    await cluster.restart_topom()

    async def reason() -> str:
        return str((await cluster.api.groups())[0]["reason"] or "")

    # Before that it may say that the replica, which goes on just now, does not answer yet.
    await eventually(reason, lambda said: "bytes behind what its master had" in said, "why there is no other master")
    assert await servers_of(cluster, 1) == [master.address, replica.address]
    assert await keys_of(replica) < KEYS // 25
    # When: an operator takes what there is.
    await cluster.api.promote(1, replica.address, force=True)
    assert (await servers_of(cluster, 1))[0] == replica.address


@pytest.mark.long
async def test_no_replica_is_named_a_master_that_takes_no_writes(start_cluster: StartCluster) -> None:
    """given a group that no slot needs, whose master is removed, or is to be used elsewhere."""
    cluster = await start_cluster(groups=2, proxies=1, workers=1, slots_on=[1], redis_arguments=PROMPT)
    replica = await add_replica(cluster, 2)
    await all_follow(cluster, 2)
    master, _ = await servers_of(cluster, 2)
    with pytest.raises(TopomRefused, match=f"{replica.address} follow it and take no writes") as refused:
        await cluster.api.remove_server(2, master)
    assert refused.value.error == "ServerInUse"
    await cluster.api.drain_server(2, master)
    await eventually(lambda: servers_of(cluster, 2), lambda servers: servers == [replica.address], "the replica alone")
    async with plain_client(replica.address) as client:
        assert await client.set("written", "there")
    # The server that has left still follows it.
    with pytest.raises(
        TopomRefused, match=f"{master} is a replica of {replica.address} and takes no writes"
    ) as refused:
        await cluster.api.add_group(3, [master])
    assert refused.value.error == "TakesNoWrites"
    async with plain_client(master) as client:
        await client.replicaof("NO", "ONE")
    await cluster.api.add_group(3, [master])
