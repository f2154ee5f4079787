"""Scripts run where their keys are, and no client sees NOSCRIPT for one that was loaded or run through the proxy."""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable

import pytest
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.channel import LINE_LIMIT_BYTES
from proxy.engine.loaded import MOST_SCRIPTS
from slotferry.redis_server import start_redis
from slots.group import Group
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

ECHO = "return {KEYS[1], ARGV[1]}"
ECHO_SHA1 = hashlib.sha1(ECHO.encode()).hexdigest()
UNKNOWN = "f" * 40
LIMIT = 60.0


def key_at(group: int, name: str = "key") -> str:
    """A key whose slot is at a group of the fixture ``worker``."""
    return next(key for key in (f"{name}-{number}" for number in range(100)) if (slot_of(key) >= 512) == (group == 2))


def request(*words: bytes | str | int) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; what cannot be asked just now does not meet it."""
    async with asyncio.timeout(LIMIT):
        while True:
            with contextlib.suppress(RedisError, OSError):
                if await met():
                    return
            await asyncio.sleep(0.02)


async def calls(worker: WorkerHarness, group: int, command: str) -> int:
    """How often a server was asked a command."""
    async with worker.direct(group) as direct:
        found = (await direct.info("commandstats")).get(f"cmdstat_{command}")
    return int(found["calls"]) if found else 0


async def restart(worker: WorkerHarness, group: int) -> None:
    """Stop a server and start an empty one in its place."""
    old = worker.servers[group - 1]
    await old.stop()
    worker.servers[group - 1] = await start_redis(old.name, worker.directory, port=old.port)


async def raw(address: tuple[str, int], sent: bytes, lines: int) -> list[bytes]:
    """The first lines of the answer to some bytes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    async with asyncio.timeout(LIMIT):
        answer = [await reader.readline() for _ in range(lines)]
    writer.close()
    return answer


async def same_as_redis(worker: WorkerHarness, sent: list[str]) -> None:
    """The proxy's reply to a command is that of a server that is asked itself."""
    host, port = worker.settings.listen.split(":")
    ours = await raw((host, int(port)), request(*sent) + request("PING"), 2)
    theirs = await raw(("127.0.0.1", worker.servers[0].port), request(*sent) + request("PING"), 2)
    assert ours == theirs


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_loaded_script_runs_wherever_its_keys_are(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client(protocol=protocol) as client:
        assert await client.script_load(ECHO) == ECHO_SHA1
        for group in (1, 2):
            async with worker.direct(group) as direct:
                assert await direct.script_exists(ECHO_SHA1) == [True]
        for number in range(20):
            key = f"k{number}"
            assert await client.evalsha(ECHO_SHA1, 1, key, number) == [key.encode(), b"%d" % number]
            assert await client.evalsha_ro(ECHO_SHA1.upper(), 1, key, number) == [key.encode(), b"%d" % number]
        assert await client.evalsha(await client.script_load("return 7"), 0) == 7
        with pytest.raises(ResponseError, match="same slot"):
            await client.evalsha(ECHO_SHA1, 2, key_at(1), key_at(2), 1)


async def test_a_script_of_redis_py(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        script = client.register_script(ECHO)
        for group in (1, 2):
            key = key_at(group)
            assert await script(keys=[key], args=["x"]) == [key.encode(), b"x"]
        async with client.pipeline(transaction=False) as pipe:
            for number in range(50):
                await script(keys=[f"k{number}"], args=[number], client=pipe)
            assert await pipe.execute() == [[b"k%d" % number, b"%d" % number] for number in range(50)]


async def test_a_script_that_was_run_is_loaded_where_it_is_needed(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        with pytest.raises(NoScriptError):
            await client.evalsha(ECHO_SHA1, 1, key_at(1), "x")
        assert await client.eval(ECHO, 1, key_at(1), "x")
        assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]
        await client.eval_ro("return redis.call('GET', KEYS[1])", 1, key_at(1))
        name = hashlib.sha1(b"return redis.call('GET', KEYS[1])").hexdigest()
        assert await client.evalsha_ro(name, 1, key_at(2)) is None
        # In one pipeline, without waiting for a reply.
        other = "return ARGV[1]"
        async with client.pipeline(transaction=False) as pipe:
            pipe.eval(other, 1, key_at(1), "a")
            pipe.evalsha(hashlib.sha1(other.encode()).hexdigest(), 1, key_at(2), "b")
            assert await pipe.execute() == [b"a", b"b"]


async def test_a_pipeline_of_scripts_stays_in_order_and_loads_each_once(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.eval(ECHO, 1, key_at(1), "x")
        async with client.pipeline(transaction=False) as pipe:
            for number in range(1000):
                pipe.evalsha(ECHO_SHA1, 1, f"k{number}", number)
                pipe.set(f"k{number}", number)
                pipe.get(f"k{number}")
            replies = await pipe.execute()
    expected: list[object] = []
    for number in range(1000):
        expected += [[b"k%d" % number, b"%d" % number], True, b"%d" % number]
    assert replies == expected
    assert await calls(worker, 1, "script|load") == 1
    assert await calls(worker, 2, "script|load") == 1


async def test_sessions_of_other_databases_and_protocols(worker: WorkerHarness) -> None:
    """A script that is being loaded over one connection is not taken for loaded by another one that overtakes it."""
    long = f"--{'x' * 3_000_000}\n{ECHO}"
    name = hashlib.sha1(long.encode()).hexdigest()
    clients = [worker.client(db=database, protocol=protocol) for database in range(4) for protocol in (2, 3)]
    try:
        await clients[0].eval(long, 1, key_at(1), "x")
        for client in clients:
            await client.get(key_at(2))
        found = await asyncio.gather(*(client.evalsha(name, 1, key_at(2), "x") for client in clients))
        assert found == [[key_at(2).encode(), b"x"]] * 8
    finally:
        for client in clients:
            await client.aclose()


async def test_scripts_in_a_transaction(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.eval(ECHO, 1, key_at(1), "x")
        for _ in range(2):
            async with client.pipeline() as pipe:
                pipe.set(key_at(2), "1")
                pipe.evalsha(ECHO_SHA1, 1, key_at(2), "x")
                pipe.get(key_at(2))
                assert await pipe.execute() == [True, [key_at(2).encode(), b"x"], b"1"]
        async with client.pipeline() as pipe:
            pipe.execute_command("SCRIPT", "LOAD", "return 'loaded'")
            pipe.get(key_at(1))
            name = (await pipe.execute())[0]
        assert [await client.evalsha(name, 1, key_at(group)) for group in (1, 2)] == [b"loaded"] * 2


async def test_a_server_that_was_restarted(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.script_load(ECHO)
        await client.evalsha(ECHO_SHA1, 1, key_at(2), "x")
        await restart(worker, 2)
        # The lost connections are noticed by errors that name the server; never by NOSCRIPT.
        for number in range(30):
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        found = await client.evalsha(ECHO_SHA1, 1, key_at(2), number)
                        break
                    except NoScriptError:
                        raise
                    except ResponseError as error:
                        assert worker.servers[1].address in str(error)  # noqa: PT017
            assert found == [key_at(2).encode(), b"%d" % number]


@pytest.mark.long
async def test_a_restarted_server_has_the_loaded_scripts_before_anybody_asks(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        names = [await client.script_load(f"return {number}") for number in range(250)]
        await client.eval("return 'merely run'", 1, key_at(2))
    await restart(worker, 2)

    async def loaded() -> bool:
        async with worker.direct(2) as direct:
            return all(await direct.script_exists(*names))

    await until(loaded)
    async with worker.direct(2) as direct:
        assert await direct.script_exists(hashlib.sha1(b"return 'merely run'").hexdigest()) == [False]


async def test_a_server_that_joins(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    address = worker.servers[2].address
    await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(3)])
    async with worker.client() as client:
        await client.script_load(ECHO)
        async with worker.direct(3) as direct:
            assert await direct.script_exists(ECHO_SHA1) == [False]
        await worker.apply([Slot(index, 3) for index in range(512, 1024)], [Group(3, (address,))])
        assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]
        assert await calls(worker, 3, "evalsha") == 1


async def test_a_server_that_joins_has_the_loaded_scripts_before_anybody_asks(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    address = worker.servers[1].address
    await worker.apply([], [Group(2)])
    async with worker.client() as client:
        await client.script_load(ECHO)
    await worker.apply([], [Group(2, (address,))])

    async def loaded() -> bool:
        async with worker.direct(2) as direct:
            return bool((await direct.script_exists(ECHO_SHA1))[0])

    await until(loaded)


async def test_a_server_that_is_replaced(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    async with worker.client() as client:
        await client.script_load(ECHO)
        await worker.apply([], [Group(1, (worker.servers[1].address,))])
        assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]


async def test_scripts_of_slots_on_their_way(worker: WorkerHarness) -> None:
    increment = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
    key = key_at(1)
    async with worker.client() as client:
        name = hashlib.sha1(increment.encode()).hexdigest()
        assert await client.eval(increment, 1, key, 5) == 5
        await worker.act([slot_of(key)], SlotState.PREPARED)
        held = asyncio.gather(*(client.evalsha(name, 1, key, 1) for _ in range(10)))
        await asyncio.sleep(0)
        await worker.act([slot_of(key)], SlotState.MIGRATING)
        assert sorted(await held) == list(range(6, 16))
        assert await client.evalsha(name, 1, key, 1) == 16
        async with worker.direct(2) as direct:
            assert await direct.get(key) == b"16"
        assert await worker.keys(1) == []


async def test_scripts_flushed_past_the_proxy_come_back(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        # Only run, so that only its use brings it back.
        await client.eval(ECHO, 1, key_at(1), "x")
        await client.evalsha(ECHO_SHA1, 1, key_at(2), "x")
        async with worker.direct(2) as direct:
            await direct.script_flush()

        async def runs() -> bool:
            return await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]

        await until(runs)


@pytest.mark.long
async def test_the_first_script_that_is_loaded_is_not_loaded_once_more(worker: WorkerHarness) -> None:
    """Else what another proxy flushes right after would come back with nobody using it."""
    async with worker.client() as client, worker.direct(1) as whole, worker.direct(2) as flushed:

        async def looks() -> int:
            said = await whole.info("commandstats")
            return int(said.get("cmdstat_script|exists", {}).get("calls", 0))

        await client.script_load(ECHO)
        await flushed.script_flush()
        before = await looks()

        async def has_looked_twice() -> bool:
            return await looks() >= before + 2

        await until(has_looked_twice)
        assert await flushed.script_exists(ECHO_SHA1) == [False]
        assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]


async def test_a_script_loaded_past_the_proxy(worker: WorkerHarness) -> None:
    for group in (1, 2):
        async with worker.direct(group) as direct:
            await direct.script_load(ECHO)
    async with worker.client() as client:
        assert await client.script_exists(ECHO_SHA1) == [True]
        for _ in range(20):
            assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]
        # Asked about once, and then now and then.
        assert await calls(worker, 2, "script|exists") < 10


async def test_a_flush_forgets_everywhere(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.script_load(ECHO)
        for mode in ((), ("ASYNC",), ("sync",)):
            assert await client.execute_command("SCRIPT FLUSH", *mode)
            assert await client.script_exists(ECHO_SHA1) == [False]
            for group in (1, 2):
                with pytest.raises(NoScriptError):
                    await client.evalsha(ECHO_SHA1, 1, key_at(group), "x")
                async with worker.direct(group) as direct:
                    assert await direct.script_exists(ECHO_SHA1) == [False]
            # A client runs it at one server. Then the other one gets it, too, though it had it before the flush.
            assert await client.eval(ECHO, 1, key_at(1), "x")
            for _ in range(3):
                assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x")
        with pytest.raises(ResponseError, match=re.escape("SCRIPT FLUSH only support SYNC|ASYNC option")):
            await client.execute_command("SCRIPT FLUSH", "NOW")
        assert await client.script_exists(ECHO_SHA1) == [True]


async def test_a_flush_reaches_a_server_whose_slots_have_left_it(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.script_load(ECHO)
        await worker.apply([Slot(index, 1) for index in range(512, 1024)])
        assert await client.script_flush()
        await worker.apply([Slot(index, 2) for index in range(512, 1024)])
        for group in (1, 2):
            with pytest.raises(NoScriptError):
                await client.evalsha(ECHO_SHA1, 1, key_at(group), "x")


async def test_a_transaction_whose_script_has_too_many_keys(worker: WorkerHarness) -> None:
    """As Redis, which counts the keys before it looks at the script."""
    body = "return 'never run'"
    name = hashlib.sha1(body.encode()).hexdigest()
    sent = b"".join(
        request(*words)
        for words in (
            ["MULTI"],
            ["EVAL", body, "10", "k"],
            ["EVALSHA", name, "10", "k"],
            ["EVALSHA", "short", "10", "k"],
            ["EXEC"],
            ["EVALSHA", name, "0"],
            ["SCRIPT", "EXISTS", name],
        )
    )
    host, port = worker.settings.listen.split(":")
    ours = await raw((host, int(port)), sent, 11)
    theirs = await raw(("127.0.0.1", worker.servers[1].port), sent, 11)
    assert ours == theirs
    assert ours[-3].startswith(b"-NOSCRIPT")


async def test_keys_of_several_slots_are_refused_before_the_script_is_looked_for(worker: WorkerHarness) -> None:
    """As a Redis Cluster does, within MULTI and without."""
    body = "return 'never run'"
    keys = [key_at(1), key_at(2)]
    async with worker.client() as client:
        for call in (
            ("EVALSHA", UNKNOWN, 2, *keys),
            ("EVALSHA_RO", UNKNOWN, 2, *keys),
            ("EVALSHA", "short", 2, *keys),
            ("EVAL", body, 2, *keys),
        ):
            with pytest.raises(ResponseError, match="same slot"):
                await client.execute_command(*call)
            async with client.pipeline() as pipe:
                pipe.execute_command(*call)
                with pytest.raises(ResponseError, match="same slot"):
                    await pipe.execute()
        with pytest.raises(NoScriptError):
            await client.evalsha(hashlib.sha1(body.encode()).hexdigest(), 1, key_at(1))
        with pytest.raises(NoScriptError):
            await client.evalsha(UNKNOWN, 2, key_at(1), key_at(1))


async def test_what_exists(worker: WorkerHarness) -> None:
    seen, broken, partly = "return 1", "this is no script", "return 2"
    async with worker.client() as client:
        await client.script_load(ECHO)
        await client.eval(seen, 1, key_at(1))
        with pytest.raises(ResponseError):
            await client.eval(broken, 1, key_at(1))
        async with worker.direct(1) as direct:
            await direct.script_load(partly)
        names = [hashlib.sha1(body.encode()).hexdigest() for body in (ECHO, seen, broken, partly)]
        assert await client.script_exists(*names, UNKNOWN, ECHO_SHA1.upper()) == [True, True, False, False, False, True]


async def test_loading_while_a_server_is_away(worker: WorkerHarness) -> None:
    address = worker.servers[1].address
    port = worker.servers[1].port
    await worker.servers[1].stop()
    async with worker.client() as client:
        assert await client.script_load(ECHO) == ECHO_SHA1
        with pytest.raises(ResponseError, match=address):
            await client.evalsha(ECHO_SHA1, 1, key_at(2), "x")
        worker.servers[1] = await start_redis("redis-2", worker.directory, port=port)

        async def loaded() -> bool:
            async with worker.direct(2) as direct:
                return bool((await direct.script_exists(ECHO_SHA1))[0])

        await until(loaded)
        assert await client.evalsha(ECHO_SHA1, 1, key_at(2), "x") == [key_at(2).encode(), b"x"]


async def test_the_limit_of_what_is_remembered(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    numbers = range(MOST_SCRIPTS + 1)
    async with worker.client() as client:
        async with client.pipeline(transaction=False) as pipe:
            for number in numbers:
                pipe.eval(f"return {number}", 1, key_at(1))
            assert await pipe.execute() == [*numbers]
        names = [hashlib.sha1(b"return %d" % number).hexdigest() for number in numbers]
        with pytest.raises(NoScriptError):
            await client.evalsha(names[0], 1, key_at(2))
        for number in (1, 2, MOST_SCRIPTS):
            assert await client.evalsha(names[number], 1, key_at(2)) == number


ERRORS = [
    ["EVALSHA", UNKNOWN, "0"],
    ["EVALSHA", UNKNOWN, "1", "k"],
    ["EVALSHA_RO", UNKNOWN, "1", "k"],
    ["EVALSHA", "short", "0"],
    ["EVALSHA", "short", "1", "k"],
    ["EVALSHA", UNKNOWN],
    ["EVALSHA", UNKNOWN, "x"],
    ["EVALSHA", UNKNOWN, "-1"],
    ["EVALSHA", UNKNOWN, "2", "k"],
    ["EVAL", "this is no script", "0"],
    ["EVAL", "this is no script", "1", "k"],
    ["EVAL", "return redis.call('NOSUCH')", "1", "k"],
    ["EVAL", "return redis.error_reply('MY own')", "1", "k"],
    ["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", "k"],
    ["EVAL", "#!lua flags=bad\nreturn 1", "0"],
    ["EVAL", "return 1"],
    ["SCRIPT", "LOAD", "this is no script"],
    ["SCRIPT", "LOAD"],
    ["SCRIPT", "LOAD", "return 1", "2"],
    ["SCRIPT", "EXISTS"],
    ["SCRIPT", "EXISTS", UNKNOWN, "x"],
    ["SCRIPT", "FLUSH", "NOW"],
    ["SCRIPT", "FLUSH", "SYNC", "ASYNC"],
    ["SCRIPT", "FLUSH"],
    ["SCRIPT", "KILL"],
    ["SCRIPT", "KILL", "now"],
    ["SCRIPT", "NOSUCH"],
    ["SCRIPT"],
]


@pytest.mark.parametrize("sent", ERRORS, ids=" ".join)
async def test_replies_are_redis_own(worker: WorkerHarness, sent: list[str]) -> None:
    await same_as_redis(worker, sent)


async def test_a_busy_script_is_killed(start_worker: StartWorker) -> None:
    worker = await start_worker(extra=["--busy-reply-threshold", "50"], backend_reply_seconds=5.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with worker.client() as busy, worker.client() as client:
        with pytest.raises(ResponseError, match="No scripts in execution right now"):
            await client.script_kill()
        running = asyncio.create_task(busy.eval("while true do end", 1, key_at(2)))

        async def killed() -> bool:
            return await client.script_kill() in (True, b"OK")

        await until(killed)
        with pytest.raises(ResponseError, match=r"(?i)script killed by user"):
            await running
        assert await busy.set(key_at(2), "1")
        writing = asyncio.create_task(busy.eval("redis.call('SET', KEYS[1], 2) while true do end", 1, key_at(2)))

        async def unkillable() -> bool:
            try:
                await client.script_kill()
            except ResponseError as error:
                return "already executed write commands" in str(error)
            return False

        await until(unkillable)
        # It ends by nothing else.
        await worker.servers[1].kill()
        with pytest.raises(ResponseError, match=worker.servers[1].address):
            await writing


async def test_a_client_that_leaves_while_its_script_is_looked_for(worker: WorkerHarness) -> None:
    for _ in range(20):
        _, writer = await worker.connect()
        writer.write(request("EVALSHA", UNKNOWN, "1", key_at(2)))
        await writer.drain()
        writer.close()
    async with worker.client() as client:
        assert await client.script_load(ECHO) == ECHO_SHA1


async def test_a_question_that_is_too_long_for_the_other_workers(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as wire:
        # It answers with what it knows itself.
        assert await wire.say("SCRIPT", "EXISTS", b"x" * LINE_LIMIT_BYTES) == b"*1\r\n:0\r\n"
        assert await wire.say("SCRIPT", "EXISTS", "x") == b"*1\r\n:0\r\n"
