"""The number of a worker's clients, as a server counts it by the digits that the worker is subscribed to."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable

import pytest
import redis.asyncio
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.commands.pubsub import counts
from proxy.commands.pubsub.messages import Kind
from tests.unit.proxy.commands.pubsub.test_subscriptions import Listener, Played

SAID_BY = dict.fromkeys(Kind, b"c") | {Kind.PATTERN: counts.ANNOUNCES + b"c"}
"""The channel whose digits say how many clients are subscribed to ``c``."""


def counted(channel: bytes, workers: Iterable[set[bytes]]) -> int:
    """What comes of a server's answer."""
    numbers = [sum(name in worker for worker in workers) for name in counts.asked(channel)]
    assert len(numbers) == counts.ASKED_EACH
    return counts.clients(numbers)


@example([1, 2, 3, 4, 8, 7, 1_048_576, 1])
@given(st.lists(st.integers(1, 1 << counts.DIGITS), max_size=30))
def test_no_request_shows_another_number_than_that_before_or_behind(numbers: list[int]) -> None:
    channel = b"c"
    subscribed, other = {channel}, {channel, *counts.digits(channel, 5), *counts.digits(b"another", 7)}
    before = 1
    for number in numbers:
        joined, left = counts.change(channel, before, number)
        assert not subscribed & set(joined)
        subscribed.update(joined)
        assert counted(channel, [subscribed, other]) == number + 5
        assert subscribed >= set(left)
        subscribed.difference_update(left)
        assert counted(channel, [subscribed, other]) == number + 5
        assert subscribed == {channel, *counts.digits(channel, number)}
        # Never more subscriptions than clients.
        assert len(subscribed) <= number
        before = number


@given(st.integers(1, 1 << counts.DIGITS))
def test_a_worker_that_comes_or_goes_shows_no_more_than_its_clients(number: int) -> None:
    """Whatever part of its names a server has."""
    names = [b"c", *counts.digits(b"c", number)]
    shown = [counted(b"c", [set(names[:length])]) for length in range(len(names) + 1)]
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == (0, number)


def test_more_clients_than_digits_can_say() -> None:
    assert counted(b"c", [{b"c", *counts.digits(b"c", 1 << 40)}]) == 1 << counts.DIGITS


def test_channels_of_any_length_have_short_digits() -> None:
    for channel in (b"", b"x" * 10_000_000):
        assert all(len(name) < 50 for name in counts.asked(channel)[1:])


@pytest.fixture
async def asking(redis_server: str) -> AsyncIterator[redis.asyncio.Redis]:
    host, port = redis_server.split(":")
    async with redis.asyncio.Redis(host=host, port=int(port)) as client:
        yield client


@pytest.fixture
async def two(redis_server: str) -> AsyncIterator[list[Played]]:
    """Two workers that know nothing of each other."""
    found = [Played(redis_server), Played(redis_server)]
    yield found
    for worker in found:
        worker.hub.close()


async def told(server: redis.asyncio.Redis, kind: Kind = Kind.CHANNEL) -> int:
    word = "SHARDNUMSUB" if kind is Kind.SHARD else "NUMSUB"
    reply = await server.execute_command("PUBSUB", word, *counts.asked(SAID_BY[kind]))
    return counts.clients(reply[1::2])


@pytest.mark.parametrize("kind", Kind)
async def test_the_clients_of_two_workers_are_counted_at_every_moment(
    two: list[Played], asking: redis.asyncio.Redis, kind: Kind
) -> None:
    dice = random.Random(1)
    listeners: list[list[Listener]] = [[], []]
    # The number of clients is between these: both move while clients come or go.
    least, most = [0], [0]
    over = False

    async def look() -> int:
        looks = 0
        while not over:
            del least[:-1], most[:-1]
            number = await told(asking, kind)
            assert min(least) <= number <= max(most)
            looks += 1
        return looks

    looking = asyncio.create_task(look())
    for _ in range(150):
        worker = dice.randrange(2)
        some = dice.randrange(1, 30)
        if dice.random() < 0.6 or len(listeners[worker]) < some:
            new = [Listener() for _ in range(some)]
            most.append(most[-1] + some)
            await asyncio.gather(*(two[worker].joined(one, b"c", kind=kind) for one in new))
            listeners[worker] += new
            least.append(least[-1] + some)
        else:
            old = [listeners[worker].pop() for _ in range(some)]
            least.append(least[-1] - some)
            await asyncio.gather(*(two[worker].left(one, b"c", kind=kind) for one in old))
            most.append(most[-1] - some)
        assert await told(asking, kind) == sum(map(len, listeners)) == least[-1] == most[-1]
    over = True
    assert await looking > 0
    for played, some_left in zip(two, listeners, strict=True):
        await asyncio.gather(*(played.left(one, b"c", kind=kind) for one in some_left))
    assert await asking.pubsub_channels() == await asking.execute_command("PUBSUB", "SHARDCHANNELS") == []


async def test_nothing_is_left_of_a_worker_that_ends(two: list[Played], asking: redis.asyncio.Redis) -> None:
    for worker in two:
        for _ in range(7):
            await worker.joined(Listener(), b"c")
    async with asking.pubsub() as stranger:
        await stranger.subscribe("c")
        await stranger.get_message(timeout=60)
        assert await told(asking) == 15
        two[0].hub.close()
        async with asyncio.timeout(60):
            while await told(asking) != 8:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", Kind)
async def test_a_new_connection_tells_the_number_again(
    two: list[Played], asking: redis.asyncio.Redis, kind: Kind
) -> None:
    for _ in range(7):
        await two[0].joined(Listener(), b"c", kind=kind)
    await asking.client_kill_filter(_type="pubsub")
    async with asyncio.timeout(60):
        while await told(asking, kind) != 7:
            two[0].tick()
            await asyncio.sleep(0.01)
