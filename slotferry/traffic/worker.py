"""A process of checking traffic. Orders come as JSON lines on standard input, reports go out on standard output.

Orders: ``{"do": "load"}``, ``{"do": "run"}``, ``{"do": "stop"}``, ``{"do": "compare"}``, ``{"do": "place", "layout":
{...}}``. Each is answered by ``{"event": <the same word>, ...}`` when it is done. Meanwhile ``{"event": "progress",
"keys": n}`` reports a load or comparison, ``{"event": "second", ...}`` each second of traffic, and ``{"event": "rest",
...}`` the requests after the last second. The process ends when its input does.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from slotferry.traffic.keys import Keys
from slotferry.traffic.placement import Layout, check_placement
from slotferry.traffic.session import Session, Tally
from slotferry.traffic.sources import Compare, Load, Mixed, Source

PROGRESS_SECONDS = 0.2
STOP_SECONDS = 30.0
"""How long requests in flight may take after a stop."""
LINE_LIMIT = 16 << 20


@dataclass(frozen=True)
class Settings:
    """The settings of one process; all processes of a traffic have the same, except ``part``."""

    proxies: Sequence[str]
    keys: int = 10_000
    profile: str = "mixed"
    connections: int = 32
    """Connections of this process."""
    rate: float = 0.0
    """Requests a second of this process; 0 is as fast as it goes."""
    pipeline: int = 8
    writes: float = 0.3
    databases: Sequence[int] = (0,)
    protocols: Sequence[int] = (2, 3)
    password: str | None = None
    seed: int = 1
    part: int = 0
    parts: int = 1


class Worker:
    """The sessions of one process, and its counts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = Keys(
            settings.keys, settings.profile, settings.databases, settings.part, settings.parts, settings.seed
        )
        self._sessions: list[Session] = []
        self._now = Tally()
        self._since = time.monotonic()
        self._ticker: asyncio.Task[None] | None = None
        self._overdue: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect all sessions, over every combination of proxy, database and protocol version if there are enough.

        Raises:
            OSError: when a proxy does not accept.
        """
        settings = self._settings
        proxies, databases, protocols = settings.proxies, settings.databases, settings.protocols
        for number in range(max(settings.connections, len(databases))):
            database = number % len(databases)
            # Shifted in each round, so that equal lengths of the lists do not tie a database to a proxy.
            proxy = (number + number // len(proxies)) % len(proxies) if len(proxies) > 1 else 0
            protocol = (number // (len(databases) * len(proxies))) % len(protocols)
            session = Session(
                proxies[proxy], databases[database], protocols[protocol], settings.password, lambda: self._now
            )
            await session.open()
            self._sessions.append(session)
        self._overdue = asyncio.create_task(self._watch_overdue())

    def close(self) -> None:
        """Close all sessions."""
        for task in (self._ticker, self._overdue):
            if task is not None:
                task.cancel()
        for session in self._sessions:
            session.close()

    async def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one order and give its answer."""
        match order.get("do"):
            case "load":
                return await self._through(Load(self._keys))
            case "compare":
                return await self._through(Compare(self._keys))
            case "run":
                return self._run()
            case "stop":
                return await self._stop()
            case "place":
                return asdict(await check_placement(self._keys, Layout.from_wire(order["layout"])))
        raise ValueError(f"unknown order {order!r}")

    async def _through(self, source: Load | Compare) -> dict[str, Any]:
        """Have the sessions take everything from a source, and report the progress."""
        self._now = tally = Tally()
        for session in self._sessions:
            session.run(source)
        done = asyncio.gather(*(session.idle.wait() for session in self._sessions))
        while not done.done():
            await asyncio.wait([done], timeout=PROGRESS_SECONDS)
            report({"event": "progress", "keys": source.given, "of": self._keys.count})
        self._now = Tally()
        return {"keys": source.given, **tally.to_wire()}

    def _run(self) -> dict[str, Any]:
        settings = self._settings
        source: Source = Mixed(self._keys, settings.writes, settings.pipeline)
        interval = len(self._sessions) / settings.rate if settings.rate else 0.0
        self._now = Tally()
        self._since = time.monotonic()
        for session in self._sessions:
            session.run(source, interval)
        # A garbage collection would look like latency of the proxy, and few cycles are made here.
        gc.collect()
        gc.disable()
        self._ticker = asyncio.create_task(self._tick())
        return {}

    async def _stop(self) -> dict[str, Any]:
        for session in self._sessions:
            session.rest()
        gc.enable()
        late = 0
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for session in self._sessions:
                    await session.idle.wait()
        except TimeoutError:
            late = sum(not session.idle.is_set() for session in self._sessions)
            self._now.error(f"{late} connections still wait for replies after {STOP_SECONDS:g} s")
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        self._report("rest")
        return {"doubtful": len(self._keys.doubtful)}

    async def _tick(self) -> None:
        """Report at each full second of the clock, so that the processes of a traffic report the same seconds."""
        at = round(time.time()) + 1
        while True:
            # A timer may fire a little early.
            while (wait := at - time.time()) > 0:
                await asyncio.sleep(wait)
            self._report("second", at)
            at = max(at + 1, int(time.time()))

    def _report(self, event: str, at: int = 0) -> None:
        now = time.monotonic()
        tally, self._now = self._now, Tally()
        report({"event": event, "at": at, "duration": now - self._since, **tally.to_wire()})
        self._since = now

    async def _watch_overdue(self) -> None:
        while True:
            await asyncio.sleep(1)
            for session in self._sessions:
                session.check_overdue()


def report(line: Mapping[str, Any]) -> None:
    """Write one line of JSON to standard output."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def serve(settings: Settings) -> None:
    """Connect, then carry out orders until there are no more."""
    orders = asyncio.StreamReader(limit=LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    worker = Worker(settings)
    try:
        await worker.open()
        report({"event": "open"})
        while line := await orders.readline():
            order = json.loads(line)
            report({"event": order["do"], **await worker.obey(order)})
    finally:
        worker.close()


def main(arguments: Sequence[str]) -> int:
    """``python -m slotferry.traffic SETTINGS``; the settings are one JSON object.

    It is started by :class:`slotferry.traffic.driver.Traffic`.
    """
    settings = Settings(**json.loads(arguments[0]))
    try:
        uvloop.run(serve(settings))
    except OSError as error:
        print(f"traffic process {settings.part}: {error}", file=sys.stderr)
        return 1
    return 0
