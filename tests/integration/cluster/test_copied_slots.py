"""What clients see while topom has slots moved by the replication stream of their source."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.exceptions import WatchError

from slots.reserved import HIDDEN
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, meanwhile, plain_client

KEYS = {0: 20_000, 3: 500}
"""How many keys each database has."""
BY_STREAM = {"migration_way": "stream"}
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A copy is not to wait for replicas that might come."""


async def start(start_cluster: StartCluster, **options: Any) -> Cluster:
    cluster = await start_cluster(
        groups=2, topom_settings=BY_STREAM, redis_arguments=(*AT_ONCE, *options.pop("arguments", ())), **options
    )
    for group in (1, 2):
        await cluster.swept(group)
    return cluster


async def fill(cluster: Cluster, keys: dict[int, int] = KEYS) -> None:
    for database, count in keys.items():
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


@pytest.mark.long
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
        # How often they look while slots move is up to the machine.
        for _ in range(5):
            await move_all(cluster, 1, 2)
            await move_all(cluster, 2, 1)
            if min(sum(sizes.values()) for sizes in said.values()) > 20 and min(hidden.values()) > 5000:
                break
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


FEW = {0: 3000, 3: 300}
LIST, WATCHED, WRITTEN = "{session}list", "{session}watched", "{session}written"


@pytest.mark.long
async def test_sessions_go_on_over_the_switch(start_cluster: StartCluster) -> None:
    """Forward and back: nothing is missed, doubled or run at the wrong server."""
    cluster = await start(start_cluster, proxies=2, arguments=("--notify-keyspace-events", "KEA"))
    await fill(cluster, FEW)
    first, second = cluster.proxy_addresses
    published, written = itertools.count(), itertools.count()
    async with AsyncExitStack() as stack:
        client, waiting = [await stack.enter_async_context(plain_client(address)) for address in (first, first)]
        other = await stack.enter_async_context(plain_client(second))
        readers = {
            database: [await stack.enter_async_context(plain_client(one, db=database)) for one in (first, second)]
            for database in FEW
        }
        pubsub = await stack.enter_async_context(client.pubsub())
        await pubsub.subscribe("news")
        await pubsub.psubscribe("__keyevent@0__:*")
        for _ in range(2):
            assert "subscribe" in (await pubsub.get_message(timeout=30) or {})["type"]

        async def tell() -> None:
            await other.publish("news", next(published))
            await other.set(WRITTEN, next(written))

        async def scan() -> None:
            for database, pair in readers.items():
                seen, cursor, turns = set[bytes](), -1, itertools.cycle(pair)
                while cursor:
                    page: list[bytes]
                    cursor, page = await next(turns).scan(max(cursor, 0), count=100)
                    seen |= set(page)
                assert {f"key-{number}".encode() for number in range(FEW[database])} <= seen

        for source, target in ((1, 2), (2, 1)):
            pipe = await stack.enter_async_context(client.pipeline())
            await pipe.watch(WATCHED)
            pipe.multi()
            pipe.set(WATCHED, "mine")
            popped = asyncio.create_task(waiting.blpop(LIST, timeout=100))
            stack.callback(popped.cancel)
            async with meanwhile(tell, scan):
                await move_all(cluster, source, target)
            if target == 1:
                await other.set(WATCHED, "theirs")
            with pytest.raises(WatchError):
                await pipe.execute()
            assert await other.get(WATCHED) == (b"theirs" if target == 1 else None)
            assert not popped.done()
            await other.rpush(LIST, target)
            assert await popped == (LIST.encode(), str(target).encode())
        await other.publish("news", "over")
        news, events = list[bytes](), Counter[bytes]()
        while b"over" not in news:
            message = await pubsub.get_message(timeout=30, ignore_subscribe_messages=True)
            assert message is not None
            if message["type"] == "message":
                news.append(message["data"])
            else:
                events[message["data"]] += 1
    assert news == [*(str(number).encode() for number in range(next(published))), b"over"]
    # The keys that were copied and swept are heard of by nobody.
    assert set(events) <= {name.encode() for name in (WRITTEN, WATCHED, LIST)}
    assert events[WRITTEN.encode()] >= next(written)
