"""Starts the processes of a checking traffic, gives them orders, and puts their reports together.

async with Traffic(["127.0.0.1:6380"], keys=10_000) as traffic:
    await traffic.load()
    await traffic.start()
    ...                                  # traffic.seconds grows by one a second
    total = await traffic.stop()
    verdict = await traffic.verify(layout)
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from slotferry.local import environment_of
from slotferry.processes import STOP_SECONDS, end_with_parent
from slotferry.traffic.latency import Histogram
from slotferry.traffic.placement import Layout
from slotferry.traffic.worker import LINE_LIMIT, Settings
from slots.python import PYTHON

OPEN_SECONDS = 30.0
LOAD_SECONDS = 1800.0
"""Limit of a load and of a comparison."""
_KEPT_TEXTS = 10


class TrafficError(RuntimeError):
    """A process of the traffic ended or does not answer."""


@dataclass
class Report:
    """The counts of one second, of a load, or of all."""

    at: int = 0
    """Seconds since the epoch; 0 for more than one second."""
    duration: float = 0.0
    """The length of that time, in seconds."""
    requests: int = 0
    errors: int = 0
    differences: int = 0
    error_texts: dict[str, int] = field(default_factory=dict)
    difference_texts: list[str] = field(default_factory=list)
    latency: Histogram = field(default_factory=Histogram)

    @property
    def clean(self) -> bool:
        """Whether there was neither an error nor a difference."""
        return not self.errors and not self.differences

    def add(self, wire: Mapping[str, Any]) -> None:
        """Add the counts of a process's report."""
        other = Report(
            requests=wire["requests"],
            errors=wire["errors"],
            differences=wire["differences"],
            error_texts=wire["error_texts"],
            difference_texts=wire["difference_texts"],
            latency=Histogram({int(bucket): count for bucket, count in wire["buckets"].items()}),
        )
        self.merge(other)

    def merge(self, other: "Report") -> None:
        """Add the counts of another report."""
        self.requests += other.requests
        self.errors += other.errors
        self.differences += other.differences
        for text, count in other.error_texts.items():
            if text in self.error_texts or len(self.error_texts) < _KEPT_TEXTS:
                self.error_texts[text] = self.error_texts.get(text, 0) + count
        self.difference_texts = [*self.difference_texts, *other.difference_texts][:_KEPT_TEXTS]
        self.latency.merge(other.latency)

    def to_wire(self) -> dict[str, Any]:
        """As JSON, with percentiles instead of the histogram."""
        return {
            "at": self.at,
            "duration": round(self.duration, 3),
            "requests": self.requests,
            "errors": self.errors,
            "differences": self.differences,
            "error_texts": self.error_texts,
            "difference_texts": self.difference_texts,
            **self.latency.summary(),
        }


@dataclass
class Verification:
    """The result of the comparison of every key at the end."""

    compared: Report
    """Differences between the written values and the values read through the proxies."""
    keys: int = 0
    """The number of keys compared, including deleted ones."""
    placed: int = 0
    """The number of keys found on the servers."""
    misplaced: int = 0
    """The number of keys that are not on exactly the one right server; also 0 if the servers were not looked at."""
    misplaced_texts: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether every key has its last written value, and is in its right place."""
        return self.compared.clean and not self.misplaced


class Traffic:
    """Checking traffic that runs while the ``async with`` block runs."""

    def __init__(
        self,
        proxies: Sequence[str],
        keys: int = 10_000,
        *,
        processes: int = 1,
        connections: int = 32,
        rate: float = 0.0,
        pipeline: int = 8,
        writes: float = 0.3,
        profile: str = "mixed",
        databases: Sequence[int] = (0,),
        protocols: Sequence[int] = (2, 3),
        password: str | None = None,
        seed: int = 1,
    ) -> None:
        """
        Args:
            proxies: ``host:port`` of each proxy (or of a plain Redis server).
            keys: how many keys.
            processes: how many processes share the keys, the connections and the rate.
            connections: connections in all, spread over proxies, databases and protocols.
            rate: requests a second in all; 0 is as fast as it goes.
            pipeline: the longest pipeline; 1 sends each request by itself.
            writes: share of requests that write.
            profile: ``mixed`` types and sizes, or ``fixed:N`` for strings of N bytes only.
            databases: databases the keys are spread over.
            protocols: versions of RESP that connections speak, in turn.
            password: what connections log in with.
            seed: the order of requests follows from it.
        """
        share = max(1, connections // processes)
        self._settings = [
            Settings(
                proxies=list(proxies),
                keys=keys,
                profile=profile,
                connections=share,
                rate=rate / processes,
                pipeline=pipeline,
                writes=writes,
                databases=list(databases),
                protocols=list(protocols),
                password=password,
                seed=seed,
                part=part,
                parts=processes,
            )
            for part in range(processes)
        ]
        self.seconds: list[Report] = []
        """A report for each full second of traffic, as they come."""
        self.total = Report()
        """All seconds together, including one that is not yet reported in :attr:`seconds`."""
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._answers: list[asyncio.Queue[dict[str, Any]]] = []
        self._open_seconds: dict[int, list[dict[str, Any]]] = {}
        self._progress: dict[int, int] = {}
        self._on_progress: Callable[[int], None] | None = None

    async def __aenter__(self) -> Self:
        try:
            for settings in self._settings:
                await self._start_process(settings)
            await self._expect("open", OPEN_SECONDS)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids, to measure the cost of the traffic itself."""
        return [process.pid for process in self._processes]

    async def load(self, on_progress: Callable[[int], None] | None = None) -> Report:
        """Write every key once; ``on_progress`` is called with the number of keys sent. Raises
        :class:`TrafficError`."""
        return self._sum(await self._order({"do": "load"}, LOAD_SECONDS, on_progress))

    async def start(self) -> None:
        """Begin the mixed traffic, with new counts. It may have been stopped before."""
        self.seconds.clear()
        self.total = Report()
        await self._order({"do": "run"}, OPEN_SECONDS)

    async def stop(self) -> Report:
        """End the traffic, wait for requests in flight, and give the sum of all of it."""
        await self._order({"do": "stop"}, 2 * OPEN_SECONDS)
        self._close_seconds(everything=True)
        return self.total

    async def verify(
        self, layout: Layout | None = None, on_progress: Callable[[int], None] | None = None
    ) -> Verification:
        """Compare every key; with ``layout`` look at the servers, too. Not while traffic runs or slots move."""
        answers = await self._order({"do": "compare"}, LOAD_SECONDS, on_progress)
        found = Verification(self._sum(answers), keys=sum(answer["keys"] for answer in answers))
        if layout is not None:
            for answer in await self._order({"do": "place", "layout": layout.to_wire()}, LOAD_SECONDS):
                found.placed += answer["keys"]
                found.misplaced += answer["wrong"]
                found.misplaced_texts = [*found.misplaced_texts, *answer["texts"]][:_KEPT_TEXTS]
        return found

    async def close(self) -> None:
        """End the processes in any state."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
        for process in self._processes:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
        for reader in self._readers:
            reader.cancel()
        self._processes.clear()
        self._readers.clear()
        self._answers.clear()

    @staticmethod
    def _sum(answers: Sequence[Mapping[str, Any]]) -> Report:
        total = Report()
        for answer in answers:
            total.add(answer)
        return total

    async def _start_process(self, settings: Settings) -> None:
        parent = os.getpid()
        process = await asyncio.create_subprocess_exec(
            *(*PYTHON, "-m", "slotferry.traffic", json.dumps(asdict(settings))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment_of("", {}),
            limit=LINE_LIMIT,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )
        self._processes.append(process)
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers.append(answers)
        self._readers.append(asyncio.create_task(self._read(len(self._processes) - 1, process, answers)))

    async def _read(
        self, number: int, process: asyncio.subprocess.Process, answers: asyncio.Queue[dict[str, Any]]
    ) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message = json.loads(line)
            match message["event"]:
                case "second":
                    self._take_second(message)
                case "rest":
                    self.total.add(message)
                case "progress":
                    self._progress[number] = message["keys"]
                    if self._on_progress is not None:
                        self._on_progress(sum(self._progress.values()))
                case _:
                    answers.put_nowait(message)
        answers.put_nowait({"event": "end"})

    def _take_second(self, message: dict[str, Any]) -> None:
        self.total.add(message)
        self._open_seconds.setdefault(message["at"], []).append(message)
        self._close_seconds()

    def _close_seconds(self, everything: bool = False) -> None:
        """Turn seconds that all processes have reported, or that are two seconds old, into reports."""
        newest = max(self._open_seconds, default=0)
        for at in sorted(self._open_seconds):
            messages = self._open_seconds[at]
            if everything or at < newest - 1 or len(messages) >= len(self._processes):
                second = Report(at=at, duration=max(message["duration"] for message in messages))
                for message in messages:
                    second.add(message)
                self.seconds.append(second)
                del self._open_seconds[at]

    async def _order(
        self, order: Mapping[str, Any], limit: float, on_progress: Callable[[int], None] | None = None
    ) -> list[dict[str, Any]]:
        self._progress.clear()
        self._on_progress = on_progress
        line = json.dumps(order).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            with contextlib.suppress(ConnectionError):  # told by _expect
                await process.stdin.drain()
        return await self._expect(order["do"], limit)

    async def _expect(self, event: str, limit: float) -> list[dict[str, Any]]:
        found = []
        for number, answers in enumerate(self._answers):
            try:
                async with asyncio.timeout(limit):
                    message = await answers.get()
            except TimeoutError:
                raise TrafficError(f"traffic process {number} did not {event} within {limit:g} s") from None
            if message["event"] != event:
                raise TrafficError(f"traffic process {number} ended; what went wrong stands on standard error")
            found.append(message)
        return found
