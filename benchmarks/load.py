"""The load: keys put in beforehand, and runs of redis-benchmark whose figures are read back."""

import asyncio
import csv
import os
import shutil
import socket
from dataclasses import dataclass

from cli.processes import end_with_parent

KEY_PREFIX = "key:"
KEY_DIGITS = 12
"""redis-benchmark's own keys are ``key:`` and twelve digits, so that its GET finds what is put in here."""
MGET_KEYS = 10
COMMANDS: dict[str, tuple[str, ...]] = {
    "get": ("-t", "get"),
    "set": ("-t", "set"),
    "mget": ("MGET", *[f"{KEY_PREFIX}__rand_int__"] * MGET_KEYS),
}
"""What redis-benchmark is told for each command that can be measured; the value size and the keys are options."""
SOCKET_SECONDS = 30.0
_CHUNK_BYTES = 1_000_000
_SLOWEST = 1000  # requests a second at which a run is given up, after _GRACE_SECONDS
_GRACE_SECONDS = 60.0


class LoadFailed(RuntimeError):
    """redis-benchmark is not installed, got an error or took too long; or a server refused the keys."""


def key(number: int) -> bytes:
    """Name of a key; there are as many as there are numbers."""
    return f"{KEY_PREFIX}{number:0{KEY_DIGITS}d}".encode()


def set_request(name: bytes, value: bytes) -> bytes:
    """A SET as it goes over the wire."""
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value)


def get_request(name: bytes) -> bytes:
    """A GET as it goes over the wire."""
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)


def fill(address: str, keys: int, value_bytes: int) -> None:
    """Put keys 0 to ``keys - 1`` in at a server, each with ``value_bytes`` bytes. Blocks.

    Raises:
        LoadFailed: when the server answers anything but OK.
        OSError: when the server cannot be reached or does not answer in time.
    """
    host, _, port = address.rpartition(":")
    value = b"x" * value_bytes
    step = max(1, _CHUNK_BYTES // (value_bytes + 64))
    with socket.create_connection((host, int(port)), SOCKET_SECONDS) as connection:
        for start in range(0, keys, step):
            numbers = range(start, min(keys, start + step))
            connection.sendall(b"".join(set_request(key(number), value) for number in numbers))
            expected = b"+OK\r\n" * len(numbers)
            replies = bytearray()
            while len(replies) < len(expected) and expected.startswith(replies):
                received = connection.recv(len(expected) - len(replies))
                if not received:
                    raise LoadFailed(f"{address} closed the connection while keys were put in")
                replies += received
            if not expected.startswith(replies):
                raise LoadFailed(f"{address} refused the keys: {bytes(replies[-200:]).decode(errors='replace')}")


@dataclass(frozen=True)
class Load:
    """One run of redis-benchmark. ``keys`` is the size of the range that random keys are taken from."""

    command: str
    pipeline: int
    requests: int
    clients: int
    keys: int
    value_bytes: int

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return f"{self.command} -P {self.pipeline}"


@dataclass(frozen=True)
class Outcome:
    """What redis-benchmark reports of a run."""

    requests_per_second: float
    p50_milliseconds: float
    p99_milliseconds: float
    max_milliseconds: float


async def run(address: str, load: Load) -> Outcome:
    """Run redis-benchmark against ``address``.

    Raises:
        LoadFailed: with what it said.
    """
    program = shutil.which("redis-benchmark")
    if program is None:
        raise LoadFailed("redis-benchmark is not on PATH; it comes with Redis (Debian: redis-tools)")
    host, _, port = address.rpartition(":")
    options = [
        *("-h", host, "-p", port, "--csv", "-r", str(load.keys), "-d", str(load.value_bytes)),
        *("-c", str(load.clients), "-n", str(load.requests), "-P", str(load.pipeline)),
    ]
    parent = os.getpid()
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        *COMMANDS[load.command],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: end_with_parent(parent),
    )
    # It waits for ever for a server that has gone away.
    limit = _GRACE_SECONDS + load.requests / _SLOWEST
    try:
        async with asyncio.timeout(limit):
            output, errors = await process.communicate()
    except TimeoutError:
        raise LoadFailed(f"redis-benchmark ({load.name}) at {address} was not done in {limit:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode(errors="replace").strip()
    rows = list(csv.DictReader(output.decode(errors="replace").splitlines()))
    if process.returncode != 0 or not rows or "Error" in said:
        raise LoadFailed(f"redis-benchmark ({load.name}) at {address} failed: {said or 'it printed no figures'}")
    row = rows[-1]
    return Outcome(
        float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"]), float(row["max_latency_ms"])
    )
