"""CLIENT REPLY OFF and SKIP: commands without an answer still run in the order of the rest (**in-order**)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slotferry.redis_server import RedisServer
from slots.states import SlotState
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "key"
LARGE = 3_000_000
OFF = ("CLIENT", "REPLY", "OFF")
ON = ("CLIENT", "REPLY", "ON")
SKIP = ("CLIENT", "REPLY", "SKIP")
PATIENT = {"backend_connect_seconds": 60.0, "backend_reply_seconds": 60.0}
"""With servers that are frozen for a while."""


def talk(worker: WorkerHarness) -> Talk:
    return Talk(worker.settings.listen)


async def listed(worker: WorkerHarness, number: int) -> dict[str, Any]:
    """A client in CLIENT LIST."""
    async with worker.client() as client:
        [entry] = await client.client_list(client_id=[str(number)])
    return dict(entry)


async def number_of(conversation: Talk) -> int:
    return int((await conversation.ask("CLIENT", "ID"))[1:])


async def test_in_order_a_new_resp_version_does_not_overtake_what_is_muted(start_worker: StartWorker) -> None:
    """Each RESP version has connections of its own."""
    worker = await start_worker(servers=1, **PATIENT)
    async with talk(worker) as client, talk(worker) as other:
        # The one for RESP2 is there; the one for RESP3 has to be made first.
        assert await other.ask("GET", KEY) == b"$-1\r\n"
        number = await number_of(client)
        assert (await client.ask("HELLO", 3)).startswith(b"%7\r\n")

        async def back_again() -> bool:
            return (await listed(worker, number))["resp"] == "2"

        async with frozen(worker.servers[0]):
            for words in (OFF, ("SET", KEY, "v"), ON, ("HELLO", 2), ("GET", KEY)):
                client.send(*words)
            await eventually(back_again, "HELLO 2")
        assert await client.reply() == b"+OK\r\n"
        assert (await client.reply()).startswith(b"*14\r\n")
        assert await client.reply() == b"$1\r\nv\r\n"


async def test_reset_while_replies_are_muted(start_worker: StartWorker, plain: RedisServer) -> None:
    """given CLIENT REPLY SKIP before RESET, RESET has no reply either, and what follows has."""
    worker = await start_worker(servers=1)
    for muted in ((), (OFF,), (SKIP,), (SKIP, SKIP), (OFF, SKIP), (SKIP, OFF)):
        async with Wire(worker.settings.listen) as ours, Wire(plain.address) as theirs:
            for wire in (ours, theirs):
                for words in (*muted, ("RESET",), ("GET", KEY)):
                    wire.send(*words)
            assert await ours.heard() == await theirs.heard(), muted


async def test_in_order_watch_does_not_overtake_what_is_muted(start_worker: StartWorker) -> None:
    """WATCH and EXEC go over a connection of the session's own."""
    worker = await start_worker(servers=1, **PATIENT)
    async with talk(worker) as client, talk(worker) as other:
        # Such a connection is there.
        assert await other.ask("WATCH", KEY) == b"+OK\r\n"
        assert await other.ask("UNWATCH") == b"+OK\r\n"
        number = await number_of(client)

        async def beyond_the_write() -> bool:
            return (await listed(worker, number))["cmd"] not in ("client|id", "client|reply", "set")

        async with frozen(worker.servers[0]):
            for words in (OFF, ("SET", KEY, "x" * LARGE), ON, ("WATCH", KEY), ("MULTI",), ("STRLEN", KEY), ("EXEC",)):
                client.send(*words)
            await eventually(beyond_the_write, "the worker to look at WATCH")
        for expected in (b"+OK\r\n", b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n", b"*1\r\n:%d\r\n" % LARGE):
            assert await client.reply() == expected


@pytest.mark.parametrize("muted", [False, True])
async def test_in_order_flushall_does_not_overtake_a_write_to_another_database(
    start_worker: StartWorker, muted: bool
) -> None:
    """Each database has connections of its own."""
    worker = await start_worker(servers=1, **PATIENT)
    writes = [("SELECT", 1), ("SET", KEY, "v"), ("SELECT", 0), ("FLUSHALL",), ("SELECT", 1)]
    async with talk(worker) as client, talk(worker) as other:
        # The one for database 0 is there; the one for database 1 has to be made first.
        assert await other.ask("GET", KEY) == b"$-1\r\n"
        number = await number_of(client)

        async def at_flushall() -> bool:
            return (await listed(worker, number))["cmd"] == "flushall"

        async with frozen(worker.servers[0]):
            for words in [OFF, *writes, ON] if muted else writes:
                client.send(*words)
            client.send("GET", KEY)
            await eventually(at_flushall, "FLUSHALL")
        for _ in range(1 if muted else len(writes)):
            assert await client.reply() == b"+OK\r\n"
        assert await client.reply() == b"$-1\r\n"


async def test_what_is_split_over_servers_is_muted_as_a_whole(worker: WorkerHarness) -> None:
    keys = [f"k{number}" for number in range(20)]
    async with talk(worker) as client:
        pairs = [word for key in keys for word in (key, "v")]
        for words in (OFF, ("MSET", *pairs), ("MGET", *keys), ("DEL", *keys[1:]), ON, ("EXISTS", *keys), ("PING",)):
            client.send(*words)
        for expected in (b"+OK\r\n", b":1\r\n", b"+PONG\r\n"):
            assert await client.reply() == expected


async def test_a_large_reply_is_muted_as_a_whole(worker: WorkerHarness) -> None:
    async with talk(worker) as client:
        assert await client.ask("SET", KEY, "x" * LARGE) == b"+OK\r\n"
        for words in (SKIP, ("GET", KEY), ("STRLEN", KEY), OFF, ("GET", KEY), ("MGET", KEY, "other"), ON, ("PING",)):
            client.send(*words)
        for expected in (b":%d\r\n" % LARGE, b"+OK\r\n", b"+PONG\r\n"):
            assert await client.reply() == expected


async def test_skip_is_over_once_a_request_that_waits_is_done(worker: WorkerHarness) -> None:
    async with talk(worker) as client:
        for words in (SKIP, ("BLPOP", "nothing", "0.05"), ("GET", KEY), ("PING",)):
            client.send(*words)
        for expected in (b"$-1\r\n", b"+PONG\r\n"):
            assert await client.reply() == expected


async def test_skip_is_over_once_a_request_is_given_up(start_worker: StartWorker) -> None:
    """The -TRYAGAIN of a locked slot is what is skipped."""
    worker = await start_worker(lock_hold_seconds=0.2)
    async with talk(worker) as client:
        await worker.act([slot_of(KEY)], SlotState.PREPARED)
        for words in (SKIP, ("SET", KEY, "1"), ("PING",), ("PING", "two")):
            client.send(*words)
        for expected in (b"+PONG\r\n", b"$3\r\ntwo\r\n"):
            assert await client.reply() == expected


async def test_bounded_what_is_muted_counts_as_owed(start_worker: StartWorker) -> None:
    """A client that wants no replies has no more requests under way than others."""
    worker = await start_worker(servers=1, session_max_pipeline=16, **PATIENT)
    async with talk(worker) as client:
        number = await number_of(client)

        async def under_way() -> bool:
            return (await listed(worker, number))["owed"] != "0"

        async with frozen(worker.servers[0]):
            client.send(*OFF)
            for count in range(1000):
                client.send("SET", KEY, count)
            await eventually(under_way, "requests under way")
            entry = await listed(worker, number)
            assert int(entry["owed"]) <= 16
            assert int(entry["qbuf"]) > 0
        client.send(*ON)
        assert await client.reply() == b"+OK\r\n"
        assert await client.ask("GET", KEY) == b"$3\r\n999\r\n"
