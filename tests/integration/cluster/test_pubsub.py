"""Pub/sub over whole proxies: every subscriber hears every message once and in order, while slots move."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis.asyncio

from slots.ranges import show
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client

PUBLISHERS = 6
SUBSCRIBERS = 8
"""For each proxy, over its workers."""


class Publisher:
    """Publishes 1, 2, 3 ... to each of its channels, one message after the reply to the one before."""

    def __init__(self, client: redis.asyncio.Redis, channels: list[str]) -> None:
        self._client = client
        self._channels = channels
        self._going = True
        self.published = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._going:
            for channel in self._channels:
                # Each proxy has subscribers of the channel and of a pattern, at one worker at least.
                assert await self._client.publish(channel, self.published + 1) >= 4
            self.published += 1

    async def stop(self) -> None:
        self._going = False
        await self.task


async def hear(pubsub: redis.asyncio.client.PubSub, heard: dict[bytes, list[int]]) -> None:
    while True:
        message: Any = await pubsub.get_message(ignore_subscribe_messages=True, timeout=60)
        if message is not None:
            heard.setdefault(message["channel"], []).append(int(message["data"]))


@pytest.mark.long
async def test_two_proxies_three_groups_and_slots_that_move(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=3, proxies=2, workers=2, slots_on=[1, 2], topom_settings={"migration_parallel_slots": 128}
    )
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(plain_client(address)) for address in cluster.proxy_addresses]
        channels = [[f"channel-{number}-{n}" for n in range(20)] for number in range(PUBLISHERS)]
        every = [name for names in channels for name in names]
        all_heard: list[dict[bytes, list[int]]] = []
        hearing: list[asyncio.Task[None]] = []
        for number in range(SUBSCRIBERS * 2):
            pubsub = await stack.enter_async_context(clients[number % 2].pubsub())
            if number % 4 < 2:
                await pubsub.subscribe(*every)
                confirmations = len(every)
            else:
                await pubsub.psubscribe("channel-*")
                confirmations = 1
            for _ in range(confirmations):
                assert await pubsub.get_message(timeout=60) is not None
            all_heard.append({})
            hearing.append(asyncio.create_task(hear(pubsub, all_heard[-1])))

        async def counted() -> None:
            for client in clients:
                # Half of the clients of each proxy.
                assert await client.pubsub_numsub(*every) == [(name.encode(), SUBSCRIBERS) for name in every]
                assert await client.pubsub_numpat() == 1
                assert sorted(await client.pubsub_channels()) == sorted(name.encode() for name in every)

        await counted()
        publishers = []
        for number, names in enumerate(channels):
            client = await stack.enter_async_context(plain_client(cluster.proxy_addresses[number % 2]))
            publishers.append(Publisher(client, names))

        async def progress() -> int:
            return min(publisher.published for publisher in publishers)

        await eventually(progress, lambda found: found > 5, "messages to be published")
        await cluster.api.rebalance()
        await cluster.at_rest({1: 342, 2: 341, 3: 341})
        third = [slot["id"] for slot in (await cluster.api.slots())["slots"] if slot["group_id"] == 3]
        await cluster.api.move_slots(show(third), 1)
        await cluster.at_rest({1: 683, 2: 341, 3: 0})
        await cluster.api.remove_group(3)
        await counted()
        before = await progress()
        await eventually(progress, lambda found: found > before + 5, "messages to be published")
        for publisher in publishers:
            await publisher.stop()

        expected = {
            name.encode(): list(range(1, publisher.published + 1))
            for publisher, names in zip(publishers, channels, strict=True)
            for name in names
        }
        total = sum(map(len, expected.values()))

        async def fewest() -> int:
            return min(sum(map(len, heard.values())) for heard in all_heard)

        await eventually(fewest, lambda found: found >= total, "all messages to arrive")
        for heard in all_heard:
            assert heard == expected
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        await counted()
