"""What clients see while topom has slots moved by the replication stream of their source."""

from collections import Counter

from slots.reserved import HIDDEN
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, meanwhile, plain_client

KEYS = {0: 20_000, 3: 500}
"""How many keys each database has."""
BY_STREAM = {"migration_way": "stream"}
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A copy is not to wait for replicas that might come."""


async def start(start_cluster: StartCluster, **options: object) -> Cluster:
    cluster = await start_cluster(
        groups=2, topom_settings=BY_STREAM, redis_arguments=(*AT_ONCE, *options.pop("arguments", ())), **options
    )
    for group in (1, 2):
        await cluster.swept(group)
    return cluster


async def fill(cluster: Cluster) -> None:
    for database, count in KEYS.items():
        async with plain_client(cluster.proxy_addresses[0], db=database) as client:
            for first in range(0, count, 5000):
                await client.mset({f"key-{number}": "x" for number in range(first, min(count, first + 5000))})


async def move_all(cluster: Cluster, source: int, target: int) -> None:
    """Move all slots of a group, and wait until they are at rest and the source is swept."""
    slots = [slot["id"] for slot in (await cluster.api.slots())["slots"] if slot["group_id"] == source]
    await cluster.api.move_slots(f"{slots[0]}-{slots[-1]}", target)
    await cluster.at_rest()

    async def left() -> int:
        async with plain_client(await cluster.master_of(source)) as server:
            return sum(entry["keys"] for entry in (await server.info("keyspace")).values())

    await eventually(left, lambda keys: keys < 10, "the source to be swept")


async def test_no_copy_is_counted_or_drawn_whatever_the_moment(start_cluster: StartCluster) -> None:
    cluster = await start(start_cluster, proxies=2)
    await fill(cluster)
    said: dict[int, Counter[int]] = {database: Counter() for database in KEYS}
    drawn = Counter[bool]()
    hidden = {1: 0, 2: 0}

    async def look() -> None:
        for group in hidden:
            async with plain_client(await cluster.master_of(group)) as server:
                hidden[group] = max(hidden[group], int(await server.hget(HIDDEN, "0") or 0))

    async def count() -> None:
        for address in cluster.proxy_addresses:
            for database in KEYS:
                async with plain_client(address, db=database) as client:
                    said[database][await client.dbsize()] += 1
                    drawn[await client.randomkey() is not None] += 1

    async with meanwhile(count, look):
        await move_all(cluster, 1, 2)
        await move_all(cluster, 2, 1)
    # It did move by copies.
    assert min(hidden.values()) > 5000
    assert {database: list(sizes) for database, sizes in said.items()} == {
        database: [count] for database, count in KEYS.items()
    }
    assert list(drawn) == [True]
    assert min(sum(sizes.values()) for sizes in said.values()) > 20
    for group in (1, 2):
        async with plain_client(await cluster.master_of(group)) as server:
            assert await server.exists(HIDDEN) == 0
