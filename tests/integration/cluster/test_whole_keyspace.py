"""Commands about all keys and all clients, through several proxies of several workers, while topom moves slots."""

import asyncio
import itertools
import random
from contextlib import AsyncExitStack

import redis.asyncio

from slots.ranges import show
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

NAMES = [f"key-{number}" for number in range(3000)]
KEYS = {name.encode() for name in NAMES}


MOVES = 8
"""How often slots have come to rest elsewhere before the test is over."""


async def keep_moving(cluster: Cluster, over: asyncio.Event, moves: list[tuple[int, int]]) -> None:
    """Have topom move half of the slots of one group to another, both ways, again and again."""
    for source, target in itertools.cycle([(3, 1), (1, 2), (2, 3), (1, 3), (3, 2), (2, 1)]):
        if over.is_set():
            return
        slots = [slot["id"] for slot in (await cluster.api.slots())["slots"] if slot["group_id"] == source]
        if len(slots) > 1:
            await cluster.api.move_slots(show(slots[::2]), target)
            await cluster.at_rest()
            moves.append((source, target))


async def scan(clients: list[redis.asyncio.Redis], seed: int) -> None:
    """Scan, each page through a random proxy, and miss nothing."""
    generator = random.Random(seed)
    seen = set[bytes]()
    cursor = -1
    while cursor:
        page: list[bytes]
        cursor, page = await generator.choice(clients).scan(max(cursor, 0), count=generator.choice([20, 100, 1000]))
        seen |= set(page)
    assert seen == KEYS


async def test_no_key_is_missed_while_topom_moves_slots(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=3, proxies=2, workers=2)
    over = asyncio.Event()
    moves: list[tuple[int, int]] = []
    async with AsyncExitStack() as stack:
        # Several connections each, so that all workers serve some.
        clients = [
            await stack.enter_async_context(plain_client(address))
            for address in cluster.proxy_addresses
            for _ in range(4)
        ]
        await clients[0].mset(dict.fromkeys(NAMES, "value"))
        moving = asyncio.create_task(keep_moving(cluster, over, moves))
        try:
            async with asyncio.timeout(400):
                for round_number in itertools.count():
                    if len(moves) >= MOVES:
                        break
                    await asyncio.gather(*(scan(clients, 4 * round_number + number) for number in range(4)))
                    found = await clients[round_number % len(clients)].keys("*")
                    assert len(found) == len(KEYS)
                    assert set(found) == KEYS
                    assert await clients[-1].dbsize() >= len(KEYS)
                    assert await clients[0].randomkey() in KEYS
                await clients[0].flushall()
                assert await clients[-1].dbsize() == 0
                assert await clients[-1].randomkey() is None
        finally:
            over.set()
            await moving


async def test_clients_of_all_workers_are_told_of_and_killed(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(proxies=1, workers=3)
    found: set[int] = set()

    async def worker_of_another_client() -> set[int]:
        async with plain_client(cluster.proxy_addresses[0], single_connection_client=True) as client:
            found.add(int(await client.client_id()) % 3)
        return found

    await eventually(worker_of_another_client, lambda workers: len(workers) == 3, "all workers to take clients")
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                plain_client(cluster.proxy_addresses[0], client_name=f"client-{number}", single_connection_client=True)
            )
            for number in range(24)
        ]
        numbers = [int(await client.client_id()) for client in clients]
        # The number tells the worker.
        assert {number % 3 for number in numbers} == {0, 1, 2}
        expected = {number: f"client-{index}" for index, number in enumerate(numbers)}

        async def listed(by: int) -> dict[int, str]:
            return {int(entry["id"]): entry["name"] for entry in await clients[by].client_list()}

        async def told_of(by: int, wanted: dict[int, str]) -> None:
            # A worker that is too busy to answer in time is left out.
            await eventually(lambda: listed(by), lambda found: found == wanted, "all clients to be listed")

        await told_of(0, expected)
        assert (await clients[5].info("clients"))["connected_clients"] == 24
        victims = [numbers[1], numbers[2], numbers[3]]
        for number in victims:
            assert await clients[0].client_kill_filter(_id=str(number)) == 1
            del expected[number]
        await told_of(7, expected)
        assert await clients[0].client_kill_filter(_type="normal") == 20
        await told_of(0, {numbers[0]: "client-0"})
        await clients[0].slowlog_reset()
        assert (await clients[0].info("commandstats"))["cmdstat_client"]["calls"] > 24
