"""Slots of a whole cluster that move by the stream of their source's replicas, while clients work."""

import pytest
from redis.asyncio import Redis

from slotferry.traffic.placement import Layout
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, check_clean, eventually, log_of, plain_client, traffic_on
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica


async def followed(cluster: Cluster, *servers: str) -> str:
    """The one of these replicas that a batch follows, by its notes."""

    async def look() -> list[str]:
        notes = [note for batch in (await cluster.api.migration())["batches"] for note in batch["notes"]]
        return [server for server in servers if f"follows replica {server}" in notes]

    (server,) = await eventually(look, bool, f"a copy that follows one of {servers}")
    return server


async def syncs(master: Redis) -> int:
    """How many whole copies the master has given to replicas."""
    return int((await master.info("stats"))["sync_full"])


@pytest.mark.long
async def test_slots_move_by_a_replica_and_by_another_one_if_that_is_lost(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2,
        proxies=1,
        topom_settings={"migration_way": "stream", "migration_keys_per_second": 1000},
        redis_arguments=PROMPT,
    )
    replicas = {server.address: server for server in [await add_replica(cluster, 1) for _ in range(2)]}
    async with (
        plain_client(await cluster.master_of(1)) as master,
        traffic_on(cluster.proxy_addresses, keys=4000, rate=500) as traffic,
    ):
        for address in replicas:
            async with plain_client(address) as client:

                async def is_up(client: Redis = client) -> bool:
                    return bool((await client.info("replication"))["master_link_status"] == "up")

                await eventually(is_up, bool, f"the link of {address}")
        before = await syncs(master)
        slots = "0-255"
        await cluster.api.move_slots(slots, 2)
        first = await followed(cluster, *replicas)
        async with plain_client(first) as client:
            await client.replicaof("NO", "ONE")
        second = await followed(cluster, *replicas.keys() - {first})
        await cluster.at_rest({1: 256, 2: 768})
        await cluster.swept(1)
        assert await syncs(master) <= before + 1, "a copy is not the master's to make; the lost replica may be filled"
        # Replicas are not looked at.
        await check_clean(traffic, Layout.from_api(await cluster.api.status(), await cluster.api.slots()))
    servers = [event["server"] for event in log_of(cluster.topom) if event.get("event") == "copy_follows"]
    assert servers == [first, second]
