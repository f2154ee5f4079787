"""run-id: what is known of the code at a server holds for the process at the other end of a connection that is up."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import redis.asyncio

from slotferry.redis_server import start_redis
from slots.group import Group
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_functions import key_at, library, restart

StartWorker = Callable[..., Awaitable[WorkerHarness]]
SCRIPT = "return 42"
NAME = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


class Address:
    """An address behind which another server may come: what was connected before goes silent, and stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._generation = 0
        self.seconds = 0.0
        """How long a new connection takes."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Address":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, port: int) -> None:
        """Have new connections lead to another server, and old ones nowhere."""
        self.port = port
        self._generation += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.seconds)
        generation = self._generation
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if generation == self._generation:
                    sink.write(data)
            sink.close()

        await asyncio.gather(pass_on(reader, up_writer), pass_on(up_reader, writer), return_exceptions=True)


async def known_at_second(client: redis.asyncio.Redis) -> None:
    """Have the worker know that the second server has the script and the library."""
    await client.script_load(SCRIPT)
    await client.function_load(library())
    for _ in range(2):
        assert await client.evalsha(NAME, 1, key_at(2)) == 42
        await client.fcall("f", 1, key_at(2))


async def test_another_server_behind_an_address_whose_old_connections_are_silent(worker: WorkerHarness) -> None:
    new = await start_redis("redis-new", worker.directory)
    try:
        async with (
            Address(worker.servers[1].port) as address,
            worker.client(protocol=2) as client,
            worker.client(protocol=2, db=5) as other,
        ):
            await worker.apply([], [Group(2, (address.address,))])
            await known_at_second(client)
            address.lead_to(new.port)
            # In another database: a connection that is made now.
            for _ in range(3):
                assert await other.evalsha(NAME, 1, key_at(2)) == 42
                assert await other.fcall("f", 1, key_at(2)) == key_at(2).encode()
            # Nor does the silent connection stay in use until it has owed a reply for too long.
            assert await client.evalsha(NAME, 1, key_at(2)) == 42
    finally:
        await new.stop()


async def test_a_restart_while_a_connection_is_made(worker: WorkerHarness) -> None:
    async with (
        Address(worker.servers[1].port) as address,
        worker.client(protocol=2) as client,
        worker.client(protocol=2, db=5) as other,
        worker.client(protocol=2, db=6) as third,
    ):
        await worker.apply([], [Group(2, (address.address,))])
        await known_at_second(client)
        address.seconds = 1.0
        asked = [
            asyncio.create_task(other.evalsha(NAME, 1, key_at(2))),
            asyncio.create_task(third.fcall("f", 1, key_at(2))),
        ]
        await asyncio.sleep(0.2)
        await restart(worker, 2)
        address.seconds = 0.0
        # Whatever comes of them, it is not that the server lacks the code.
        for found in await asyncio.gather(*asked, return_exceptions=True):
            assert "NOSCRIPT" not in str(found)
            assert "not found" not in str(found)
