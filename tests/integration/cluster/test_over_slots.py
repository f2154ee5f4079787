"""Clients that wait for keys of several slots while topom moves all slots to and fro: each element comes once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from slots.functions import slot
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client

QUEUES = [f"queue:{number}" for number in range(5)]
CLIENTS = 8


@pytest.mark.long
@pytest.mark.parametrize("way", ["keys", "stream"])
async def test_each_element_comes_once_while_all_slots_move(start_cluster: StartCluster, way: str) -> None:
    assert len({slot("crc32", queue.encode(), 1024) for queue in QUEUES}) == len(QUEUES)
    cluster = await start_cluster(
        groups=2,
        proxies=2,
        topom_settings={"migration_way": way},
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    found: list[int] = []
    pushed = 0
    moved = False

    async def pop(address: str, first: int) -> None:
        async with plain_client(address) as client:
            while True:
                _, element = await client.blpop(QUEUES[first:] + QUEUES[:first], timeout=0)
                found.append(int(element))

    async def push() -> None:
        nonlocal pushed
        async with plain_client(cluster.proxy_addresses[0]) as client:
            while not moved:
                # Now and then several at once, and a pause in which all wait.
                several = range(pushed, pushed + 1 + pushed % 3)
                pushed += len(several)
                await client.rpush(QUEUES[pushed % len(QUEUES)], *several)
                await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack:
        for number in range(CLIENTS):
            popping = asyncio.create_task(pop(cluster.proxy_addresses[number % 2], number % len(QUEUES)))
            stack.callback(popping.cancel)
        pushing = asyncio.create_task(push())
        try:
            for target in (2, 1):
                await cluster.api.move_slots("0-1023", target)
                await cluster.at_rest({target: 1024, 3 - target: 0})
        finally:
            moved = True
            await pushing

        async def count() -> int:
            return len(found)

        await eventually(count, lambda seen: seen >= pushed, "every element")
    assert sorted(found) == list(range(pushed))
