"""What an operator is told of a server that becomes a group: one that topom takes, and one that it does not."""

from pathlib import Path

import pytest

from slotferry.calls import TopomRefused
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.cluster.test_masters import QUICK
from tests.integration.cluster.test_promotion import all_follow
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica
from tests.integration.topom_process import address_of, redis_server


@pytest.mark.long
async def test_a_node_of_a_redis_cluster_is_refused_wherever_it_is_to_be(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = await start_cluster(groups=1, proxies=1, workers=1)
    with redis_server(tmp_path / "node", options=["--cluster-enabled", "yes"]) as node:
        address = address_of(node)
        for refused in (
            cluster.api.add_group(2, [address]),
            cluster.api.add_group(2, [address], offline_ok=True),
            cluster.api.add_server(1, address),
            cluster.api.add_to_pool(address),
        ):
            with pytest.raises(TopomRefused, match=f"{address} is a node of a Redis Cluster") as told:
                await refused
            assert told.value.error == "NoRedisServer"
    assert [group["id"] for group in await cluster.api.groups()] == [1]


@pytest.mark.long
async def test_the_keys_of_a_filled_server_are_told_of_if_other_groups_own_slots(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = await start_cluster(groups=1, proxies=1, workers=1, slots_on=[])
    with redis_server(tmp_path / "first") as first, redis_server(tmp_path / "other") as other:
        for server in (first, other):
            server.mset({"a": 1, "b": 2, "c": 3})
        # As when one Redis is adopted: nobody owns a slot yet.
        assert (await cluster.api.add_group(2, [address_of(first)]))["keys_held"] == 0
        await cluster.api.assign_slots("0-1023", 2)
        assert (await cluster.api.add_group(3, [address_of(other)]))["keys_held"] == 3
    with redis_server(tmp_path / "empty") as empty:
        assert (await cluster.api.add_group(4, [address_of(empty)]))["keys_held"] == 0


@pytest.mark.long
async def test_what_is_said_of_a_failed_master_that_nobody_replaces(start_cluster: StartCluster) -> None:
    """given topom's setting ha as it is by default, a group with a replica, and one without."""
    cluster = await start_cluster(groups=2, proxies=1, workers=1, redis_arguments=PROMPT, topom_settings=QUICK)
    replica = await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    master = cluster.servers[1][0]
    for server in (master, cluster.servers[2][0]):
        await server.kill()

    async def reasons() -> list[dict[str, str] | None]:
        return [group["reason"] for group in await cluster.api.groups()]

    found = await eventually(reasons, all, "both masters to fail")
    first, second = found
    assert first is not None
    assert second is not None
    assert 'ha is "off"' in first["what"]
    assert f"slotferry group promote 1 {replica.address} --force" in first["to_do"]
    assert "no replica" in second["what"]
    with pytest.raises(
        TopomRefused, match=f"{master.address}.* does not answer.*take the replica as it is with --force"
    ):
        await cluster.api.promote(1, replica.address)
    # When: what it says is done.
    await cluster.api.promote(1, replica.address, force=True)
    await eventually(reasons, lambda now: now[0] is None, "the first group to be well")


@pytest.mark.long
async def test_a_master_that_somebody_else_has_replaced_is_told_of_and_its_successor_can_be_named(
    start_cluster: StartCluster,
) -> None:
    """as Sentinels of another system do, while its servers are brought in here."""
    cluster = await start_cluster(groups=1, proxies=1, workers=1, redis_arguments=PROMPT, topom_settings=QUICK)
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    former, successor = cluster.servers[1]
    proxy = plain_client(cluster.proxy_addresses[0])
    async with proxy, plain_client(former.address) as old, plain_client(successor.address) as new:
        await proxy.set("before", 1)
        await old.wait(1, 0)
        await new.replicaof("NO", "ONE")
        await old.replicaof("127.0.0.1", str(successor.port))
        await new.set("after", 2)

        async def roles() -> list[str | None]:
            (group,) = await cluster.api.groups()
            return [server["role"] for server in group["servers"]]

        await eventually(roles, lambda now: now == ["replica", "master"], "topom to see what they are")
        with pytest.raises(TopomRefused, match=r"says that it is a replica itself.*with --force"):
            await cluster.api.promote(1, successor.address)
        await eventually(
            lambda: old.info("replication"), lambda told: told["master_link_status"] == "up", "the former to follow"
        )
        # When: what it says is done.
        await cluster.api.promote(1, successor.address, force=True)
        # Then: proxies write to the successor, and nothing is lost.
        assert [int(await proxy.get(key)) for key in ("before", "after")] == [1, 2]
        assert await proxy.set("later", 3)
        assert int(await new.get("later")) == 3
    await all_follow(cluster, 1)
