"""redis-py, blocking: what takes more than one request: transactions, waiting, subscriptions, scanning, scripts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.exceptions
from redis.client import Pipeline, PubSub

SECONDS = 30


def test_a_transaction(client: redis.Redis) -> None:
    client.delete("{t}a", "{t}list")
    for round_number in range(1, 51):
        with client.pipeline(transaction=True) as pipe:
            replies = pipe.incr("{t}a").rpush("{t}list", "x").get("{t}a").execute()
        assert replies == [round_number, round_number, str(round_number).encode()]
    with client.pipeline(transaction=True) as pipe:
        replies = pipe.set("{t}s", "text").incr("{t}s").get("{t}s").execute(raise_on_error=False)
    assert isinstance(replies[1], redis.exceptions.ResponseError)
    assert [replies[0], replies[2]] == [True, b"text"]
    with client.pipeline(transaction=True) as pipe, pytest.raises(redis.exceptions.ResponseError, match="same slot"):
        pipe.set("here", 1).set("there", 1).execute()
    assert client.exists("here", "there") == 0


def test_watching(client: redis.Redis) -> None:
    client.set("{w}a", 1)
    with client.pipeline() as pipe:
        pipe.watch("{w}a")
        client.set("{w}a", 2)
        pipe.multi()
        pipe.set("{w}a", 3)
        with pytest.raises(redis.exceptions.WatchError):
            pipe.execute()
    assert client.get("{w}a") == b"2"
    client.set("{w}sum", 0)

    def raise_it(pipe: Pipeline) -> None:
        before = int(pipe.get("{w}sum") or 0)
        pipe.multi()
        pipe.set("{w}sum", before + 1)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(client.transaction, raise_it, "{w}sum") for _ in range(40)]:
            done.result()
    assert client.get("{w}sum") == b"40"


def test_a_lock(client: redis.Redis) -> None:
    client.set("locked", 0)

    def count() -> None:
        for _ in range(5):
            with client.lock("lock", timeout=SECONDS, sleep=0.002, blocking_timeout=SECONDS):
                client.set("locked", int(client.get("locked") or 0) + 1)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(count) for _ in range(4)]:
            done.result()
    assert client.get("locked") == b"20"


def test_waiting_for_elements(client: redis.Redis) -> None:
    assert client.blpop("empty", timeout=0.05) is None
    client.rpush("full", "1", "2")
    assert client.brpop(["full"], timeout=1) == _pair(client, b"full", b"2")
    with ThreadPoolExecutor(4) as threads:
        popped = threads.submit(client.blpop, ["{b}1", "{b}2"], SECONDS)
        moved = threads.submit(client.blmove, "{m}from", "{m}to", SECONDS)
        least = threads.submit(client.bzpopmin, "waited:zset", SECONDS)
        read = threads.submit(client.xread, {"waited:stream": "0"}, block=SECONDS * 1000)
        client.rpush("{b}2", "late")
        client.rpush("{m}from", "carried")
        client.zadd("waited:zset", {"m": 1})
        client.xadd("waited:stream", {"f": "v"}, id="1-1")
        assert popped.result() == _pair(client, b"{b}2", b"late")
        assert moved.result() == b"carried"
        assert list(least.result()) == [b"waited:zset", b"m", 1.0]
        streams: Any = read.result()
        entries = streams[b"waited:stream"][0] if isinstance(streams, dict) else streams[0][1]
        assert entries == [(b"1-1", {b"f": b"v"})] or entries == [[b"1-1", {b"f": b"v"}]]
    client.delete("waited:stream")


def _pair(client: redis.Redis, *words: bytes) -> Any:
    """As this client gives a key and its element: redis-py makes a tuple for RESP2 only."""
    protocol = client.connection_pool.connection_kwargs["protocol"]
    return words if protocol == 2 else list(words)


def test_every_key(client: redis.Redis) -> None:
    names = {b"scan:%d" % number for number in range(3000)}
    client.mset(dict.fromkeys(names, "x"))
    client.rpush("scan:list", "x")
    assert set(client.scan_iter("scan:*", count=500)) == names | {b"scan:list"}
    assert set(client.scan_iter("scan:*", count=2000, _type="list")) == {b"scan:list"}
    assert set(client.keys("scan:*9")) == {name for name in names if name.endswith(b"9")}
    assert len(client.keys("scan:*")) == 3001
    assert client.dbsize() >= 3001
    assert client.randomkey() is not None
    assert client.delete(*names, "scan:list") == 3001
    assert list(client.scan_iter("scan:*", count=2000)) == []


def test_one_database_is_emptied(client: redis.Redis) -> None:
    host, port = (client.connection_pool.connection_kwargs[name] for name in ("host", "port"))
    with redis.Redis(host=host, port=port, db=12) as other:
        other.mset({f"flushed:{number}": "x" for number in range(1000)})
        client.set("not flushed", "x")
        assert other.flushdb()
        assert list(other.scan_iter(count=2000)) == []
        assert other.dbsize() == 0
    assert client.get("not flushed") == b"x"


def test_scripts(client: redis.Redis) -> None:
    add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1]) .. ARGV[2]")
    client.delete(*(f"script:{number}" for number in range(100)))
    for number in range(100):
        assert add(keys=[f"script:{number}"], args=[number, "!"]) == b"%d!" % number
    with client.pipeline(transaction=False) as pipe:
        for number in range(100):
            add(keys=[f"script:{number}"], args=[1, "?"], client=pipe)
        assert pipe.execute() == [b"%d?" % (number + 1) for number in range(100)]
    digest = client.script_load("return {KEYS[1], #ARGV}")
    assert client.script_exists(digest, "0" * 40) == [True, False]
    assert [client.evalsha(digest, 1, f"k{number}", "a") for number in range(20)] == [
        [b"k%d" % number, 1] for number in range(20)
    ]
    with pytest.raises(redis.exceptions.ResponseError, match="the script's own error"):
        client.eval('return redis.error_reply("ERR the script\'s own error")', 1, "script:1")


def _messages(subscribed: PubSub, count: int) -> list[tuple[str, Any, Any]]:
    """The next ones, with what confirms subscriptions; redis-py waits for each."""
    found = []
    for _ in range(count):
        message = subscribed.get_message(timeout=SECONDS)
        assert message is not None, f"no message within {SECONDS} seconds, after {found[-3:]}"
        found.append((message["type"], message["channel"], message["data"]))
    return found


def test_subscriptions(client: redis.Redis, at_rest: bool) -> None:
    with client.pubsub() as subscribed:
        subscribed.subscribe("news", "weather")
        subscribed.psubscribe("n?ws")
        assert _messages(subscribed, 3) == [
            ("subscribe", b"news", 1),
            ("subscribe", b"weather", 2),
            ("psubscribe", b"n?ws", 3),
        ]
        assert client.publish("news", "first") >= 1
        assert sorted(_messages(subscribed, 2)) == [("message", b"news", b"first"), ("pmessage", b"news", b"first")]
        subscribed.punsubscribe("n?ws")
        assert _messages(subscribed, 1) == [("punsubscribe", b"n?ws", 2)]
        for number in range(200):
            client.publish(("news", "weather")[number % 2], number)
        seen = _messages(subscribed, 200)
        for parity, channel in enumerate((b"news", b"weather")):
            wanted = [b"%d" % number for number in range(parity, 200, 2)]
            found = [data for _, named, data in seen if named == channel]
            # In order within a channel as long as its messages come from one server.
            assert found == wanted if at_rest else sorted(found, key=int) == wanted
        assert set(client.pubsub_channels()) >= {b"news", b"weather"}
        subscribed.ping()
        assert _messages(subscribed, 1)[0][0] == "pong"
        subscribed.unsubscribe()
        assert {kind for kind, _, _ in _messages(subscribed, 2)} == {"unsubscribe"}


def test_a_thread_that_listens(client: redis.Redis) -> None:
    heard: list[bytes] = []
    channel = f"heard:{client.connection_pool.connection_kwargs['protocol']}"
    begun = threading.Event()
    done = threading.Event()

    def hear(message: dict[str, Any]) -> None:
        heard.append(message["data"])
        begun.set()
        if message["data"] == b"end":
            done.set()

    with client.pubsub(ignore_subscribe_messages=True) as subscribed:
        subscribed.subscribe(**{channel: hear})
        thread = subscribed.run_in_thread(sleep_time=0.01, daemon=True)
        try:
            # Published again while the subscription is not confirmed yet.
            while not begun.wait(0.01):
                client.publish(channel, "begin")
                assert thread.is_alive()
            client.publish(channel, "end")
            assert done.wait(SECONDS)
        finally:
            thread.stop()
            thread.join(SECONDS)
    assert heard[0] == b"begin"
    assert heard[-1] == b"end"
