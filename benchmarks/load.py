"""The load: keys that are stored beforehand, and runs of redis-benchmark with their figures."""

import asyncio
import csv
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from slotferry.processes import end_with_parent

KEY_PREFIX = "key:"
KEY_DIGITS = 12
"""redis-benchmark writes twelve digits for its ``__rand_int__``, so its GET finds the keys stored here."""
SMALL_BYTES = 64
"""Size of the values whose keys have no size in their names."""
KEYS_AT_ONCE = 10
"""The keys of a request with several."""
ABSENT = "absent:__rand_int__"
"""DEL's keys, so that what it finds does not depend on what ran before, and all others find theirs."""
MIX = "mix"
MIX_GETS = 0.8
"""The share of GET in a mix's requests and clients; the others are SET."""
COMMANDS = ("get", "set", "mget", "mset", "del", MIX)
SOCKET_SECONDS = 30.0
_CHUNK_BYTES = 1_000_000
_SLOWEST = 1000  # requests a second at which a run is given up, after _GRACE_SECONDS
_GRACE_SECONDS = 60.0


class LoadFailed(RuntimeError):
    """redis-benchmark is not installed, got an error or took too long; or a server refused the keys."""


def prefix_of(value_bytes: int) -> str:
    """The prefix of keys whose values have this size: values of several sizes are stored at once."""
    return KEY_PREFIX if value_bytes == SMALL_BYTES else f"key{value_bytes}:"


def key(number: int, prefix: str = KEY_PREFIX) -> bytes:
    """Name of a key; there are as many as there are numbers."""
    return f"{prefix}{number:0{KEY_DIGITS}d}".encode()


def set_request(name: bytes, value: bytes) -> bytes:
    """A SET in the form in which it is sent."""
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value)


def get_request(name: bytes) -> bytes:
    """A GET in the form in which it is sent."""
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)


def fill(address: str, keys: int, value_bytes: int, prefix: str = KEY_PREFIX) -> None:
    """Store keys 0 to ``keys - 1`` at a server, each with ``value_bytes`` bytes. Blocks.

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
            connection.sendall(b"".join(set_request(key(number, prefix), value) for number in numbers))
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
    """One run of redis-benchmark, or of two at once.

    ``keys`` is the size of the range of random keys. ``words`` is what is sent; empty for one of :data:`COMMANDS`.
    """

    command: str
    pipeline: int
    requests: int
    clients: int
    keys: int
    value_bytes: int
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the tables."""
        size = f"{self.value_bytes // 1024} KiB" if self.value_bytes >= 1024 else f"{self.value_bytes} B"
        return f"{self.command} {size} -c {self.clients} -P {self.pipeline}"


@dataclass(frozen=True)
class Stream:
    """One process of redis-benchmark: a command over and over."""

    words: tuple[str, ...]
    requests: int
    clients: int


def streams(load: Load) -> list[Stream]:
    """The processes that together are a load.

    redis-benchmark repeats one command. A mix is two of them at once; as both have clients in proportion to their
    requests, they end at about the same time.
    """
    if load.words:
        return [Stream(load.words, load.requests, load.clients)]
    name = f"{prefix_of(load.value_bytes)}__rand_int__"
    words = {
        "get": ("GET", name),
        "set": ("SET", name, "x" * load.value_bytes),
        "mget": ("MGET", *[name] * KEYS_AT_ONCE),
        "mset": ("MSET", *[name, "x" * load.value_bytes] * KEYS_AT_ONCE),
        "del": ("DEL", *[ABSENT] * KEYS_AT_ONCE),
    }
    if load.command != MIX:
        return [Stream(words[load.command], load.requests, load.clients)]
    requests, clients = round(load.requests * MIX_GETS), round(load.clients * MIX_GETS)
    return [
        Stream(words["get"], requests, clients),
        Stream(words["set"], load.requests - requests, load.clients - clients),
    ]


@dataclass(frozen=True)
class Outcome:
    """The report of redis-benchmark about a run."""

    requests_per_second: float
    p50_milliseconds: float
    p99_milliseconds: float
    max_milliseconds: float


def together(parts: Sequence[tuple[Stream, Outcome]]) -> Outcome:
    """The outcome of streams that ran at once: all requests over the longest time, with the worst latencies.

    A percentile of all requests is not above the greatest of the streams' percentiles.
    """
    requests = sum(stream.requests for stream, _ in parts)
    seconds = max(stream.requests / outcome.requests_per_second for stream, outcome in parts)
    return Outcome(
        requests / seconds,
        max(outcome.p50_milliseconds for _, outcome in parts),
        max(outcome.p99_milliseconds for _, outcome in parts),
        max(outcome.max_milliseconds for _, outcome in parts),
    )


async def run(address: str, load: Load) -> Outcome:
    """Send a load to ``address``.

    Raises:
        LoadFailed: with what redis-benchmark said.
    """
    parts = streams(load)
    running = [asyncio.create_task(_run(address, load, stream)) for stream in parts]
    try:
        outcomes = await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return outcomes[0] if len(outcomes) == 1 else together(list(zip(parts, outcomes, strict=True)))


async def _run(address: str, load: Load, stream: Stream) -> Outcome:
    program = shutil.which("redis-benchmark")
    if program is None:
        raise LoadFailed("redis-benchmark is not on PATH; it comes with Redis (Debian: redis-tools)")
    host, _, port = address.rpartition(":")
    options = [
        *("-h", host, "-p", port, "--csv", "-r", str(load.keys), "-P", str(load.pipeline)),
        *("-c", str(stream.clients), "-n", str(stream.requests)),
    ]
    parent = os.getpid()
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        *stream.words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: end_with_parent(parent),
    )
    # Otherwise it waits for ever for a server that has gone.
    limit = _GRACE_SECONDS + stream.requests / _SLOWEST
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
