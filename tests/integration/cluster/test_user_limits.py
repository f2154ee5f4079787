"""The limits of a user hold over all workers of all proxies together, wherever its clients are."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

REQUESTS = 200
"""A second: far fewer than any machine can serve."""
VALUE = 1000
BYTES = 100_000
CONNECTIONS = 4
SECONDS = 5.0
SETTLED = 3
TOLERANCE = 0.1
USERS = [
    {"name": "default", "no_password": True},
    {"name": "tenant", "password": "t", "requests_per_second": REQUESTS},
    {"name": "heavy", "password": "h", "bytes_per_second": BYTES},
    {"name": "four", "password": "f", "connections": CONNECTIONS},
]
CLIENTS = 4
"""At each worker."""


class Load:
    """Clients that ask again as soon as they are answered."""

    def __init__(self) -> None:
        self.served = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._going = True

    def begin(self, clients: Iterable[redis.asyncio.Redis]) -> None:
        self._tasks += [asyncio.create_task(self._ask(client)) for client in clients]

    async def _ask(self, client: redis.asyncio.Redis) -> None:
        while self._going:
            await client.get("value")
            self.served += 1

    async def rate(self, seconds: float = SECONDS) -> float:
        """How many were served in a second."""
        before, began = self.served, time.monotonic()
        await asyncio.sleep(seconds)
        for task in self._tasks:
            if task.done():
                task.result()
        return (self.served - before) / (time.monotonic() - began)

    async def settled(self, limit: float) -> None:
        """Wait until shares have followed the clients: the limit is used for some seconds, one after another."""
        seen: list[float] = []

        async def look() -> list[float]:
            seen.append(await self.rate(1.0))
            return seen[-SETTLED:]

        def steady(rates: list[float]) -> bool:
            return len(rates) == SETTLED and all(abs(rate - limit) < limit * TOLERANCE for rate in rates)

        await eventually(look, steady, "the limit to be used")

    async def end(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks, return_exceptions=True)


Connect = Callable[..., Awaitable[list[redis.asyncio.Redis]]]


@asynccontextmanager
async def connecting(user: str) -> AsyncIterator[Connect]:
    """Makes clients of a user at one worker of one proxy."""
    async with AsyncExitStack() as stack:

        async def connect(address: str, worker: int, count: int = CLIENTS) -> list[redis.asyncio.Redis]:
            found: list[redis.asyncio.Redis] = []
            while len(found) < count:
                client = plain_client(address, username=user, password=user[0], single_connection_client=True)
                await stack.enter_async_context(client)
                # Numbers of one worker's clients are as far apart as there are workers.
                if await client.client_id() % 2 == worker:
                    found.append(client)
            return found

        yield connect


@asynccontextmanager
async def loaded() -> AsyncIterator[Load]:
    load = Load()
    try:
        yield load
    finally:
        await load.end()


async def started(start_cluster: StartCluster, **settings: Any) -> Cluster:
    cluster = await start_cluster(
        groups=1, proxies=2, workers=2, proxy_settings={"users": json.dumps(USERS)}, topom_settings=settings
    )
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.set("value", b"x" * VALUE)
    return cluster


@pytest.mark.long
@pytest.mark.parametrize("user", ["tenant", "heavy"])
async def test_the_sum_over_all_workers_is_the_limit(start_cluster: StartCluster, user: str) -> None:
    # The request has 30 bytes or so: *2 $3 GET $5 value. The reply has 10 more than the value.
    limit = REQUESTS if user == "tenant" else BYTES / (VALUE + len("$1000\r\n\r\n") + 24)
    cluster = await started(start_cluster)
    one, two = cluster.proxy_addresses
    async with connecting(user) as connect, loaded() as load:
        at_one = await connect(one, 0)
        elsewhere = [*await connect(one, 1), *await connect(two, 0, 2 * CLIENTS)]
        # All at one worker
        load.begin(at_one)
        await load.settled(limit)
        assert await load.rate() == pytest.approx(limit, rel=TOLERANCE)
        # At three of four, more at one of them
        load.begin(elsewhere)
        await load.settled(limit)
        assert await load.rate() == pytest.approx(limit, rel=TOLERANCE)


@pytest.mark.long
async def test_shares_hold_while_topom_is_away_and_a_dead_proxy_gives_its_back(start_cluster: StartCluster) -> None:
    cluster = await started(start_cluster, proxy_lease_seconds=5.0)
    one, two = cluster.proxy_addresses
    async with connecting("tenant") as connect:
        async with loaded() as load:
            load.begin([*await connect(one, 0), *await connect(two, 1)])
            await load.settled(REQUESTS)
            await cluster.topom.kill()
            assert await load.rate() == pytest.approx(REQUESTS, rel=TOLERANCE)
            cluster.topom.start()
            await cluster.topom_ready()
            await load.settled(REQUESTS)
        async with loaded() as load:
            load.begin(await connect(one, 1))
            await cluster.proxies[1].kill(family=True)
            await load.settled(REQUESTS)
            assert await load.rate() == pytest.approx(REQUESTS, rel=TOLERANCE)


@pytest.mark.long
async def test_connections_are_counted_at_all_workers_together(start_cluster: StartCluster) -> None:
    cluster = await started(start_cluster)
    one, two = cluster.proxy_addresses
    async with AsyncExitStack() as stack:

        async def new(address: str, worker: int) -> redis.asyncio.Redis:
            """A client at one worker that has yet to log in as the user."""
            client = plain_client(address, single_connection_client=True)
            await stack.enter_async_context(client)
            return client if await client.client_id() % 2 == worker else await new(address, worker)

        async def let_in(client: redis.asyncio.Redis) -> bool:
            try:
                return bool(await client.execute_command("AUTH", "four", "f"))
            except redis.exceptions.NoPermissionError as error:
                if "connections at all proxies together, none is free here" not in str(error):
                    raise
                return False

        # All at one worker
        inside = [await new(one, 1) for _ in range(CONNECTIONS)]
        for client in inside:
            await eventually(lambda client=client: let_in(client), bool, "it to be let in")
        others = [await new(one, 0), await new(one, 1), await new(two, 0), await new(two, 1)]
        for _ in range(20):
            assert not any([await let_in(client) for client in others])
            await asyncio.sleep(0.1)
        # What is free goes to the other proxy, also while the next one is asked for where it was.
        await inside.pop().aclose()
        await eventually(lambda: let_in(others[2]), bool, "the free one to be let in at the other proxy")
        assert not any([await let_in(client) for client in others[:2]])
