"""PUBLISH answers the number of clients of all proxies that get the message, as one Redis would."""

import json
from contextlib import AsyncExitStack

import redis.asyncio

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

USERS = [
    {"name": "default", "no_password": True},
    {"name": "shop", "password": "p", "prefix": "shop:"},
]
SETTINGS = {"publish_counts_clients": True, "users": json.dumps(USERS)}


class Clients:
    """Subscribers by way of both proxies in turn, so many each that every worker has some."""

    def __init__(self, cluster: Cluster, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self.shop = [self._client(address, username="shop", password="p") for address in cluster.proxy_addresses]
        self.all = [self._client(address) for address in cluster.proxy_addresses]

    def _client(self, address: str, **options: str) -> redis.asyncio.Redis:
        return plain_client(address, **options)

    async def subscribe(
        self, count: int, channels: tuple[str, ...] = (), patterns: tuple[str, ...] = (), shop: bool = False
    ) -> list[redis.asyncio.client.PubSub]:
        made = []
        for number in range(count):
            pubsub = (self.shop if shop else self.all)[number % 2].pubsub()
            made.append(await self._stack.enter_async_context(pubsub))
            if channels:
                await pubsub.subscribe(*channels)
            if patterns:
                await pubsub.psubscribe(*patterns)
            for _ in (*channels, *patterns):
                assert await pubsub.get_message(timeout=60) is not None
        return made

    async def close(self) -> None:
        for client in (*self.all, *self.shop):
            await client.aclose()


async def test_all_clients_of_two_proxies_are_counted(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2, workers=2, proxy_settings=SETTINGS)
    async with AsyncExitStack() as stack:
        clients = Clients(cluster, stack)
        stack.push_async_callback(clients.close)
        one, other = clients.all

        async def published(*channels: str, shop: bool = False) -> list[list[int]]:
            """What both proxies say of each channel."""
            publishers = clients.shop if shop else clients.all
            return [[await client.publish(name, "m") for client in publishers] for name in channels]

        assert await published("news", "other") == [[0, 0], [0, 0]]
        listening = await clients.subscribe(9, channels=("news",))
        assert await published("news", "other") == [[9, 9], [0, 0]]
        # Each of these gets a message of news twice, as Redis counts it.
        both = await clients.subscribe(7, channels=("news",), patterns=("n*",))
        assert await published("news", "new", "other") == [[23, 23], [7, 7], [0, 0]]
        # Other patterns, one of which matches everything.
        await clients.subscribe(5, patterns=("n?ws", "o*", "*"))
        assert await published("news", "new", "other") == [[33, 33], [12, 12], [10, 10]]
        # A user with a prefix: its channel is another one, and its patterns are its own.
        await clients.subscribe(6, channels=("news",), patterns=("ne*",), shop=True)
        assert await published("news", shop=True) == [[6 + 6 + 5] * 2]
        assert await published("news", "shop:news", "shop:new") == [[33, 33], [17, 17], [11, 11]]
        # Shard channels have no patterns.
        for number in range(5):
            async with clients.all[number % 2].pubsub() as pubsub:
                await pubsub.ssubscribe("news")
                assert await pubsub.get_message(timeout=60) is not None
                assert await one.execute_command("SPUBLISH", "news", "m") >= 1
        # Whoever leaves by a command is not counted from the confirmation on.
        for pubsub in both[:4]:
            await pubsub.punsubscribe()
        for pubsub in both[:4]:
            while (message := await pubsub.get_message(timeout=60)) is None or message["type"] != "punsubscribe":
                pass
        assert await published("news", "new") == [[29, 29], [8, 8]]
        # A client that is gone is not counted once its worker has seen it.
        for pubsub in (*listening, *both):
            await pubsub.aclose()
        await eventually(lambda: one.publish("news", "m"), lambda number: number == 10, "clients to be gone")
        assert await published("new") == [[5, 5]]
        # In a transaction, it is the server's number: workers, each once for the channel and for a pattern.
        async with other.pipeline(transaction=True) as pipe:
            pipe.publish("news", "m")
            number = (await pipe.execute())[0]
        assert 2 <= number <= 8
