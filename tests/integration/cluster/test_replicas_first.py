"""Keys that replicas of the target are to have before they are deleted at their source, in a whole cluster."""

from typing import Any

import pytest

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Counting, eventually, plain_client
from tests.integration.cluster.test_replica_reads import PROMPT


@pytest.mark.long
async def test_keys_are_deleted_once_replicas_have_them(start_cluster: StartCluster) -> None:
    """given a target without the replica that is wanted, slots stay; once it has one, this has all that came."""
    cluster = await start_cluster(groups=2, workers=2, slots_on=[1], redis_arguments=PROMPT)
    await cluster.load_ballast()
    replica = await cluster.add_server(2)
    await cluster.api.set_migration(min_replicas=1)

    async def reasons() -> list[str]:
        return [str(batch["reason"]) for batch in (await cluster.api.migration())["batches"]]

    async def actions() -> list[dict[str, Any]]:
        return [slot["action"] for slot in (await cluster.api.slots())["slots"]]

    async with Counting(cluster.proxy_addresses[0]) as counting:
        await cluster.api.move_slots("0-511", 2)
        await eventually(reasons, lambda found: "has 0 replicas online" in "".join(found), "the lack to be named")
        assert {action.get("state") for action in await actions()} == {None, "pending"}

        async with plain_client(replica.address) as client:
            await client.replicaof("127.0.0.1", str(cluster.servers[2][0].port))
        await cluster.api.set_migration(keys_per_second=50)
        await cluster.api.add_server(2, replica.address)
        # Proxies know it, too, for the keys that clients wait for.
        await cluster.moving(10)
        assert {action.get("min_replicas") for action in await actions() if action} == {1}
        await counting.progress()
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 512, 2: 512})
        await counting.progress()
        await counting.stop()
        await counting.check()
    await cluster.check_ballast()
    async with plain_client(cluster.servers[2][0].address) as target, plain_client(replica.address) as follower:
        assert (await target.info("commandstats"))["cmdstat_wait"]["calls"] > 0
        await target.wait(1, 10_000)
        assert await follower.dbsize() == await target.dbsize() > 100


@pytest.mark.long
async def test_a_move_whose_replicas_are_gone_goes_on_once_nobody_waits_for_them(start_cluster: StartCluster) -> None:
    """given a target that loses its replica meanwhile, nothing is deleted at the source that only the target has."""
    cluster = await start_cluster(groups=2, workers=2, slots_on=[1], redis_arguments=PROMPT)
    await cluster.load_ballast()
    replica = await cluster.add_server(2)
    async with plain_client(replica.address) as client:
        await client.replicaof("127.0.0.1", str(cluster.servers[2][0].port))
    await cluster.api.add_server(2, replica.address)
    await cluster.api.set_migration(min_replicas=1, keys_per_second=50)

    async def reasons() -> list[str]:
        return [str(batch["reason"]) for batch in (await cluster.api.migration())["batches"]]

    async def online() -> int:
        async with plain_client(cluster.servers[2][0].address) as target:
            return int((await target.info("replication"))["connected_slaves"])

    await eventually(online, bool, "the replica to follow")
    await cluster.api.move_slots("0-511", 2)
    await cluster.moving(10)
    await replica.stop()
    await eventually(reasons, lambda found: "has 0 replicas" in "".join(found), "the lack to be named")
    await cluster.api.set_migration(min_replicas=0, keys_per_second=0)
    await cluster.at_rest({1: 512, 2: 512})
    await cluster.check_ballast()
