"""Servers that join a group while its master changes, over real servers and with topom as a process."""

from typing import Any

import pytest

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.cluster.test_last_copy import fill, process_of
from tests.integration.cluster.test_masters import QUICK
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica

SLOWLY = 300
"""Microseconds that the master rests after each key while it gives a copy."""


@pytest.mark.long
async def test_last_copy_a_server_that_is_filled_while_its_master_is_drained_follows_the_new_one(
    start_cluster: StartCluster,
) -> None:
    """given a drained master that is switched off then, no replica is left behind with what that had."""
    settings = {**QUICK, "ha": "topom"}
    cluster = await start_cluster(groups=1, proxies=1, workers=1, topom_settings=settings, redis_arguments=PROMPT)
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)

    async def joining() -> dict[str, bool]:
        return {server["address"]: server["joining"] for server in (await cluster.api.groups())[0]["servers"]}

    await eventually(joining, lambda found: not any(found.values()), "both servers to be whole")
    former, new = [process_of(cluster, address) for address in await servers_of(cluster, 1)]
    async with plain_client(former.address) as client:
        await fill(client)
        await client.config_set("rdb-key-save-delay", SLOWLY)
    late = await cluster.add_server(1)
    await cluster.api.add_server(1, late.address)

    async def replication() -> dict[str, Any]:
        async with plain_client(late.address) as client:
            return dict(await client.info("replication"))

    await eventually(replication, lambda said: said.get("master_sync_in_progress") == 1, "it to be filled")
    await cluster.api.drain_server(1, former.address)

    async def servers() -> list[str]:
        return await servers_of(cluster, 1)

    await eventually(servers, lambda found: former.address not in found, "the master to have left")
    await eventually(joining, lambda found: not any(found.values()), "the server to be whole")
    said = await replication()
    assert (said["master_port"], said["master_link_status"]) == (new.port, "up")
    await former.kill()
    async with plain_client(new.address) as client:
        await client.set("late", "1")
        assert await client.wait(1, 30_000) == 1
