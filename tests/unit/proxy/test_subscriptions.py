"""A worker's subscriptions at its servers, in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio

from proxy import subscriptions
from proxy.engine.requests import Loop
from proxy.messages import Kind
from proxy.settings import ProxySettings
from proxy.subscriptions import Subscriptions, cost
from slots.table import Group, Slot, SlotTable


class Listener:
    """A session as far as messages go."""

    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        self.heard: list[bytes] = []

    def push(self, data: bytes) -> None:
        self.heard.append(data)


class Played:
    """The subscriptions with the worker's other parts played by the test."""

    def __init__(self, *servers: str) -> None:
        self.loop = Loop(asyncio.get_running_loop(), 2)
        self.table = SlotTable(1, (Slot(0), Slot(1)), {n: Group(n, (server,)) for n, server in enumerate(servers)})
        settings = ProxySettings(backend_retry_seconds_min=0.01, backend_retry_seconds_max=0.05)
        names = (f"test-{number}." for number in range(1000))
        options = SimpleNamespace(
            password="",
            user="",
            tls=None,
            instance="f" * 32,
            new_name=names.__next__,
            connect_seconds=5.0,
            queue_pause_bytes=1_000_000,
            window_bytes=4_194_304,
            retry_seconds_min=0.01,
            retry_seconds_max=0.05,
            on_lost=lambda address, name: None,
            on_disconnected=lambda address: None,
            on_fenced=lambda address: None,
        )
        router = SimpleNamespace(loop=self.loop, slot_of_key=lambda name: 0, shared_backends=[])
        services: Any = SimpleNamespace(
            router=router,
            options=options,
            settings=settings,
            table=lambda: self.table,
            now=lambda: self.loop.now,
        )
        self.hub = Subscriptions(services)

    def tick(self) -> None:
        self.loop.tick()
        self.hub.tick()


@pytest.fixture
async def played(redis_server: str) -> AsyncIterator[Played]:
    found = Played(redis_server)
    yield found
    found.hub.close()


@pytest.fixture
async def direct(redis_server: str) -> AsyncIterator[redis.asyncio.Redis]:
    host, port = redis_server.split(":")
    async with redis.asyncio.Redis(host=host, port=int(port)) as client:
        yield client


async def until_heard(listener: Listener, count: int) -> None:
    async with asyncio.timeout(10):
        while len(listener.heard) < count:
            await asyncio.sleep(0.001)


async def test_sessions_that_subscribe_together_cost_one_request(played: Played, direct: redis.asyncio.Redis) -> None:
    played.hub.take(Kind.CHANNEL, [b"warm"])
    await played.hub.settled()
    before = (await direct.info("commandstats"))["cmdstat_subscribe"]["calls"]
    for number in range(100):
        played.hub.take(Kind.CHANNEL, [b"all", b"%d" % number])
    await asyncio.gather(*(played.hub.settled() for _ in range(100)))
    stats = await direct.info("commandstats")
    assert stats["cmdstat_subscribe"]["calls"] == before + 1
    assert len(await direct.pubsub_channels()) == 102


async def test_a_message_is_encoded_for_each_protocol_once(played: Played, direct: redis.asyncio.Redis) -> None:
    listeners: list[Any] = [Listener(2), Listener(3), Listener(2), Listener(3)]
    for listener in listeners:
        played.hub.take(Kind.CHANNEL, [b"c"])
        played.hub.add(listener, Kind.CHANNEL, b"c")
    await played.hub.settled()
    await direct.publish("c", "m")
    for listener in listeners:
        await until_heard(listener, 1)
    two, three = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
    assert [listener.heard for listener in listeners] == [[two], [three], [two], [three]]
    assert listeners[0].heard[0] is listeners[2].heard[0]
    assert listeners[1].heard[0] is listeners[3].heard[0]


async def test_connections_are_closed_when_nobody_has_subscribed_for_a_while(
    played: Played, direct: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connected() -> bool:
        return any(one["name"].startswith("test-") for one in await direct.client_list())

    assert not await connected()
    played.hub.take(Kind.PATTERN, [b"p"])
    await played.hub.settled()
    played.hub.give_up(Kind.PATTERN, [b"p"])
    await played.hub.settled()
    assert await direct.pubsub_numpat() == 0
    played.tick()
    assert await connected()
    monkeypatch.setattr(subscriptions, "IDLE_SECONDS", 0.0)
    async with asyncio.timeout(10):
        while await connected():
            played.tick()
    played.hub.take(Kind.PATTERN, [b"p"])
    await played.hub.settled()
    assert await direct.pubsub_numpat() == 1
    played.tick()
    played.tick()
    assert await connected()


async def test_what_is_given_up_and_taken_again_in_one_turn_stays(played: Played, direct: redis.asyncio.Redis) -> None:
    played.hub.take(Kind.CHANNEL, [b"c"])
    await played.hub.settled()
    played.hub.give_up(Kind.CHANNEL, [b"c"])
    played.hub.take(Kind.CHANNEL, [b"c"])
    played.hub.take(Kind.CHANNEL, [b"d"])
    played.hub.give_up(Kind.CHANNEL, [b"d"])
    await played.hub.settled()
    assert await direct.pubsub_channels() == [b"c"]
    assert played.hub.count(Kind.CHANNEL, b"c") == (0, True)
    assert played.hub.count(Kind.CHANNEL, b"d") == (0, False)


async def test_a_server_without_shard_channels_has_all_else() -> None:
    """As Redis before 7."""
    said: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            said.append(words[0])
            answers = {
                b"ACL": b"_\r\n",
                b"COMMAND": b"*1\r\n_\r\n",
                b"SSUBSCRIBE": b"-ERR unknown command\r\n",
                b"SUBSCRIBE": b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
            }
            writer.write(answers.get(words[0], b"+OK\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    played = Played(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    played.hub.take(Kind.CHANNEL, [b"c"])
    played.hub.take(Kind.SHARD, [b"s"])
    await played.hub.settled()
    played.hub.take(Kind.SHARD, [b"t"])
    await played.hub.settled()
    assert b"SUBSCRIBE" in said
    assert b"SSUBSCRIBE" not in said
    played.hub.close()
    server.close()


def test_a_long_name_counts_for_more() -> None:
    assert [cost(b"x" * size) for size in (0, 1, 1023, 1024, 4096)] == [1, 1, 1, 2, 5]
