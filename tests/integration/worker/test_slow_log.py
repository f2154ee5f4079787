"""The slow log: what is slow, and what only waits."""

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.worker.blocked import blocked_at
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]


@pytest.mark.parametrize(
    ("waiting", "push"),
    [
        ("BLPOP list 0", "RPUSH list x"),
        ("BZPOPMIN zset 0", "ZADD zset 1 x"),
        ("XREAD BLOCK 0 STREAMS stream $", "XADD stream 1-1 f v"),
        ("XREADGROUP GROUP g me BLOCK 0 STREAMS grouped >", "XADD grouped 1-1 f v"),
    ],
)
async def test_what_waits_is_not_slow(start_worker: StartWorker, waiting: str, push: str) -> None:
    worker = await start_worker(servers=1, slow_log_microseconds=1.0)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        await other.say("XGROUP", "CREATE", "grouped", "g", "$", "MKSTREAM")
        await other.say("CLIENT", "SETNAME", "other")
        await other.say("SLOWLOG", "RESET")
        wire.send(*waiting.split())
        await blocked_at(worker.servers[0])
        await other.say(*push.split())
        assert b"x" in await wire.heard() or waiting.startswith("X")
        assert await other.say("WAIT", 0, 10) == b":0\r\n"
        said = await other.say("SLOWLOG", "GET", -1)
        names = [word.lower().encode() for word in (waiting.split()[0], push.split()[0], "wait")]
        assert [said.count(b"$%d\r\n%b\r\n" % (len(name), name)) for name in names] == [0, 1, 0]


async def test_a_stream_that_is_read_without_waiting_may_be_slow(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, slow_log_microseconds=1.0)
    async with Wire(worker.settings.listen) as wire:
        await wire.say("XREAD", "STREAMS", "stream", 0)
        assert b"$5\r\nxread\r\n" in await wire.say("SLOWLOG", "GET", -1)


async def test_no_argument_but_the_key_is_kept(start_worker: StartWorker) -> None:
    worker = await start_worker(
        servers=1, slow_log_microseconds=1.0, password="secret", users=[{"name": "app", "password": "hidden"}]
    )
    async with Wire(worker.settings.listen) as wire:
        for words in (
            ["AUTH", "wrong-secret"],
            ["AUTH", "app", "wrong-secret"],
            ["AUTH", "secret"],
            ["AUTH", "app", "hidden"],
            ["HELLO", 2, "AUTH", "app", "hidden", "SETNAME", "me"],
            ["AUHT", "app", "hidden"],
            ["SET", "a-key", "secret"],
            ["AUTH", "secret"],
        ):
            wire.send(*words)
        await wire.heard()
        said = await wire.say("SLOWLOG", "GET", -1)
        assert b"$3\r\nset\r\n$9\r\nkey a-key\r\n" in said
        assert b"hidden" not in said
        assert b"secret" not in said
    log = (worker.directory / "worker.log").read_bytes()
    assert b"hidden" not in log
    assert b"secret" not in log


async def test_where_all_is_slow_some_are_told_of(start_worker: StartWorker) -> None:
    """Slow requests are noted in plain Python. If all were noted, everything would be slower still."""
    worker = await start_worker(servers=1, slow_log_microseconds=1.0)
    async with Wire(worker.settings.listen) as wire, worker.client() as client:
        began = time.monotonic()
        for _ in range(4000):
            wire.send("GET", "key")
        assert await wire.heard() == b"$-1\r\n" * 4000
        counted = (await client.info("commandstats"))["cmdstat_get"]
        assert counted["calls"] == 4000
        # Each that was noted has the next id, also those that had to go.
        (newest,) = await client.slowlog_get(1)
        # Room for 128 is made ten times a second.
        assert 100 < newest["id"] < 1280 * (time.monotonic() - began) + 300, f"{newest['id']} of 4,000"
