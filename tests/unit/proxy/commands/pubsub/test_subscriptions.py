"""A worker's subscriptions at its servers, in the test's own process."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

from proxy.commands.pubsub import messages, subscriptions
from proxy.commands.pubsub.messages import Kind
from proxy.commands.pubsub.subscriptions import MARKS_AT_ONCE, Subscriptions, cost
from proxy.engine.requests import Loop
from proxy.settings import ProxySettings
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.proxy.engine.inprocess import options


class Listener:
    """A session as far as messages go."""

    def __init__(self, protocol: int = 3) -> None:
        self.protocol = protocol
        self.muted = 0
        self.hides = b""
        self.heard: list[bytes] = []
        self.behind: list[bytes] = []
        """What it gets after its confirmations."""
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def push(self, data: bytes) -> None:
        self.heard.append(data)

    def answer(self, data: bytes) -> None:
        assert not self.muted
        self.behind.append(data)


def deliver(listeners: Iterable[Listener], resp2: bytes, resp3: bytes) -> None:
    """As the engine does it for sessions."""
    for listener in listeners:
        listener.push(resp3 if listener.protocol == 3 else resp2)


@pytest.fixture(autouse=True)
def listeners_as_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners in place of the engine's sessions."""
    monkeypatch.setattr(subscriptions, "deliver", deliver)


class Played:
    """The subscriptions with the worker's other parts played by the test."""

    def __init__(self, *servers: str) -> None:
        self.loop = Loop(asyncio.get_running_loop(), 2)
        self.table = SlotTable(1, (Slot(0), Slot(1)), {n: Group(n, (server,)) for n, server in enumerate(servers)})
        settings = ProxySettings(backend_retry_seconds_min=0.01, backend_retry_seconds_max=0.05)
        names = (f"test-{number}." for number in range(1000))
        made = options(new_name=names.__next__, retry_seconds_min=0.01, retry_seconds_max=0.05)
        router = SimpleNamespace(
            loop=self.loop,
            home_of_key=lambda database, name: 0,
            channel_slot=lambda name: 0,
            shared_backends=[],
        )
        self.services: Any = SimpleNamespace(
            router=router,
            options=made,
            settings=settings,
            table=lambda: self.table,
            now=lambda: self.loop.now,
        )
        self.hub = Subscriptions(self.services)
        self.hub.table_applied(self.table)

    def join(self, listener: Any, *names: bytes, kind: Kind = Kind.CHANNEL) -> "asyncio.Future[None]":
        return self.hub.join(listener, kind, names)

    def leave(self, listener: Any, *names: bytes, kind: Kind = Kind.CHANNEL) -> "asyncio.Future[None]":
        return self.hub.leave(listener, kind, names)

    async def joined(self, listener: Any, *names: bytes, kind: Kind = Kind.CHANNEL) -> None:
        await self.join(listener, *names, kind=kind)
        self.hub.joined(listener, kind, names)
        self.hub.confirmed(listener)

    async def left(self, listener: Any, *names: bytes, kind: Kind = Kind.CHANNEL) -> None:
        await self.leave(listener, *names, kind=kind)
        self.hub.left(listener, kind, names)

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


@pytest.fixture
def blocking(redis_server: str) -> Iterator[redis.Redis]:
    """A client that blocks this process: nothing that it has published is read before the test waits for something."""
    host, port = redis_server.split(":")
    with redis.Redis(host=host, port=int(port)) as client:
        yield client


async def until_heard(listener: Listener, count: int) -> None:
    async with asyncio.timeout(60):
        while len(listener.heard) < count:
            await asyncio.sleep(0.001)


async def test_sessions_that_subscribe_together_cost_little(played: Played, direct: redis.asyncio.Redis) -> None:
    async def calls(command: str) -> int:
        return int((await direct.info("commandstats"))[f"cmdstat_{command}"]["calls"])

    await played.joined(Listener(), b"warm")
    subscribed, marked = await calls("subscribe"), await calls("hello")
    # A channel is subscribed to once, and most have their mark together. The number goes with each mark but the first.
    await asyncio.gather(*(played.join(Listener(), b"all") for _ in range(1000)))
    assert await calls("subscribe") == subscribed + 1 + MARKS_AT_ONCE
    assert await calls("hello") == marked + MARKS_AT_ONCE + 1
    assert await direct.pubsub_numsub("all") == [(b"all", 1)]


async def test_a_message_is_encoded_for_each_protocol_once(played: Played, direct: redis.asyncio.Redis) -> None:
    listeners: list[Any] = [Listener(2), Listener(3), Listener(2), Listener(3)]
    for listener in listeners:
        await played.joined(listener, b"c")
    await direct.publish("c", "m")
    for listener in listeners:
        await until_heard(listener, 1)
    two, three = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
    assert [listener.heard for listener in listeners] == [[two], [three], [two], [three]]
    assert listeners[0].heard[0] is listeners[2].heard[0]
    assert listeners[1].heard[0] is listeners[3].heard[0]


async def test_connections_are_open_before_anybody_subscribes_and_stay(
    played: Played, direct: redis.asyncio.Redis
) -> None:
    async def connected() -> list[str]:
        return [one["id"] for one in await direct.client_list() if one["name"].startswith("test-")]

    deadline = asyncio.get_running_loop().time() + 10
    while not (first := await connected()):
        assert asyncio.get_running_loop().time() < deadline
        played.tick()
    await played.joined(listener := Listener(), b"p", kind=Kind.PATTERN)
    assert await direct.pubsub_numpat() == 1
    await played.left(listener, b"p", kind=Kind.PATTERN)
    assert await direct.pubsub_numpat() == 0
    played.tick()
    assert await connected() == first


async def test_what_is_given_up_and_taken_again_in_one_turn_stays(played: Played, direct: redis.asyncio.Redis) -> None:
    listeners = [Listener() for _ in range(4)]
    await played.joined(listeners[0], b"c")
    futures = [played.leave(listeners[0], b"c"), played.join(listeners[1], b"c")]
    futures += [played.join(listeners[2], b"d"), played.leave(listeners[2], b"d")]
    # Left, joined and left again.
    futures += [played.join(listeners[2], b"e"), played.leave(listeners[2], b"e"), played.join(listeners[3], b"e")]
    await asyncio.gather(*futures)
    # No digits: each has one session.
    assert sorted(await direct.pubsub_channels()) == [b"c", b"e"]


def message(channel: bytes, text: bytes) -> bytes:
    return b">3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(text), text)


async def test_what_comes_before_the_confirmation_waits_behind_it(played: Played, direct: redis.asyncio.Redis) -> None:
    listener, other = Listener(), Listener()
    await played.joined(listener, b"old")
    await played.joined(other, b"old")
    await played.join(listener, b"new")
    await direct.publish("old", "1")
    await until_heard(other, 1)
    # Nothing waits, so messages of an old subscription come at once ...
    assert (listener.heard, listener.behind) == ([message(b"old", b"1")], [])
    listener.muted = 1
    for channel, text in (("new", "2"), ("old", "3"), ("new", "4")):
        await direct.publish(channel, text)
    await direct.publish("old", "5")
    await until_heard(other, 3)
    # ... but not ahead of what came before it. CLIENT REPLY OFF is not about messages.
    waiting = [message(b"new", b"2"), message(b"old", b"3"), message(b"new", b"4"), message(b"old", b"5")]
    assert (len(listener.heard), listener.behind, listener.muted) == (1, waiting, 1)
    played.hub.joined(listener, Kind.CHANNEL, [b"new"])  # type: ignore[arg-type]
    played.hub.confirmed(listener)  # type: ignore[arg-type]
    await direct.publish("new", "6")
    await until_heard(listener, 2)
    assert listener.heard[1:] == [message(b"new", b"6")]


async def test_whoever_joins_where_others_are_hears_what_comes_behind_its_mark(
    played: Played, direct: redis.asyncio.Redis, blocking: redis.Redis
) -> None:
    first, second, third = Listener(), Listener(), Listener()
    await played.joined(first, b"c")
    blocking.publish("c", "before")
    await played.join(second, b"c")
    await direct.publish("c", "after")
    await until_heard(first, 2)
    assert second.behind == [message(b"c", b"after")]
    # A session that comes when the last one leaves hears nothing from before either.
    played.hub.joined(second, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    played.hub.confirmed(second)  # type: ignore[arg-type]
    blocking.publish("c", "before")
    played.hub.forget(first, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    played.hub.forget(second, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    await played.join(third, b"c")
    await direct.publish("c", "after")
    async with asyncio.timeout(60):
        while not third.behind:
            await asyncio.sleep(0.001)
    assert third.behind == [message(b"c", b"after")]


async def test_whoever_leaves_hears_what_was_published_before(
    played: Played, direct: redis.asyncio.Redis, blocking: redis.Redis
) -> None:
    listener, other = Listener(), Listener()
    await played.joined(listener, b"c")
    await played.joined(other, b"c")
    blocking.publish("c", "before")
    await played.left(listener, b"c")
    await direct.publish("c", "after")
    await until_heard(other, 2)
    assert listener.heard == [message(b"c", b"before")]


async def test_whoever_leaves_before_it_is_confirmed_gets_messages_with_the_end(
    played: Played, direct: redis.asyncio.Redis, blocking: redis.Redis
) -> None:
    listener, other = Listener(), Listener()
    await played.joined(other, b"c")
    await played.join(listener, b"c")
    blocking.publish("c", "amid")
    await played.leave(listener, b"c")
    await direct.publish("c", "after")
    await until_heard(other, 2)
    played.hub.joined(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    # in-order: between the confirmations, of which it has none yet.
    assert (listener.heard, listener.behind) == ([], [])
    # What came behind the mark of its leaving is there as well: nobody has told it yet that it has left.
    kept = played.hub.left(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    assert kept == message(b"c", b"amid") + message(b"c", b"after")
    await direct.publish("c", "later")
    await until_heard(other, 3)
    assert (listener.heard, listener.behind, listener.closed) == ([], [], False)
    # Nor does it hear what was published before it came.
    blocking.publish("c", "before")
    played.join(listener, b"c")
    await played.leave(listener, b"c")
    await until_heard(other, 4)
    assert played.hub.left(listener, Kind.CHANNEL, [b"c"]) == b""  # type: ignore[arg-type]


async def test_whoever_joins_again_before_its_end_is_confirmed_misses_nothing(
    played: Played, direct: redis.asyncio.Redis, blocking: redis.Redis
) -> None:
    listener, other = Listener(), Listener()
    await played.joined(listener, b"c")
    await played.joined(other, b"c")
    blocking.publish("c", "1")
    ends = played.leave(listener, b"c")
    begins = played.join(listener, b"c")
    assert played.hub.is_joining_again(listener, Kind.CHANNEL, b"c")  # type: ignore[arg-type]
    await ends
    await begins
    await direct.publish("c", "2")
    await until_heard(other, 2)
    assert played.hub.left(listener, Kind.CHANNEL, [b"c"]) == b""  # type: ignore[arg-type]
    assert not played.hub.is_joining_again(listener, Kind.CHANNEL, b"c")  # type: ignore[arg-type]
    await direct.publish("c", "3")
    await until_heard(other, 3)
    # All of it behind both confirmations, in the order of publishing.
    assert (listener.heard, listener.behind) == ([], [message(b"c", text) for text in (b"1", b"2", b"3")])
    played.hub.joined(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    played.hub.confirmed(listener)  # type: ignore[arg-type]
    await direct.publish("c", "4")
    await until_heard(listener, 1)
    await played.left(listener, b"c")
    await played.left(other, b"c")
    assert await direct.pubsub_channels() == []


async def test_the_confirmation_of_a_joining_before_is_not_that_of_the_later_one(
    played: Played, direct: redis.asyncio.Redis
) -> None:
    listener = Listener()
    await played.join(listener, b"c")
    await played.leave(listener, b"c")
    await played.join(listener, b"c")
    played.hub.joined(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    await direct.publish("c", "1")
    async with asyncio.timeout(60):
        while not listener.behind:
            await asyncio.sleep(0.001)
    assert (listener.heard, listener.behind) == ([], [message(b"c", b"1")])
    played.hub.left(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    # It goes, and has nothing left to hear.
    played.hub.forget(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    played.hub.joined(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    assert await direct.publish("c", "2") in {0, 1}
    async with asyncio.timeout(60):
        while await direct.pubsub_channels():
            await asyncio.sleep(0.001)
    assert (listener.heard, len(listener.behind)) == ([], 1)


async def test_in_order_whoever_leaves_while_its_messages_wait_hears_the_last_ones_behind_them(
    played: Played, direct: redis.asyncio.Redis
) -> None:
    listener, other = Listener(), Listener()
    await played.joined(listener, b"c")
    await played.joined(other, b"c")
    await played.join(listener, b"new")
    await direct.publish("new", "0")
    await direct.publish("c", "1")
    await until_heard(other, 1)
    await played.leave(listener, b"c")
    await direct.publish("c", "2")
    await until_heard(other, 2)
    assert (listener.heard, listener.behind) == ([], [message(b"new", b"0"), message(b"c", b"1")])
    kept = played.hub.left(listener, Kind.CHANNEL, [b"c"])  # type: ignore[arg-type]
    assert kept == message(b"c", b"2"), "with the confirmation, which comes behind the others"


async def test_bounded_whoever_has_too_much_kept_for_its_end_is_closed(
    played: Played, direct: redis.asyncio.Redis
) -> None:
    listener, other = Listener(), Listener()
    played.services.settings = SimpleNamespace(session_output_limit_bytes=1000)
    await played.joined(other, b"c")
    await played.join(listener, b"c")
    await played.leave(listener, b"c")
    for count in (1, 2, 3):
        await direct.publish("c", "x" * 600)
        await until_heard(other, count)
        assert listener.closed is (count >= 2)
    # Nothing more is kept for it.
    assert played.hub.left(listener, Kind.CHANNEL, [b"c"]) == 2 * message(b"c", b"x" * 600)  # type: ignore[arg-type]


async def test_whoever_goes_while_it_joins_gets_nothing(played: Played, direct: redis.asyncio.Redis) -> None:
    gone, other = Listener(), Listener()
    await played.joined(other, b"c")
    reached = played.join(gone, b"c", b"own")
    played.hub.forget(gone, Kind.CHANNEL, [b"c", b"own"])  # type: ignore[arg-type]
    await reached
    played.hub.joined(gone, Kind.CHANNEL, [b"c", b"own"])  # type: ignore[arg-type]
    await direct.publish("c", "x")
    await until_heard(other, 1)
    assert (gone.heard, gone.behind) == ([], [])
    await played.left(other, b"c")
    assert await direct.pubsub_channels() == []


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
    listener = Listener()
    await asyncio.gather(played.join(listener, b"c"), played.join(listener, b"s", kind=Kind.SHARD))
    await played.joined(listener, b"t", kind=Kind.SHARD)
    assert b"SUBSCRIBE" in said
    assert b"SSUBSCRIBE" not in said
    played.hub.close()
    server.close()


async def test_in_order_what_a_source_that_is_left_still_sends_comes_first(
    redis_server: str, direct: redis.asyncio.Redis
) -> None:
    """given a worker to which the end of a move and the removal of its source come in one table."""
    owed: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []
    is_late = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        answers = {b"ACL": b"_\r\n", b"SUBSCRIBE": b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"}
        while line := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            reply = answers.get(words[0], b"+OK\r\n")
            owed.append(reply) if is_late else writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    source = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    played, listener = Played(source, redis_server), Listener()
    await played.joined(listener, b"c")
    groups = {number: Group(number, (address,)) for number, address in ((1, source), (2, redis_server))}
    played.table = SlotTable(2, (Slot(0, 1, Action(SlotState.PREPARED, 2)), Slot(1)), groups)
    played.hub.slots_leaving([0])
    played.hub.table_applied(played.table)
    is_late = True
    played.table = SlotTable(3, (Slot(0, 2), Slot(1)), {2: groups[2]})
    played.hub.table_applied(played.table)
    await direct.publish("c", "2")
    # Once the target has answered this, its message is there.
    await played.joined(Listener(), b"d")
    assert listener.heard == []
    writers[-1].write(b"".join((message(b"c", b"1"), *owed)))
    await until_heard(listener, 2)
    assert listener.heard == [message(b"c", b"1"), message(b"c", b"2")]
    played.hub.close()
    server.close()


@pytest.mark.parametrize("kind", [Kind.CHANNEL, Kind.PATTERN])
@pytest.mark.parametrize("most", [1, 1000])
async def test_nobody_is_counted_while_those_leave_who_get_nothing(
    played: Played, direct: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch, kind: Kind, most: int
) -> None:
    listeners = [Listener() for _ in range(6)]
    for listener in listeners:
        await played.joined(listener, b"news", kind=kind)
    # However the names are shared out to requests.
    monkeypatch.setattr(messages, "NAMES_AT_ONCE", most)
    here, numbers = {"news", *(f"more:{bit}" for bit in (0, 2))}, []
    async with direct.monitor() as monitor:
        await asyncio.gather(*(played.left(listener, b"news", kind=kind) for listener in listeners))
        await direct.publish("end", "")
        async with asyncio.timeout(60):
            while not (said := (await monitor.next_command())["command"]).startswith("PUBLISH end"):
                if said.startswith(("UNSUBSCRIBE", "PUNSUBSCRIBE")):
                    left = re.findall(r" news|__slotferry:(?:more|less):\d+", said)
                    here.difference_update(name.removeprefix("__slotferry:").strip() for name in left)
                    further = sum(1 << int(name.removeprefix("more:")) for name in here - {"news"})
                    numbers.append(("news" in here) + further)
                    assert "news" in here or not further, said
    assert not here
    assert numbers == sorted(numbers, reverse=True)


async def test_a_new_connection_counts_nobody_before_it_has_the_pattern(
    played: Played, direct: redis.asyncio.Redis
) -> None:
    listeners = [Listener() for _ in range(3)]
    for listener in listeners:
        await played.joined(listener, b"news", kind=Kind.PATTERN)
    async with direct.monitor() as monitor:

        async def requests() -> list[str]:
            words: list[str] = []
            while not {"PSUBSCRIBE", "SUBSCRIBE"}.issubset(words):
                words.append((await monitor.next_command())["command"].partition(" ")[0])
            return [word for word in words if word.endswith("SUBSCRIBE")]

        reading = asyncio.create_task(requests())
        await direct.client_kill_filter(_type="pubsub")
        async with asyncio.timeout(60):
            while not reading.done():
                played.tick()
                await asyncio.sleep(0.01)
    assert reading.result() == ["PSUBSCRIBE", "SUBSCRIBE"]


def test_a_long_name_counts_for_more() -> None:
    assert [cost(b"x" * size) for size in (0, 1, 1023, 1024, 4096)] == [1, 1, 1, 2, 5]
