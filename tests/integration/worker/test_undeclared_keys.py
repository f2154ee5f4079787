"""Scripts and functions that may touch more than they are given: as one Redis at rest, and while slots move they wait
until these have moved."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
import redis

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of

StartWorker = Callable[..., Awaitable[WorkerHarness]]

KEY, COUNT = "{t}key", "{t}key:count"
SLOT = slot_of(KEY)
ELSEWHERE = "redis.call('SELECT', 1) return redis.call('INCRBY', KEYS[1], ARGV[1])"
SAME_TAG = "redis.call('INCRBY', KEYS[1] .. ':count', ARGV[1]) return redis.call('GET', KEYS[1] .. ':count')"
KEEPING = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
ANYWHERE = "return redis.call('GET', '{t}key')"
LIBRARY = """#!lua name=lib
redis.register_function('add', function(keys, arguments) return redis.call('INCRBY', keys[1], arguments[1]) end)
"""
REFUSED = "may touch other keys than it is given"
BRIEF = 0.3
"""How long a request waits where a test wants it refused."""


def sha1(script: str) -> str:
    return hashlib.sha1(script.encode()).hexdigest()


async def migrate(worker: WorkerHarness) -> None:
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)


async def move_all(worker: WorkerHarness) -> None:
    """What the migrator does, roughly: the keys leave the source, and what the target has of them is replaced."""
    for database in (0, 1):
        async with worker.direct(1, db=database) as source:
            for key in (KEY, COUNT):
                await source.execute_command(
                    *("MIGRATE", "127.0.0.1", worker.servers[1].port, key, database, 5000, "REPLACE")
                )


@pytest.mark.parametrize("script", [ELSEWHERE, SAME_TAG])
async def test_absent_first_nothing_acknowledged_is_undone(start_worker: StartWorker, script: str) -> None:
    """given a script that counts in a key it does not name, its reply still holds when the slot has moved."""
    worker = await start_worker(lock_hold_seconds=BRIEF)
    async with worker.client() as client, Talk(worker.settings.listen) as talk:
        assert int(await client.eval(script, 1, KEY, 5)) == 5
        await migrate(worker)
        for request in (("EVAL", script), ("EVALSHA", sha1(script))):
            with pytest.raises(redis.exceptions.ResponseError, match=REFUSED):
                await client.execute_command(*request, 1, KEY, 1)
        assert await talk.ask("MULTI") == b"+OK\r\n"
        assert await talk.ask("EVALSHA", sha1(script), 1, KEY, 1) == b"+QUEUED\r\n"
        assert (await talk.ask("EXEC")).startswith(b"-TRYAGAIN the script " + REFUSED.encode())
        await move_all(worker)
        await worker.apply([Slot(SLOT, 1, Action(SlotState.FINISHED, 2))])
        assert int(await client.evalsha(sha1(script), 1, KEY, 1)) == 6


async def test_scripts_that_keep_to_their_keys_run_all_the_while(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(2) as target:
        assert await client.eval(KEEPING, 1, KEY, 5) == 5
        await migrate(worker)
        assert await client.eval(KEEPING, 1, KEY, 1) == 6
        assert await client.evalsha(sha1(KEEPING), 1, KEY, 1) == 7
        pipe = client.pipeline(transaction=True)
        pipe.evalsha(sha1(KEEPING), 1, KEY, 1)
        pipe.execute_command("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, KEY)
        assert await pipe.execute() == [8, b"8"]
        assert await target.get(KEY) == b"8"
        # redis-py's lock, as its users have it.
        lock = client.lock("{t}lock", timeout=20)
        assert await lock.acquire()
        await lock.extend(20)
        await lock.release()


async def test_a_script_that_only_the_servers_know_is_asked_for(start_worker: StartWorker) -> None:
    worker = await start_worker()
    for number in (1, 2):
        async with worker.direct(number) as server:
            await server.script_load(KEEPING)
    async with worker.client() as client:
        assert await client.evalsha(sha1(KEEPING), 1, KEY, 5) == 5
        assert await client.script_exists(sha1(KEEPING)) == [True]
        await migrate(worker)
        with pytest.raises(redis.exceptions.NoScriptError):
            await client.evalsha(sha1(KEEPING), 1, KEY, 1)
        # Client libraries load it then; before a pipeline, they ask.
        assert await client.script_exists(sha1(KEEPING)) == [False]
        script = client.register_script(KEEPING)
        pipe = client.pipeline(transaction=False)
        await script([KEY], [1], client=pipe)
        assert await pipe.execute() == [6]
        assert await client.script_exists(sha1(KEEPING)) == [True]
        assert await client.evalsha(sha1(KEEPING), 1, KEY, 1) == 7


async def test_scripts_without_keys_while_any_slot_moves(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=BRIEF)
    async with worker.client() as client:
        await client.set(KEY, "value")
        assert await client.eval(ANYWHERE, 0) == b"value"
        await migrate(worker)
        with pytest.raises(redis.exceptions.ResponseError, match=REFUSED):
            await client.eval(ANYWHERE, 0)
        assert await client.eval("return ARGV[1]", 0, "x") == b"x"
        # Scripts with keys of other slots run as before.
        assert await client.eval("return redis.call('SET', KEYS[1] .. '}', 1)", 1, "{other}key") == b"OK"
        await worker.apply([Slot(SLOT, 1)])
        assert await client.eval(ANYWHERE, 0) == b"value"


async def test_functions(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=BRIEF)
    async with worker.client() as client:
        await client.function_load(LIBRARY)
        assert await client.fcall("add", 1, KEY, "5") == 5
        await migrate(worker)
        pipe = client.pipeline(transaction=True)
        pipe.execute_command("FCALL", "add", 1, KEY, "1")
        for refused in (client.fcall("add", 1, KEY, "1"), client.fcall_ro("add", 1, KEY, "1"), pipe.execute()):
            with pytest.raises(redis.exceptions.ResponseError, match=REFUSED):
                await refused
        assert await client.fcall("add", 1, "{other}key", "5") == 5
        await move_all(worker)
        await worker.apply([Slot(SLOT, 1, Action(SlotState.FINISHED, 2))])
        assert await client.fcall("add", 1, KEY, "1") == 6


WAITING = {
    "EVAL": [("EVAL", SAME_TAG, 1, KEY, 1)],
    "EVALSHA": [("EVALSHA", sha1(SAME_TAG), 1, KEY, 1)],
    "EVAL without keys": [("EVAL", "return redis.call('GET', ARGV[1]) or '6'", 0, "none")],
    "FCALL": [("FCALL", "add", 1, COUNT, 1)],
    "EXEC": [("MULTI",), ("EVALSHA", sha1(SAME_TAG), 1, KEY, 1), ("EXEC",)],
    "SORT": [("SORT", KEY + ":list", "BY", "nosort", "GET", COUNT + "*")],
}


@pytest.mark.parametrize("requests", WAITING.values(), ids=WAITING)
async def test_they_wait_until_their_slot_has_moved(
    start_worker: StartWorker, requests: list[tuple[object, ...]]
) -> None:
    """absent-first: then they find at the target what they do not name; until then nothing is run."""
    worker = await start_worker()
    async with worker.client() as client, Talk(worker.settings.listen) as talk, worker.direct(2) as target:
        await client.function_load(LIBRARY)
        await client.script_load(SAME_TAG)
        await client.set(COUNT, 5)
        await client.rpush(KEY + ":list", "")
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        for request in requests[:-1]:
            await talk.ask(*request)
        talk.send(*requests[-1])
        talk.send("PING")
        answer = asyncio.create_task(talk.reply())
        await worker.next(lambda message: message.type == "counters" and message.counters["held"] > 0)
        # A table that moves nothing on does not let it go.
        await worker.apply()
        assert not answer.done()
        assert not await target.exists(COUNT)
        for key in (KEY, COUNT, KEY + ":list"):
            async with worker.direct(1) as source:
                await source.execute_command(*("MIGRATE", "127.0.0.1", worker.servers[1].port, key, 0, 5000, "REPLACE"))
        await worker.apply([Slot(SLOT, 1, Action(SlotState.FINISHED, 2))])
        said = await answer
        # in-order: what comes behind it is answered behind it.
        assert await talk.reply() == b"+PONG\r\n"
        counts = "none" not in requests[0] and requests[-1][0] != "SORT"
        assert (b"5" if requests[-1][0] == "SORT" else b"6") in said, said
        assert await client.get(COUNT) == (b"6" if counts else b"5")


async def test_bounded_they_do_not_wait_for_ever(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=BRIEF)
    async with Talk(worker.settings.listen) as talk:
        await migrate(worker)
        talk.send("EVAL", SAME_TAG, 1, KEY, 1)
        answer = asyncio.create_task(talk.reply())
        while not answer.done():
            # Each table has the request looked at again; it keeps its deadline.
            await worker.apply()
        assert (await answer).startswith(b"-TRYAGAIN the script " + REFUSED.encode())
