"""The engine in the test's own process: servers that answer as the test says, and clients over socket pairs."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

from proxy.engine.backend import command
from proxy.engine.requests import Loop
from proxy.engine.router import OPEN, Router
from proxy.engine.session import Session
from proxy.servers.allowances import Allowances
from proxy.servers.knownservers import KnownServers
from proxy.settings import ProxySettings
from proxy.worker.holding import Holding
from slots import commands

LIMIT = 60.0
SLOTS = 16
GREETING = {
    b"CLIENT": b"+OK\r\n",
    b"SELECT": b"+OK\r\n",
    b"HELLO": b"%0\r\n",
    b"HEXISTS": b":0\r\n",
    b"ACL": b"*-1\r\n",
    b"INFO": b"$17\r\nrun_id:process\r\nx\r\n",
}
TRANSACTION = {b"MULTI": b"+OK\r\n", b"EXEC": b"*0\r\n"}
"""Part of the greeting, too, up to its end."""


class Visit:
    """One connection to a server, as the server sees it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.asked: list[list[bytes]] = []

    def say(self, data: bytes) -> None:
        """Send something."""
        self._writer.write(data)

    def hang_up(self) -> None:
        """Close the connection."""
        self._writer.close()


Answer = Callable[[Visit, list[bytes]], Awaitable[None]]


class Server:
    """Greets by itself; ``answer(visit, words)`` is called for each other request, one after another."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.visits: list[Visit] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def asked(self) -> list[list[bytes]]:
        """All that it was asked."""
        return [words for visit in self.visits for words in visit.asked]

    async def greet(self, visit: Visit, words: list[bytes]) -> None:
        """Answer a part of a greeting, or the question for the connection's number."""
        visit.say(b":1\r\n" if words == [b"CLIENT", b"ID"] else (GREETING | TRANSACTION)[words[0]])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(writer)
        self.visits.append(visit)
        greeting = GREETING | TRANSACTION
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            if words[0] in greeting:
                await self.greet(visit, words)
                if words[0] == b"INFO":
                    greeting = GREETING
            else:
                visit.asked.append(words)
                await self._answer(visit, words)
        writer.close()


async def nothing_stored(visit: Visit, words: list[bytes]) -> None:
    """Answer as a Redis server that keeps nothing."""
    visit.say({b"GET": b"$-1\r\n", b"PING": b"+PONG\r\n"}.get(words[0], b"+OK\r\n"))


def once(let_go: asyncio.Event, answer: Answer) -> Answer:
    """Answer so, but not before the event."""

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        await let_go.wait()
        await answer(visit, words)

    return slowly


class SlowPath:
    """It stands in for the worker's slow path: the test's own handlers answer, by the command's name."""

    def __init__(self) -> None:
        self.handlers: dict[bytes, Callable[[], Any]] = {}
        self.handled: list[str] = []
        """For each request that came here, the client's name."""
        self.tasks: set[asyncio.Task[None]] = set()

    def handle(self, session: Session, argv: list[bytes]) -> Any:
        self.handled.append(session.peer)
        return self.handlers[argv[0]]()

    def keep(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class Client:
    """A client of the engine."""

    def __init__(self, engine: "Engine", name: str, number: int) -> None:
        self._socket, theirs = socket.socketpair()
        for end in (self._socket, theirs):
            end.setblocking(False)
        self.session = Session(engine.router, theirs, name, number)

    async def send(self, *requests: tuple[bytes | str | int, ...]) -> None:
        """Send requests in one piece."""
        await self.send_bytes(b"".join(command(request) for request in requests))

    async def send_bytes(self, data: bytes) -> None:
        """Send what may be a part of a request."""
        async with asyncio.timeout(LIMIT):
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read(self, size: int, seconds: float = LIMIT) -> bytes:
        """So many bytes, or fewer if the connection ends before."""
        received = b""
        async with asyncio.timeout(seconds):
            while len(received) < size:
                piece = await asyncio.get_running_loop().sock_recv(self._socket, size - len(received))
                if not piece:
                    break
                received += piece
        return received

    async def read_line(self) -> bytes:
        """One line, without its end."""
        line = b""
        while not line.endswith(b"\r\n"):
            piece = await self.read(1)
            assert piece, f"the connection ended after {line!r}"
            line += piece
        return line[:-2]

    def say_no_more(self) -> None:
        """Close its own side of the connection, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Close the connection at its side."""
        self._socket.close()

    def close(self) -> None:
        self.session.close()
        self._socket.close()


def options(**changes: Any) -> Any:
    """The options of a worker that a connection to a server needs."""
    return SimpleNamespace(
        allowances=Allowances(),
        known_servers=KnownServers(),
        lost_masters=frozenset(),
        **{
            "password": "",
            "user": "",
            "tls": None,
            "instance": "f" * 32,
            "new_name": lambda: "name.",
            "connect_seconds": 5.0,
            "queue_pause_bytes": 4_000_000,
            "own_reply_bytes": 1_000_000,
            "retry_seconds_min": 1.0,
            "retry_seconds_max": 1.0,
            "on_lost": lambda address, name: None,
            "on_disconnected": lambda address, shared: None,
            "on_fenced": lambda address: None,
            "on_unknown": lambda address, process: None,
            **changes,
        },
    )


class Engine:
    """A router all of whose slots are at one server, and its clients."""

    def __init__(self, address: str, **settings: Any) -> None:
        self.event_loop = asyncio.get_running_loop()
        self.loop = Loop(self.event_loop, SLOTS)
        self.options = options()
        self.router = Router(self.loop, "crc32", 16, self.options, ProxySettings(**settings), commands.table())
        self.slow_path = SlowPath()
        self.router.slow_path = self.slow_path  # type: ignore[assignment]
        self.router.holding = Holding(LIMIT)
        self.clients: list[Client] = []
        self.mistakes: list[str] = []
        """What was reported as a mistake."""
        self.event_loop.set_exception_handler(lambda _, context: self.mistakes.append(str(context.get("exception"))))
        self.route(OPEN, address)

    def route(self, state: int, address: str | None) -> None:
        """Have all slots in a state at a server."""
        for slot in range(SLOTS):
            self.router.set_route(slot, state, address, 0)

    def connect(self, name: str = "client", number: int = 0) -> Client:
        """One more client, with the number that its session is to have."""
        self.clients.append(Client(self, name, number))
        return self.clients[-1]


@contextmanager
def nobody_listens() -> Iterator[str]:
    """An address at which nobody listens within the block."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@contextmanager
def engine(address: str, **settings: Any) -> Iterator[Engine]:
    """An engine within a block."""
    made = Engine(address, **settings)
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
        for backend in made.router.shared_backends:
            backend.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop go on until a condition holds."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.001)
