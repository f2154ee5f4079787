"""Which keys are asked for most: found in time, with a rate that says how wrong it may be, named only if allowed."""

import asyncio
import hashlib
import random
from collections import Counter
from itertools import accumulate

import pytest

from proxy.engine.hotkeys import HotKeys
from proxy.engine.router import LOCKED, OPEN
from slots.messages.load import KEY_BYTES
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, nothing_stored, until

Told = list[tuple[int, int, bytes, int, float, float]]


def names(told: Told) -> list[bytes]:
    return [key for _, _, key, *_ in told]


def zipf(rng: random.Random, keys: int, requests: int) -> list[int]:
    """Which key each request asks for: the nth one as often as 1/n says."""
    return rng.choices(range(keys), cum_weights=list(accumulate(1 / (rank + 1) for rank in range(keys))), k=requests)


@pytest.mark.parametrize("seed", range(5))
def test_the_heaviest_keys_of_many_are_found_and_their_rates_bounded(seed: int) -> None:
    """given 10,000 keys by Zipf's law and 40,000 requests a second, for ten seconds."""
    rng = random.Random(seed)
    sketch = HotKeys(seed)
    asked: Counter[bytes] = Counter()
    for _ in range(10):
        for key in zipf(rng, 10_000, 40_000):
            name = b"key:%d" % key
            asked[name] += 1
            sketch.request(0, key % 1024, name)
        told = sketch.tell(1.0, 128, False)

    assert len(sketch) == 256
    assert set(names(told)) >= {name for name, _ in asked.most_common(20)}
    assert len(told) == len(set(names(told))) <= 128
    for _, slot, name, length, rate, excess in told[:20]:
        # 4.5 standard deviations of the sample.
        true = asked[name] / 10
        deviation = 4.5 * (16 * true / 5) ** 0.5
        assert rate - excess - deviation <= true <= rate + deviation
        assert (slot, length) == (int(name[4:]) % 1024, len(name))
    sure = [rate - excess for *_, rate, excess in told]
    assert sure == sorted(sure, reverse=True)


def test_a_burst_after_quiet_seconds_is_not_looked_at_whole() -> None:
    """given ten quiet minutes, so that all requests are looked at, and a second with many."""
    sketch = HotKeys(1)
    sketch.tell(600.0, 10, False)
    for _ in range(100_000):
        sketch.request(0, 1, b"hot")
    # Ten requests are enough to be told where all are looked at, and too few in a sample of one of 16.
    for _ in range(10):
        sketch.request(0, 2, b"late")
    [(_, _, key, _, rate, _)] = sketch.tell(1.0, 10, False)
    assert key == b"hot"
    assert rate == pytest.approx(100_000, rel=0.1)


@pytest.mark.parametrize(("rate", "gap"), [(2_500, 1), (10_000, 4), (1_000_000, 400)])
def test_no_more_requests_are_looked_at_however_many_there_are(rate: int, gap: int) -> None:
    sketch = HotKeys(1)
    for _ in range(3):
        for _ in range(rate):
            sketch.request(0, 1, b"hot")
        sketch.tell(1.0, 1, False)
    assert sketch.mean_gap == pytest.approx(gap, rel=0.05)


def test_the_gap_grows_within_a_burst() -> None:
    """so that a million requests at once cost some 24,000 looks."""
    sketch = HotKeys(1)
    sketch.tell(1.0, 1, False)
    gaps = Counter[int]()
    for _ in range(1_000_000):
        gaps[sketch.mean_gap] += 1
        sketch.request(0, 1, b"hot")
    assert sorted(gaps) == [2**power for power in range(9)]
    assert sum(count / gap for gap, count in gaps.items()) == pytest.approx(24_000, rel=0.1)


def test_the_first_request_after_a_burst_is_looked_at() -> None:
    """given a gap that would last for minutes of the quiet that follows."""
    sketch = HotKeys(1)
    for _ in range(2):
        for _ in range(500_000):
            sketch.request(0, 1, b"hot")
        sketch.tell(1.0, 1, False)
    sketch.tell(1.0, 1, False)
    sketch.request(0, 1, b"quiet")
    assert len(sketch) == 2


@pytest.mark.parametrize("period", [2, 16, 32, 64])
def test_the_sample_does_not_fall_into_step_with_pipelines(period: int) -> None:
    """given a client whose every nth request is for the same key, and all others for others."""
    sketch = HotKeys(period)
    for number in range(200_000):
        sketch.request(0, 1, b"hot" if number % period == 0 else b"other:%d" % (number % 5000))
    _, _, key, _, rate, excess = sketch.tell(10.0, 1, False)[0]
    assert key == b"hot"
    assert (rate - excess) * 0.8 < 20_000 / period < rate * 1.2


@pytest.mark.parametrize("seed", range(3))
def test_a_key_that_becomes_hot_is_found_within_five_seconds(seed: int) -> None:
    """given a minute of requests for 100,000 keys that are all the same, before one of them gets 5% of all."""
    rng = random.Random(seed)
    sketch = HotKeys(seed)
    for _ in range(60):
        for _ in range(2000):
            sketch.request(0, 0, b"%d" % rng.randrange(100_000))
        assert sketch.tell(1.0, 128, False) == []
    for _ in range(5):
        for _ in range(2000):
            sketch.request(0, 0, b"hot" if rng.random() < 0.05 else b"%d" % rng.randrange(100_000))
        told = sketch.tell(1.0, 128, False)
    assert names(told) == [b"hot"]


@pytest.mark.parametrize("rate", [1_000, 10_000, 100_000])
def test_how_many_requests_are_looked_at_follows_their_rate(rate: int) -> None:
    """so the rates of a worker with few requests are exact, and one with many does not pay for that."""
    sketch = HotKeys(1)
    told: Told = []
    for _ in range(10 if rate == 1_000 else 3):
        for number in range(rate):
            sketch.request(0, 1, b"hot" if number % 100 == 0 else b"other")
        told = sketch.tell(1.0, 2, False)
    rates = {key: rate for _, _, key, _, rate, _ in told}
    if rate == 1_000:
        # The first second was looked at as if there were many.
        assert 9 < rates[b"hot"] < 12
        for _ in range(200):
            sketch.tell(1.0, 2, False)
        for number in range(1000):
            sketch.request(0, 1, b"rare" if number % 250 == 0 else b"other")
        assert [key for _, _, key, *_ in sketch.tell(1.0, 2, False)] == [b"other", b"rare"]
    assert rates[b"other"] == pytest.approx(0.99 * rate, rel=0.05)


def test_one_look_in_many_is_no_hot_key_when_all_are_looked_at_again() -> None:
    sketch = HotKeys(1)
    for number in range(64):
        sketch.request(0, 1, b"once:%d" % number)
    for _ in range(5):
        assert sketch.tell(1.0, 8, False) == []


def test_a_key_that_was_hot_is_forgotten() -> None:
    sketch = HotKeys()
    for _ in range(10_000):
        sketch.request(0, 0, b"hot")
    (first,) = sketch.tell(1.0, 128, False)
    for _ in range(15):
        (told,) = sketch.tell(1.0, 128, False)
    assert first[4] == pytest.approx(10_000, rel=0.05)
    assert told[4] < first[4] / 10
    for _ in range(180):
        sketch.tell(1.0, 128, False)
    assert sketch.tell(1.0, 128, False) == []


def test_keys_are_told_apart_by_database_length_and_every_byte() -> None:
    sketch = HotKeys()
    long = b"k" * KEY_BYTES
    keys = [(0, b"a"), (1, b"a"), (0, b""), (0, long), (0, long + b"x"), (0, long + b"y"), (0, long + b"xy")]
    rng = random.Random(1)
    for _ in range(20_000):
        database, key = rng.choice(keys)
        sketch.request(database, 5, key)
    told = sketch.tell(1.0, 128, False)
    assert sorted((database, key, length) for database, _, key, length, *_ in told) == sorted(
        (database, key[:KEY_BYTES], len(key)) for database, key in keys
    )
    assert [len(sketch.tell(1.0, most, False)) for most in (-1, 0, 3)] == [0, 0, 3]


def test_a_hash_stands_in_the_place_of_a_key() -> None:
    sketch = HotKeys()
    for _ in range(1000):
        sketch.request(0, 5, b"secret")
    ((_, slot, shown, length, *_),) = sketch.tell(1.0, 128, True)
    assert shown == hashlib.sha256(b"secret").hexdigest()[:16].encode()
    # The length of a short key would say something of it.
    assert (slot, length) == (5, 16)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("GET", "a"), {b"a"}),
        (("MGET", "a", "b", "c"), {b"a", b"b", b"c"}),
        (("MSET", "a", 1, "b", 2), {b"a", b"b"}),
        (("DEL", "a"), {b"a"}),
        (("SUNION", "{a}b", "{a}c"), {b"{a}b"}),
        (("BLPOP", "a", 0), {b"a"}),
        (("ECHO", "a"), set()),
    ],
)
async def test_which_keys_of_a_request_count(request_: tuple[str | int, ...], expected: set[bytes]) -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = lambda: b"+OK\r\n"
            client = proxy.connect()
            for _ in range(30):
                await client.send(*[request_] * 20)
                for _ in range(20):
                    await client.read_line()
            assert set(names(proxy.loop.hot_keys.tell(1.0, 128, False))) == expected


@pytest.mark.parametrize("request_", [("GET", "a"), ("MGET", "a", "a"), ("MGET", "a", "b"), ("BLPOP", "a", 0)])
async def test_a_request_that_waits_counts_once(request_: tuple[str | int, ...]) -> None:
    """given one that is looked at again and again, for its slot is locked, and then for its server takes no more."""
    let_go = asyncio.Event()

    class Slow(Server):
        async def greet(self, visit: Visit, words: list[bytes]) -> None:
            await let_go.wait()
            await super().greet(visit, words)

    async with Slow(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.options.queue_pause_bytes = 1
            proxy.route(LOCKED, server.address)
            client, other = proxy.connect(), proxy.connect()
            await client.send(request_)
            await until(lambda: client.session.waits)
            for _ in range(500):
                client.session.wake()
            proxy.route(OPEN, server.address)
            await other.send(("SET", "b", "x"))
            await until(lambda: proxy.loop.requests == 1)
            client.session.wake()
            for _ in range(500):
                client.session.resume_reading()
            assert (proxy.loop.requests, len(proxy.loop.hot_keys)) == (1, 0)
            let_go.set()
            await client.read_line()
            assert len(proxy.loop.hot_keys) == 0, "the first of a sample is the 16th"


def test_keys_that_are_asked_for_so_often_a_second() -> None:
    """given one for 1,300 requests a second, one for 330 that is too long to be named, and many for one."""
    sketch = HotKeys(1)
    assert sketch.hottest(1.0) == []
    for _ in range(20):
        for number in range(2000):
            sketch.request(3, 1, (b"hot", b"%d" % number, b"x" * (KEY_BYTES + 1))[number % 3 if number % 2 else 0])
        sketch.tell(1.0, 10, False)
    assert sketch.hottest(200.0) == [(3, b"hot")]
    assert sketch.hottest(2000.0) == []
