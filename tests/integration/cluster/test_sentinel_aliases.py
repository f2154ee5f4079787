"""A replica that its master, and so every Sentinel, knows by another address than topom does."""

from contextlib import AsyncExitStack

import pytest

from tests.integration.cluster.harness import Cluster, eventually, plain_client
from tests.integration.cluster.sentinels import WATCHED, start_three

ALIAS = "127.0.0.9"


@pytest.mark.long
async def test_a_replica_that_sentinels_know_otherwise_is_told_and_the_remedy_works() -> None:
    cluster = Cluster(
        groups=1,
        proxies=1,
        topom_settings={"product": WATCHED, "ha": "sentinel"},
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        await stack.enter_async_context(cluster.visit())
        sentinels = await start_three(cluster, stack)
        for sentinel in sentinels:
            await cluster.api.add_sentinel(sentinel.address)
        replica = await cluster.add_server(1)
        async with plain_client(replica.address) as client:
            await client.config_set("replica-announce-ip", ALIAS)
        await cluster.api.add_server(1, replica.address)

        async def told() -> str:
            servers = (await cluster.api.groups())[0]["servers"]
            return str(next(server["not_used"] for server in servers if server["address"] == replica.address))

        said = await eventually(told, lambda said: said != "None", "topom to say how Sentinels know the replica")
        assert f"by another address ({ALIAS}:{replica.port})" in said
        assert "CONFIG SET replica-announce-ip 127.0.0.1, CONFIG SET replica-announce-port" in said
        # When: an operator does what topom says.
        async with plain_client(replica.address) as client:
            await client.config_set("replica-announce-ip", "127.0.0.1")
            await client.config_set("replica-announce-port", str(replica.port))
            await client.execute_command("CLIENT", "KILL", "TYPE", "master")
        await cluster.api.resync_sentinels()
        await eventually(told, lambda said: said == "None", "topom to find the replica where it has it")

        async def known() -> list[set[str]]:
            return [set(await sentinel.replicas(1)) for sentinel in sentinels]

        await eventually(
            known, lambda found: found == [{replica.address}] * 3, "all Sentinels to know the replica by its address"
        )
