"""Keys of Slotferry's own: no client names one, sees one or hears of one, and none of a wrong type does harm."""

import asyncio

from slots import commands
from slots.commands import Route
from slots.reserved import FENCED, LEADER, REFUSAL, STATE
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Request, Talk
from tests.integration.worker.harness import LIMIT, WorkerHarness

REFUSED = b"-%b\r\n" % REFUSAL.encode()
OWN = FENCED.decode()

REQUESTS: list[Request] = [
    ("SET", OWN, "x"),
    ("GET", OWN),
    ("set", OWN, "x"),
    ("DEL", OWN),
    ("DEL", "other", OWN),
    ("UNLINK", OWN, "other"),
    ("MGET", "a", "b", OWN),
    ("MSET", "a", "1", OWN, "x"),
    ("MSETNX", OWN, "x"),
    ("SORT", OWN),
    ("XREAD", "STREAMS", OWN, "0"),
    ("XREAD", "BLOCK", 1, "STREAMS", OWN, "0"),
    ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 1, "STREAMS", OWN, ">"),
    ("BLPOP", OWN, 1),
    ("EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, OWN),
    ("EVALSHA", "0" * 40, 1, OWN),
    ("FCALL", "f", 1, OWN),
    ("WATCH", OWN),
    ("OBJECT", "ENCODING", OWN),
    ("MEMORY", "USAGE", OWN),
    ("MOVE", OWN, 1),
    ("COPY", OWN, OWN + "2"),
    ("COPY", OWN, OWN + "2", "DB", 1),
    ("DUMP", OWN),
    ("RESTORE", OWN, 0, "x"),
    ("LMPOP", 1, OWN, "LEFT"),
    ("PFCOUNT", OWN),
]
MIXED: list[Request] = [
    # With a key of the client's own, they are in two slots.
    ("RENAME", "a", OWN),
    ("COPY", "a", OWN, "REPLACE"),
    ("SORT", "a", "STORE", OWN),
    ("SUNIONSTORE", OWN, "a"),
    ("ZUNIONSTORE", OWN, 1, "a"),
    ("BITOP", "NOT", OWN, "a"),
    ("GEOSEARCHSTORE", OWN, "a", "FROMLONLAT", 1, 1, "BYRADIUS", 1, "m"),
    ("LMOVE", "a", OWN, "LEFT", "LEFT"),
    ("BLMOVE", "a", OWN, "LEFT", "LEFT", 1),
    ("EVAL", "return 1", 2, "a", OWN),
]


async def test_clients_are_refused_keys_of_slotferrys_own(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        for request in REQUESTS:
            assert await talk.ask(*request) == REFUSED, request
        for request in MIXED:
            assert (await talk.ask(*request)).startswith((REFUSED, b"-CROSSSLOT ")), request
        assert await talk.ask("MULTI") == b"+OK\r\n"
        assert await talk.ask("SET", OWN, "x") == REFUSED
        assert (await talk.ask("EXEC")).startswith(b"-EXECABORT ")
        # Names that only look like it are the clients'.
        for name in ("_", "__slotferry", "{__slotferry:}x", "x__slotferry:"):
            assert await talk.ask("SET", name, "1") == b"+OK\r\n"
    assert await worker.keys(1, 0, 1) + await worker.keys(2, 0, 1)
    for group in (1, 2):
        async with worker.direct(group) as direct:
            assert not await direct.exists(OWN, OWN + "2")


async def test_every_command_with_keys_is_refused_them(worker: WorkerHarness) -> None:
    """Whatever the command: none gets as far as a server."""
    async with worker.direct(1) as first, worker.direct(2) as second:
        for direct in (first, second):
            await direct.hset(OWN, "somebody", "1")
        async with Talk(worker.settings.listen) as talk:
            for row in commands.table().values():
                if row.first and row.route in (Route.KEYED, Route.MOVABLE, Route.SPLIT, Route.BLOCKING):
                    words = row.name.split("|")
                    request = [*words, *["1"] * (abs(row.arity) - len(words))]
                    request[row.first] = OWN
                    reply = await talk.ask(*request)
                    assert reply.startswith(b"-"), (request, reply)
        for direct in (first, second):
            assert await direct.hgetall(OWN) == {b"somebody": b"1"}


async def test_keyspace_events_tell_of_clients_keys_only(start_worker: StartWorker) -> None:
    worker = await start_worker(extra=["--notify-keyspace-events", "KEA"])
    async with worker.client() as client, worker.direct(1) as direct, client.pubsub() as heard:
        await heard.psubscribe("__key*__:*", "*")
        await heard.subscribe("__keyevent@0__:hset", "__keyspace@0__:" + LEADER.decode())
        for _ in range(4):
            assert (await heard.get_message(timeout=LIMIT))["type"].endswith("subscribe")
        for key in (FENCED, STATE, LEADER):
            await direct.hset(key, "field", "1")
            await direct.delete(key)
        await direct.hset("one", "__slotferry:x", "1")
        messages = []
        async with asyncio.timeout(LIMIT):
            # Each of the two events by two patterns, and one by its channel.
            while len(messages) < 5:
                message = await heard.get_message(ignore_subscribe_messages=True, timeout=LIMIT)
                if message is not None:
                    messages.append((message["channel"], message["data"]))
        assert set(messages) == {(b"__keyspace@0__:one", b"hset"), (b"__keyevent@0__:hset", b"one")}


async def test_a_wrong_type_where_the_marks_are_takes_no_server_out(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.direct(1) as direct, worker.client() as client:
        await client.set("key", "1")
        await direct.set(OWN, "x")
        await direct.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    # Over a connection that was greeted with the mark as it is now.
                    assert await client.get("key") == b"1"
                    break
                except AssertionError:
                    raise
                except Exception:
                    await asyncio.sleep(0.01)
        assert "fence_marks_overwritten" in worker.process.tail()
