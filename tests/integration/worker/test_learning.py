"""Commands that only the servers know: those of a module, and those that the command table does not have."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from slotferry.redis_server import start_redis
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker import harness
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.test_scripts import key_at, request, until
from tests.integration.worker.wire import Wire
from tests.modules.compiling import compiled

LIMIT = 60.0


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The module of ``tests/modules``, compiled."""
    return compiled("demo", tmp_path_factory.mktemp("modules"))


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[str]], None]:
    """Workers that are started from now on know less: their command table lacks these rows."""
    original = harness.WorkerProcess.__init__

    def without(names: Iterable[str]) -> None:
        program = (
            f"from slots import commands\nfor name in {list(names)!r}: del commands.table()[name]\n"
            "from proxy.worker.worker import main\nmain()"
        )

        def start(self: harness.WorkerProcess, *arguments: Any) -> None:
            original(self, *arguments)
            self.arguments = [self.arguments[0], "-c", program, *self.arguments[3:]]

        monkeypatch.setattr(harness.WorkerProcess, "__init__", start)

    return without


@pytest.fixture
async def with_module(start_worker: StartWorker, module: str) -> WorkerHarness:
    """One worker with two servers that have the module, slots 0-511 at group 1 and the rest at group 2."""
    worker = await start_worker(extra=["--loadmodule", module], any_server_commands=["demo.known"])
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


async def at(worker: WorkerHarness, group: int, key: str) -> bytes | None:
    """What a server has under a key."""
    async with worker.direct(group) as direct:
        value: bytes | None = await direct.get(key)
        return value


@pytest.mark.parametrize("protocol", [2, 3])
async def test_commands_that_the_table_lacks(
    start_worker: StartWorker, forget: Callable[[Iterable[str]], None], protocol: int
) -> None:
    forget(["GETEX", "LCS", "SINTERCARD", "ZUNIONSTORE", "OBJECT|ENCODING"])
    worker = await start_worker()
    # The very first request may be for one of them.
    async with worker.client(protocol=protocol) as client:
        assert await client.getex("first") is None
        await worker.apply([Slot(index, 2) for index in range(512, 1024)])
        for number in range(20):
            await client.set(f"k{number}", number)
            assert await client.getex(f"k{number}") == b"%d" % number
            assert await client.object("encoding", f"k{number}") == b"int"
        await client.mset({"{t}a": "ohmytext", "{t}b": "mynewtext"})
        assert await client.lcs("{t}a", "{t}b") == b"mytext"
        await client.sadd("{t}s", 1, 2)
        await client.sadd("{t}u", 2, 3)
        assert await client.sintercard(2, ["{t}s", "{t}u"]) == 1
        assert await client.zunionstore("{t}z", ["{t}s", "{t}u"]) == 3
        await client.rpush("{t}l", 3, 1, 2)
        assert await client.sort("{t}l") == [b"1", b"2", b"3"]
        assert await client.sort("{t}l", store="{t}sorted") == 3
        assert await client.lrange("{t}sorted", 0, -1) == [b"1", b"2", b"3"]
        for words in (["LCS", key_at(1), key_at(2)], ["SINTERCARD", 2, key_at(1), key_at(2)]):
            with pytest.raises(ResponseError, match="same slot"):
                await client.execute_command(*words)
        with pytest.raises(ResponseError, match="same slot"):
            await client.sort(key_at(1), store=key_at(2))
        for words in (["GETEX"], ["GETEX", "a", "b"], ["SINTERCARD", "x", "a"], ["SORT"], ["OBJECT", "ENCODING"]):
            with pytest.raises(ResponseError):
                await client.execute_command(*words)
        async with client.pipeline(transaction=False) as pipe:
            for number in range(200):
                pipe.set(f"k{number}", number)
                pipe.getex(f"k{number}")
                pipe.sort(f"nothing{number}")
            assert await pipe.execute() == [reply for n in range(200) for reply in (True, b"%d" % n, [])]
        async with client.pipeline() as pipe:
            pipe.set("{t}x", 1)
            pipe.getex("{t}x")
            assert await pipe.execute() == [True, b"1"]
        with pytest.raises(ResponseError, match="unknown command 'NOSUCH'"):
            await client.execute_command("NOSUCH")


async def test_commands_of_a_module(with_module: WorkerHarness) -> None:
    worker = with_module
    async with worker.client() as client:
        for group in (1, 2):
            key = key_at(group)
            assert await client.execute_command("DEMO.SET", key, "v") == b"OK"
            assert await at(worker, group, key) == b"v"
            # A server is asked for its keys each time.
            assert await client.execute_command("demo.last", "w", key_at(3 - group), key) == b"OK"
            assert await at(worker, group, key) == b"w"
        with pytest.raises(ResponseError, match=r"wrong number of arguments for 'demo.set' command"):
            await client.execute_command("DEMO.SET", key_at(1))
        assert await client.execute_command("DEMO.KNOWN", "x", "y") == 3
        with pytest.raises(ResponseError, match=r"DEMO.COUNT is refused by Slotferry: it names no key"):
            await client.execute_command("DEMO.COUNT")
        async with client.pipeline() as pipe:
            pipe.execute_command("DEMO.SET", "{t}a", "in a transaction")
            pipe.get("{t}a")
            assert await pipe.execute() == [b"OK", b"in a transaction"]
        async with client.pipeline() as pipe:
            pipe.execute_command("DEMO.LAST", "1", "2", "{t}a")
            with pytest.raises(ResponseError, match="only a server can tell"):
                await pipe.execute()


async def test_keys_that_are_asked_for_while_their_slot_moves(with_module: WorkerHarness) -> None:
    worker = with_module
    key = key_at(1)
    async with worker.client() as client:
        await client.execute_command("DEMO.LAST", "1", "x", key)
        await worker.act([slot_of(key)], SlotState.PREPARED)
        held = asyncio.create_task(client.execute_command("DEMO.LAST", "2", "x", key))
        await worker.act([slot_of(key)], SlotState.MIGRATING)
        assert await held == b"OK"
        assert [await at(worker, group, key) for group in (1, 2)] == [None, b"2"]


@pytest.mark.parametrize("options", [(), ("OPTIN",)])
async def test_a_client_that_caches_is_told_of_keys_that_are_asked_for(
    with_module: WorkerHarness, options: tuple[str, ...]
) -> None:
    worker = with_module
    key = key_at(1)
    changed = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(key), key.encode())
    async with Wire(worker.settings.listen, protocol=3) as wire, worker.client() as client:
        assert await wire.say("CLIENT", "TRACKING", "ON", *options) == b"+OK\r\n"
        if options:
            wire.send("CLIENT", "CACHING", "YES")
        assert b":0\r\n" in await wire.say("DEMO.LOOK", "x", key)
        await client.set(key, "new")
        told = b""

        async def is_told() -> bool:
            nonlocal told
            told += await wire.heard()
            return told.endswith(changed)

        await eventually(is_told, "word of the change")


@pytest.mark.long
async def test_a_command_that_waits_holds_nobody_up(with_module: WorkerHarness) -> None:
    worker = with_module
    key = key_at(2)
    async with worker.client() as waiting, worker.client() as client:
        later = asyncio.create_task(waiting.execute_command("DEMO.LATER", key, "3000"))
        async with worker.direct(2) as direct:

            async def blocked() -> bool:
                return (await direct.info("clients"))["blocked_clients"] == 1

            await until(blocked)
            for number in range(30):
                await client.set(f"k{number}", number)
            assert not later.done()
            assert await later == b"OK"
            assert await direct.get(key) == b"3000"


async def test_a_command_that_waits_within_a_pipeline(with_module: WorkerHarness) -> None:
    key = key_at(2)
    async with with_module.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(5):
            pipe.set(key, "before")
            pipe.execute_command("DEMO.LATER", key, 10 + number)
            pipe.get(key)
        expected = [reply for number in range(5) for reply in (True, b"OK", b"%d" % (10 + number))]
        assert await pipe.execute() == expected


async def test_a_command_that_waits_overtakes_nothing(with_module: WorkerHarness) -> None:
    """It goes over another connection than what was sent before, and may not be sent earlier."""
    key = key_at(2)
    async with with_module.client() as client:
        # So that there is a connection for it already.
        await client.execute_command("DEMO.LATER", key, 1)
        async with client.pipeline(transaction=False) as pipe:
            for _ in range(30):
                pipe.set(key, b"x" * 4_000_000)
                pipe.execute_command("DEMO.LATER", key, 1)
                pipe.get(key)
            assert await pipe.execute() == [True, b"OK", b"1"] * 30


@pytest.mark.long
async def test_a_lock_waits_for_a_command_that_waits(with_module: WorkerHarness) -> None:
    """drained: what runs at the source on a connection of its own is over before the lock is acknowledged."""
    worker = with_module
    key = key_at(1)
    async with worker.client() as client, worker.direct(1) as direct:
        later = asyncio.create_task(client.execute_command("DEMO.LATER", key, "2000"))

        async def blocked() -> bool:
            return (await direct.info("clients"))["blocked_clients"] == 1

        await until(blocked)
        await worker.act([slot_of(key)], SlotState.PREPARED)
        assert await direct.get(key) == b"2000"
        await worker.act([slot_of(key)], SlotState.MIGRATING)
        assert await later == b"OK"
        assert await client.get(key) == b"2000"
        assert [await at(worker, group, key) for group in (1, 2)] == [None, b"2000"]


async def test_a_client_that_leaves_its_command(with_module: WorkerHarness) -> None:
    """The server still runs it: the lock is given up, or the server has ended the connection."""
    worker = with_module
    key = key_at(1)
    _, writer = await worker.connect()
    writer.write(request("DEMO.LATER", key, "2000"))
    async with worker.direct(1) as direct:

        async def blocked() -> bool:
            return (await direct.info("clients"))["blocked_clients"] == 1

        await until(blocked)
        writer.close()
        await worker.act([slot_of(key)], SlotState.PREPARED)
        assert (await direct.info("clients"))["blocked_clients"] == 0
        before = await direct.get(key)
        await worker.act([slot_of(key)], SlotState.MIGRATING)
    async with worker.client() as client:
        assert await client.get(key) == before


async def test_a_module_that_is_loaded_later(start_worker: StartWorker, module: str) -> None:
    worker = await start_worker(extra=["--enable-module-command", "yes"])
    async with worker.client() as client, worker.direct(1) as direct:
        await client.ping()
        await client.set("a", "1")
        await direct.execute_command("MODULE", "LOAD", module)
        assert await client.execute_command("DEMO.SET", "a", "2") == b"OK"
        assert await direct.get("a") == b"2"


async def test_a_server_that_comes_back_with_a_module(worker: WorkerHarness, module: str) -> None:
    async with worker.client() as client:
        with pytest.raises(ResponseError, match=r"unknown command 'DEMO.SET'"):
            await client.execute_command("DEMO.SET", key_at(1), "1")
        old = worker.servers[0]
        await old.stop()
        worker.servers[0] = await start_redis(old.name, worker.directory, port=old.port, extra=["--loadmodule", module])

        async def known() -> bool:
            return bool(await client.execute_command("DEMO.SET", key_at(1), "1") == b"OK")

        await until(known)
        # The other server says for itself what it does not know.
        with pytest.raises(ResponseError, match=r"unknown command 'DEMO.SET'"):
            await client.execute_command("DEMO.SET", key_at(2), "1")
