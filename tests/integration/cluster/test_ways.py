"""Which way keys go, in a whole cluster: topom carries them where it has to, and says so."""

from typing import Any

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Counting, eventually, plain_client
from tests.integration.cluster.test_replica_reads import PROMPT


async def test_keys_are_deleted_once_replicas_have_them(start_cluster: StartCluster) -> None:
    """given a target without the replica that is wanted, slots stay; once it has one, this has all that came."""
    cluster = await start_cluster(groups=2, workers=2, slots_on=[1], redis_arguments=PROMPT)
    await cluster.load_ballast()
    replica = await cluster.add_server(2)
    await cluster.api.set_migration(min_replicas=1)

    async def messages() -> list[str]:
        return [str(batch["message"]) for batch in (await cluster.api.migration())["batches"]]

    async with Counting(cluster.proxy_addresses[0]) as counting:
        await cluster.api.move_slots("0-511", 2)
        await eventually(messages, lambda found: "has 0 replicas online" in "".join(found), "the lack to be named")
        actions: list[dict[str, Any]] = [slot["action"] for slot in (await cluster.api.slots())["slots"]]
        assert {action.get("state") for action in actions} == {None, "pending"}

        async with plain_client(replica.address) as client:
            await client.replicaof("127.0.0.1", str(cluster.servers[2][0].port))
        await cluster.api.add_server(2, replica.address)
        await cluster.at_rest({1: 512, 2: 512})
        await counting.progress()
        await counting.stop()
        await counting.check()
    await cluster.check_ballast()
    async with (
        plain_client(cluster.servers[1][0].address) as source,
        plain_client(cluster.servers[2][0].address) as target,
        plain_client(replica.address) as follower,
    ):
        assert "cmdstat_migrate" not in await source.info("commandstats")
        await target.wait(1, 10_000)
        assert await follower.dbsize() == await target.dbsize() > 100


async def test_the_way_that_is_set_is_the_way_that_keys_go(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, workers=2, slots_on=[1])
    await cluster.load_ballast()

    async def carried() -> bool:
        return any(slot["action"].get("carried") for slot in (await cluster.api.slots())["slots"])

    await cluster.api.set_migration(way="carried", keys_per_second=1000)
    async with Counting(cluster.proxy_addresses[0]) as counting:
        await cluster.api.move_slots("0-511", 2)
        await eventually(carried, bool, "slots to be carried")
        # One that is cancelled goes back the way it came.
        await cluster.moving(10)
        await cluster.api.cancel_migration("0-255")
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 768, 2: 256})
        async with plain_client(cluster.servers[1][0].address) as source:
            assert "cmdstat_migrate" not in await source.info("commandstats")
            await cluster.api.set_migration(way="direct")
            await cluster.api.move_slots("0-511", 2)
            await cluster.at_rest({1: 512, 2: 512})
            assert (await source.info("commandstats"))["cmdstat_migrate"]["calls"] > 0
        await counting.stop()
        await counting.check()
    await cluster.check_ballast()
