"""The supervisor's neighbours, played by the tests: topom at one side, worker processes at the other."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable

SECONDS = 60.0
"""No wait of a test takes longer; what a test waits for is always a condition."""
PRODUCT = {"name": "demo", "number_of_slots": 4, "slot_function": "crc32", "databases": 16}
REGISTERED = {
    "type": "registered",
    "proxy_id": 1,
    "cluster": "c",
    "start": "s",
    "heartbeat_seconds": 0.05,
    "stand_down_seconds": None,
    "quiet_seconds": 2.0,
}


def table(epoch: int, *owners: int | tuple[int, str, int], servers: dict[int, str] | None = None) -> SlotTable:
    """A table whose slots are given as a group id, or as (group id, state, target id)."""
    slots = []
    for index, owner in enumerate(owners):
        if isinstance(owner, int):
            slots.append(Slot(index, owner))
        else:
            slots.append(Slot(index, owner[0], Action(SlotState(owner[1]), owner[2])))
    named = servers or {1: "127.0.0.1:1", 2: "127.0.0.1:2"}
    return SlotTable(epoch, tuple(slots), {number: Group(number, (server,)) for number, server in named.items()})


class Heard:
    """Messages as they come, to be taken in order."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these types; others are passed over."""
        async with asyncio.timeout(SECONDS):
            while True:
                message = await self.queue.get()
                if message is None:
                    raise EOFError(f"ended before {kinds}")
                if not kinds or message["type"] in kinds:
                    return message

    async def end(self) -> None:
        """Wait until nothing more can come."""
        async with asyncio.timeout(SECONDS):
            while await self.queue.get() is not None:
                pass


class TopomStream(Heard):
    """One control stream, seen from topom."""

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__()
        self.connection = connection

    async def send(self, message: dict[str, Any]) -> None:
        await self.connection.send(json.dumps(message))

    async def register(self, number_of_slots: int = 4, **fields: Any) -> dict[str, Any]:
        """Take the proxy on; gives its registration."""
        registration = await self.next("register")
        product = {**PRODUCT, "number_of_slots": number_of_slots}
        await self.send({**REGISTERED, "product": product, **fields})
        return registration

    async def send_table(self, new: SlotTable, since: SlotTable | None = None) -> None:
        await self.send({"type": "table", "table": new.to_wire() if since is None else new.changes_since(since)})

    async def close(self) -> None:
        await self.connection.close()


class FakeTopom:
    """A WebSocket server that leaves everything to the test."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[TopomStream] = asyncio.Queue()
        self.headers: list[str | None] = []
        self.url = ""
        self._server: Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await serve(self._serve, "127.0.0.1", port, compression=None, close_timeout=0.5)
        self.url = f"http://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def stream(self) -> TopomStream:
        async with asyncio.timeout(SECONDS):
            return await self.streams.get()

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        assert connection.request.path == "/api/v1/control"
        self.headers.append(connection.request.headers.get("Authorization"))
        stream = TopomStream(connection)
        self.streams.put_nowait(stream)
        with contextlib.suppress(ConnectionClosed):
            async for text in connection:
                stream.queue.put_nowait(json.loads(text))
        stream.queue.put_nowait(None)


class DirectedWorker(Heard):
    """One fake worker process."""

    def __init__(self, pid: int, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self.pid = pid
        self.writer = writer
        self.instance = ""
        """The identity that it got last."""

    def order(self, **order: Any) -> None:
        self.writer.write(json.dumps(order).encode() + b"\n")

    def say(self, kind: str, **fields: Any) -> None:
        """Have it send a message to the supervisor."""
        if kind in ("ack", "nack", "met", "fenced"):
            fields = {"instance": self.instance, **fields}
        self.order(do="say", message={"type": kind, **fields})

    async def apply(self) -> dict[str, Any]:
        """Take the next table and acknowledge it."""
        received = await self.next("table", "identity")
        self.say("ack", epoch=received["table"]["epoch"])
        return received


class Director:
    """Where fake workers ask what to do."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "director")
        self.command = (sys.executable, str(Path(__file__).with_name("fake_worker.py")), self.path)
        self._started: asyncio.Queue[DirectedWorker] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=1 << 26)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def worker(self) -> tuple[DirectedWorker, dict[str, Any]]:
        """The next worker that was started, and its ``start`` message."""
        async with asyncio.timeout(SECONDS):
            worker = await self._started.get()
        return worker, await worker.next("start")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker: DirectedWorker | None = None
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if worker is None:
                    worker = DirectedWorker(message["pid"], writer)
                    self._started.put_nowait(worker)
                else:
                    if message["type"] in ("start", "identity"):
                        worker.instance = message["instance"]
                    worker.queue.put_nowait(message)
        if worker is not None:
            worker.queue.put_nowait(None)
        writer.close()


@contextlib.asynccontextmanager
async def fake_topom() -> AsyncIterator[FakeTopom]:
    topom = FakeTopom()
    await topom.start()
    try:
        yield topom
    finally:
        await topom.stop()
