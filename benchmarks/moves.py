"""What :mod:`benchmarks.migration` looks at while slots move: the snapshot's beginning, long steps, memory, and writes.

:class:`Looking` asks the servers, and :class:`Writing` is a client that writes what moves and finds out whether
anything of it was lost.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import redis

from slots import functions
from slots.table import DEFAULT_SLOTS

STEP_MILLISECONDS = 5
"""Steps of a server that take longer are told."""
LOOK_SECONDS = 0.01
"""Between two looks whether a snapshot has begun."""
SLOW_STEPS = 1000
HOT_KEYS = 1000
AT_ONCE = 100
"""Requests that a writer sends at once."""
SOCKET_SECONDS = 60.0


def moving_names(prefix: str) -> Iterator[str]:
    """Names of keys in slots that will move."""
    names = (f"{prefix}:{number}" for number in count())
    return (name for name in names if functions.slot("crc32", name.encode(), DEFAULT_SLOTS) >= DEFAULT_SLOTS // 2)


def client_of(address: str) -> redis.Redis:
    """A client of a server or a proxy."""
    host, _, port = address.rpartition(":")
    return redis.Redis(host, int(port), socket_timeout=SOCKET_SECONDS)


def memory_bytes(pid: int) -> int:
    """The most memory that a process ever had; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass
class Looking:
    """Looks at servers, by their roles."""

    servers: Mapping[str, str]
    clients: dict[str, redis.Redis] = field(default_factory=dict)

    def begin(self) -> None:
        """Let the servers note long steps. Raises redis.RedisError."""
        for role, address in self.servers.items():
            client = self.clients[role] = client_of(address)
            client.config_set("slowlog-log-slower-than", 1000 * STEP_MILLISECONDS)
            client.config_set("slowlog-max-len", SLOW_STEPS)
            client.slowlog_reset()

    def long_steps(self) -> dict[str, list[tuple[float, str]]]:
        """The long steps of each server since they were asked for: milliseconds and command, the longest first. A
        server counts the time in which another process has its core, too."""
        found = {}
        for role, client in self.clients.items():
            steps: list[dict[str, Any]] = client.slowlog_get(SLOW_STEPS)
            client.slowlog_reset()
            found[role] = sorted(
                ((step["duration"] / 1000, step["command"].split(b" ")[0].decode(errors="replace")) for step in steps),
                reverse=True,
            )
        return found

    async def snapshot(self) -> float:
        """Wait until the source's snapshot begins; give the moment on the monotonic clock."""
        while not (await asyncio.to_thread(self.clients["source"].info, "persistence"))["rdb_bgsave_in_progress"]:
            await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic()


class Writing(threading.Thread):
    """A client that counts up keys in slots that move, so many times a second, over one connection.

    Attributes:
        acknowledged: how often the proxy said that it had counted.
        longest_seconds: from when requests were sent to the last of their replies.
        failed: what went wrong; "" for nothing.
    """

    def __init__(self, proxy: str, rate: float) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.longest_seconds = 0.0
        self.failed = ""
        self._proxy = proxy
        self._rate = rate
        self._names = list(islice(moving_names("hot"), HOT_KEYS))
        self._stopped = threading.Event()
        requests = [b"*2\r\n$4\r\nINCR\r\n$%d\r\n%b\r\n" % (len(name), name.encode()) for name in self._names]
        self._requests = [b"".join(requests[start : start + AT_ONCE]) for start in range(0, HOT_KEYS, AT_ONCE)]

    def fill(self, source: str) -> None:
        """Make the keys. Raises redis.RedisError."""
        with client_of(source) as client:
            client.mset(dict.fromkeys(self._names, 0))

    def run(self) -> None:
        """Write until it is stopped."""
        host, _, port = self._proxy.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), SOCKET_SECONDS) as connection:
                replies = connection.makefile("rb")
                began = time.monotonic()
                for number in count():
                    if self._stopped.wait(max(0.0, began + number * AT_ONCE / self._rate - time.monotonic())):
                        return
                    sent = time.monotonic()
                    connection.sendall(self._requests[number % len(self._requests)])
                    for _ in range(AT_ONCE):
                        if not (reply := replies.readline()).startswith(b":"):
                            raise OSError(f"a write was answered by {reply!r:.80}")
                        self.acknowledged += 1
                    self.longest_seconds = max(self.longest_seconds, time.monotonic() - sent)
        except OSError as error:
            self.failed = str(error)

    def stop(self) -> int:
        """Stop; give how many writes that were acknowledged are missing. Raises redis.RedisError."""
        self._stopped.set()
        self.join(SOCKET_SECONDS)
        with client_of(self._proxy) as client:
            values: Iterable[Any] = client.mget(self._names)
            return self.acknowledged - sum(int(value or 0) for value in values)
