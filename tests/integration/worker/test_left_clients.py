"""A request that the proxy holds is not run for a client that has left: it may have written the key again since."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio

from proxy.engine.backend import command
from slots.states import SlotState
from tests.certificates import Authority
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.places import closed, tls_settings, trusting
from tests.integration.worker.test_slot_states import KEY, SLOT, frozen, migrate_key, until

OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
BEHIND = f"{{{KEY}}}behind"
LATE = command(("SET", KEY, "late"))
NOTHING_RUN = (
    b"-TRYAGAIN the connection was closed at the client's side while the request was held; nothing was run\r\n"
)

Leave = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def close(writer: asyncio.StreamWriter) -> None:
    """The socket ends. With TLS, only TLS's own closing message is sent, until the proxy has answered it."""
    writer.close()


async def break_off(writer: asyncio.StreamWriter) -> None:
    """The socket ends without TLS saying anything."""
    writer.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


async def reset(writer: asyncio.StreamWriter) -> None:
    """The client's system says that there is no such connection."""
    sock = writer.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def held(worker: WorkerHarness, counter: str = "held", count: int = 1) -> None:
    """Wait until the worker says from now on that it holds so many requests."""
    worker.messages[:] = [message for message in worker.messages if message.type != "counters"]
    await worker.next(lambda message: message.type == "counters" and message.counters[counter] >= count)


@asynccontextmanager
async def connected(worker: WorkerHarness, authority: Authority | None = None) -> AsyncIterator[asyncio.StreamWriter]:
    """A bare connection, with TLS if there is an authority; nothing is read from it."""
    address = worker.settings.tls_listen if authority is not None else worker.settings.listen
    host, _, port = address.rpartition(":")
    context: ssl.SSLContext | None = trusting(authority) if authority is not None else None
    async with asyncio.timeout(LIMIT):
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield writer
    finally:
        writer.close()


async def leave(writer: asyncio.StreamWriter, how: Leave) -> None:
    await how(writer)
    for _ in range(10):
        # The transport closes its socket in a later turn of the loop.
        await asyncio.sleep(0)


async def is_new(client: redis.asyncio.Redis) -> None:
    """Neither the held request nor those behind it were run, nor are they from now on."""
    assert await client.set(KEY, "new")
    assert await client.get(KEY) == b"new"
    assert await client.mget(OTHER, BEHIND) == [None, None]


@pytest.mark.long
@pytest.mark.parametrize("behind", [0, 2000])
@pytest.mark.parametrize(("how", "tls"), [(close, False), (reset, False), (close, True), (break_off, True)])
async def test_while_its_slot_was_locked(
    start_worker: StartWorker, tmp_path: Path, how: Leave, tls: bool, behind: int
) -> None:
    """However the client leaves, and whatever it has sent after the request. The proxy has not read that."""
    authority = Authority(tmp_path) if tls else None
    worker = await start_worker(**(tls_settings(authority.issue("proxy")) if authority is not None else {}))
    async with worker.client() as client, connected(worker, authority) as writer:
        await client.set(KEY, "0")
        await worker.act([SLOT], SlotState.PREPARED)
        writer.write(LATE + command(("SET", OTHER, "late")))
        await held(worker)
        # Only as much as an unread socket takes: an end behind more than that would not arrive.
        writer.write(command(("PING",)) * behind)
        await writer.drain()
        await leave(writer, how)
        await worker.act([SLOT], SlotState.PREPARING)
        assert await client.get(KEY) == b"0"
        await is_new(client)


async def test_while_its_key_moved(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, connected(worker) as writer:
        await client.set(KEY, "0")
        await migrate_key(worker)
        async with frozen(worker, 1):
            writer.write(LATE + command(("SET", OTHER, "late")))
            await held(worker, "moving")
            await leave(writer, close)
        assert await client.get(KEY) == b"0"
        assert await worker.keys(2) == [KEY.encode()]
        await is_new(client)


async def test_while_its_delete_waited_for_a_full_target(start_worker: StartWorker) -> None:
    """The same holds for a command that may run at the source instead."""
    worker = await start_worker()
    async with worker.client() as client, worker.direct(2) as target, connected(worker) as writer:
        await client.set(KEY, "0")
        await target.config_set("maxmemory", "1")
        await migrate_key(worker)
        async with frozen(worker, 1):
            writer.write(command(("DEL", KEY)))
            await held(worker, "moving")
            await leave(writer, close)
        assert await client.get(KEY) == b"0"
        await target.config_set("maxmemory", "0")
        assert await client.get(KEY) == b"0"
        await worker.act([SLOT], SlotState.FINISHED)


async def test_while_there_was_no_room_for_it(start_worker: StartWorker) -> None:
    """Before it there are others' requests, for a server that takes none of them."""
    worker = await start_worker(backend_queue_pause_bytes=1_000_000, backend_reply_seconds=60)
    large = command(("SET", OTHER, bytes(8_000_000)))
    async with worker.client() as client, connected(worker) as writer, connected(worker) as filling:
        await client.set(KEY, "0")
        async with frozen(worker, 1):
            for _ in range(2):
                filling.write(large)
            await worker.under_way()
            writer.write(LATE)
            own = "{}:{}".format(*writer.get_extra_info("sockname"))

            async def waits() -> bool:
                return any(entry["addr"] == own and int(entry["qbuf"]) for entry in await client.client_list())

            async def is_gone() -> bool:
                return all(entry["addr"] != own for entry in await client.client_list())

            await until(waits)
            await leave(writer, close)
        await until(is_gone)
        assert await client.get(KEY) == b"0"


@pytest.mark.long
async def test_what_is_behind_a_request_that_was_held_too_long(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=3)
    async with worker.client() as client, connected(worker) as writer:
        await worker.act([SLOT], SlotState.PREPARED)
        writer.write(LATE + command(("SET", OTHER, "late")))
        await held(worker)
        await leave(writer, close)
        await worker.next(lambda message: message.type == "counters" and message.counters["held"] == 0)
        await worker.act([SLOT], SlotState.PREPARING)
        await is_new(client)


async def test_who_closes_its_own_side_only_is_told(start_worker: StartWorker) -> None:
    """It has the replies to what was not held, and an error for what was."""
    worker = await start_worker()
    async with worker.client() as client:
        await worker.act([SLOT], SlotState.PREPARED)
        reader, writer = await worker.connect()
        writer.write(command(("SET", OTHER, "1")) + LATE + command(("SET", BEHIND, "1")))
        await held(worker)
        writer.write_eof()
        await worker.act([SLOT], SlotState.PREPARING)
        assert await closed(reader) == b"+OK\r\n" + NOTHING_RUN
        assert await client.mget(KEY, BEHIND) == [None, None]
        writer.close()


async def test_who_closes_its_own_side_at_once_is_answered(start_worker: StartWorker) -> None:
    """As `printf ... | nc -N` does; nothing of that has to be held."""
    worker = await start_worker()
    await worker.apply()

    async def ask(number: int) -> bytes:
        reader, writer = await worker.connect()
        requests = [(("SET", f"n{number}:{turn}", "1"), ("GET", f"n{number}:{turn}")) for turn in range(500)]
        writer.write(b"".join(command(words) for pair in requests for words in pair))
        writer.write_eof()
        found = await closed(reader)
        writer.close()
        return found

    assert await asyncio.gather(*(ask(number) for number in range(20))) == [b"+OK\r\n$1\r\n1\r\n" * 500] * 20
