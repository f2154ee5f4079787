"""What the control plane of a large cluster costs, and whether it keeps its bounds.

    python -m benchmarks.scale                     # 1,000 proxies, 3,000 servers, etcd, then ZooKeeper: six minutes
    python -m benchmarks.scale --quick             # 50 proxies, 60 servers: shows that all works

topom is a real process over a real store, filled with what ten years leave (:mod:`benchmarks.fleet`). The Redis servers
are played by one process and the proxies by another; both speak the real protocols over the loopback network. All CPU
times are of topom's process alone, so they hardly depend on what else the machine does; the waits do.
"""

import asyncio
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import structlog
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import fleet, players, quietservers, report
from benchmarks.processes import cpu_seconds, percentile
from slotferry.processes import free_ports
from slots.openfiles import raise_limit
from topom.cluster import changed_records
from topom.store import STATE, Stored
from topom.term.settings import TopomSettings
from topom.term.stores import open_store

TOKEN = "a-token-of-the-benchmark"
MOST_FILES = 65_536
LIMIT_SECONDS = 300.0
VIEWERS = 10
"""Pages that are open at a time."""
GOALS = {
    "state, MB": 2.0,
    "largest document, KB": 512.0,
    "leads after its election, s": 5.0,
    "asking servers, cores": 0.3,
    "ten pages, cores": 0.05,
    "streams and judging, cores": 0.3,
    "barrier p99, ms": 100.0,
}


@dataclass
class Found:
    """What was measured with one store."""

    figures: dict[str, float] = field(default_factory=dict)
    documents: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By kind: how many there are, their bytes, and the bytes of the largest."""
    barriers: list[float] = field(default_factory=list)


class Topom:
    """A topom process."""

    def __init__(
        self, folder: Path, name: str, store: str, store_servers: str, port: int, more: dict[str, str]
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        said = {
            "listen": f"127.0.0.1:{port}",
            "url": self.url,
            "token": TOKEN,
            "data": str(folder / name),
            "store": store,
            "store_servers": store_servers,
            "ha": "topom",
            # What is measured is not whether a busy machine keeps its lease.
            "leader_lease_seconds": "30",
            "store_timeout_seconds": "10",
            **more,
        }
        environment = {f"SLOTFERRY_TOPOM_{key.upper()}": value for key, value in said.items()}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slotferry", "topom"], env={**os.environ, **environment}, stderr=output
            )

    @property
    def cpu(self) -> float:
        """CPU seconds that it has used."""
        return cpu_seconds(self.process.pid)

    async def said(self, event: str) -> datetime:
        """When it logged this, which it is waited for."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                for line in self.log.read_text(errors="replace").splitlines():
                    if re.search(rf"\b{event}\b", line) and (
                        found := re.search(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d[.\d]*", line)
                    ):
                        return datetime.fromisoformat(found[0])
                if self.process.poll() is not None:
                    raise RuntimeError(f"topom has ended; its log: {self.log.read_text()[-2000:]}")
                await asyncio.sleep(0.02)

    def end(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Counting:
    """Passes on what goes to a store's server and comes from it, and counts the latter."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.bytes = 0
        self._to = port

    async def start(self) -> asyncio.Server:
        """Begin to listen, on :attr:`port`."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)

        async def passing(source: asyncio.StreamReader, sink: asyncio.StreamWriter, counts: bool) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    self.bytes += len(data) if counts else 0
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(passing(reader, back, False), passing(there, writer, True))


@contextlib.asynccontextmanager
async def store_server(kind: str, folder: Path) -> AsyncIterator[int]:
    """A server of a store; its port."""
    from tests.integration.stores.servers import start_etcd, start_zookeeper

    (server,) = await (start_etcd(folder) if kind == "etcd" else start_zookeeper(folder))
    try:
        yield server.port
    finally:
        await server.stop()


@contextlib.contextmanager
def playing(*arguments: str) -> Any:
    """This module as a process that plays others."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", *arguments],
        env={**os.environ, "SLOTFERRY_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def watching(topom: Topom, seconds: float, without: float) -> dict[str, float]:
    """What pages cost that look at the live picture: beside ``without``, in cores; and how soon it is there."""

    async def look(client: httpx.AsyncClient, first: asyncio.Event) -> None:
        async with client.stream("GET", f"{topom.url}/api/v1/live") as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line == "event: picture":
                    first.set()

    limits = httpx.Limits(max_connections=VIEWERS)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=LIMIT_SECONDS, limits=limits, trust_env=False) as client:
        pictures = [asyncio.Event() for _ in range(VIEWERS)]
        began = time.monotonic()
        looking = [asyncio.create_task(look(client, first)) for first in pictures]
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await asyncio.gather(*(first.wait() for first in pictures))
            shown = time.monotonic() - began
            await asyncio.sleep(seconds)
            return {"ten pages, cores": await cores(topom, seconds) - without, "pages show it after, s": shown}
        finally:
            for each in looking:
                each.cancel()
            await asyncio.gather(*looking, return_exceptions=True)


async def cores(topom: Topom, seconds: float) -> float:
    """How much of a core it uses, on average."""
    before, began = topom.cpu, time.monotonic()
    await asyncio.sleep(seconds)
    return (topom.cpu - before) / (time.monotonic() - began)


def sizes(stored: Stored) -> dict[str, tuple[int, int, int]]:
    """Of the documents, by kind."""
    found: dict[str, list[int]] = {}
    for name, value in stored.documents.items():
        found.setdefault(name.partition("/")[0], []).append(len(value))
    return {kind: (len(each), sum(each), max(each)) for kind, each in found.items()}


async def measure(kind: str, proxies: int, groups: int, slots: int, rounds: int, seconds: float) -> Found:
    """All of it, with one kind of store."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="slotferry-scale-") as name:
        folder = Path(name)
        async with store_server(kind, folder) as store_port:
            first, second, servers = free_ports(3)
            settings = {"number_of_slots": str(slots)}
            say(f"{kind}: filling the store with what ten years leave")
            state = fleet.grown(groups, slots, proxies, gone=10 * proxies, port=servers)
            await fill(
                kind,
                store_port,
                slots,
                changed_records.differences(None, replace(state, proxies={}, priorities={})),
                state.version,
            )
            with playing("--play-servers", str(servers)):
                topom = Topom(folder, "first", kind, f"127.0.0.1:{store_port}", first, settings)
                try:
                    began = await topom.said("elected")
                    led = await topom.said("leading")
                    found.figures["leads after its election, s"] = (led - began).total_seconds()
                    await asyncio.sleep(seconds)
                    say(f"{kind}: {groups * fleet.SERVERS_A_GROUP} servers are asked, without proxies")
                    found.figures["asking servers, cores"] = await cores(topom, seconds)
                    say(f"{kind}: {VIEWERS} pages look at it")
                    found.figures |= await watching(topom, seconds, found.figures["asking servers, cores"])
                    with playing("--play-proxies", str(proxies), "--url", topom.url) as fleet_of_proxies:
                        say(f"{kind}: {proxies} proxies register")
                        began_at = time.monotonic()
                        lines = await reading(fleet_of_proxies)
                        await until_registered(topom, proxies)
                        found.figures["proxies registered after, s"] = time.monotonic() - began_at
                        await asyncio.sleep(seconds)
                        whole = await cores(topom, seconds)
                        found.figures["streams and judging, cores"] = whole - found.figures["asking servers, cores"]
                        say(f"{kind}: {rounds} barriers")
                        found.barriers = await barriers(topom, lines, rounds)
                        stored = await fetch(kind, store_port, slots)
                        found.documents = sizes(stored)
                        found.figures |= await following(kind, folder, store_port, second, settings, topom, stored)
                        say(f"{kind}: the leader is stopped, and the next one led to")
                except BaseException:
                    print(topom.log.read_text(errors="replace")[-3000:], file=sys.stderr)
                    raise
                finally:
                    topom.end()
    counted = [figures for what, figures in found.documents.items() if what != "events"]
    found.figures["state, MB"] = sum(total for _, total, _ in counted) / 1e6
    found.figures["largest document, KB"] = max(largest for _, _, largest in found.documents.values()) / 1024
    found.figures["barrier p50, ms"] = statistics.median(found.barriers)
    found.figures["barrier p99, ms"] = percentile(sorted(found.barriers), 99)
    return found


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def store_of(kind: str, port: int, slots: int) -> Any:
    """The store that topom has."""
    said = {"store": kind, "store_servers": f"127.0.0.1:{port}", "number_of_slots": slots, "token": TOKEN}
    return open_store(TopomSettings.model_validate(said))


async def fill(kind: str, port: int, slots: int, documents: dict[str, bytes | None], version: int) -> None:
    """Put these documents into an empty store."""
    store = store_of(kind, port, slots)
    await store.open()
    await store.book(STATE).write(0, version, documents)
    await store.close()


async def fetch(kind: str, port: int, slots: int) -> Stored:
    """All documents of a store."""
    store = store_of(kind, port, slots)
    await store.open()
    stored: Stored = await store.book(STATE).read()
    await store.close()
    return stored


async def reading(process: subprocess.Popen[bytes]) -> asyncio.StreamReader:
    """What a process says."""
    lines = asyncio.StreamReader()
    assert process.stdout is not None
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), process.stdout)
    return lines


async def call(topom: Topom, method: str, path: str, body: Any = None) -> Any:
    """Ask topom's API."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as client:
        answer = await client.request(method, f"{topom.url}/api/v1{path}", json=body)
        answer.raise_for_status()
        return answer.json()


async def add_or_remove(topom: Topom, group: int, number: int) -> int:
    """Add a group by an even number, and remove it by an odd one; the epoch that then holds."""
    if number % 2:
        return int((await call(topom, "DELETE", f"/groups/{group}"))["epoch"])
    return int((await call(topom, "POST", "/groups", {"id": group, "servers": []}))["epoch"])


async def until_registered(topom: Topom, proxies: int) -> None:
    """Wait until so many proxies are members."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while len((await call(topom, "GET", "/proxies"))["proxies"]) < proxies:
            await asyncio.sleep(1)


async def barriers(topom: Topom, lines: asyncio.StreamReader, rounds: int) -> list[float]:
    """Milliseconds from each request that changes the table until the last proxy has acknowledged it."""
    took = []
    async with asyncio.timeout(LIMIT_SECONDS):
        for number in range(rounds + 5):
            began = time.monotonic()
            # An empty group comes or goes: a change of the table, and of nothing else.
            epoch = await add_or_remove(topom, 9000, number)
            while True:
                said, at = (await lines.readline()).split()
                if int(said) >= epoch:
                    break
            if number >= 5:
                took.append(1000 * (float(at) - began))
            await asyncio.sleep(0.05)
    return took


async def following(
    kind: str, folder: Path, store_port: int, port: int, settings: dict[str, str], leader: Topom, stored: Stored
) -> dict[str, float]:
    """What a second topom reads for each change, and how soon it leads once the first has gone."""
    counting = Counting(store_port)
    listening = await counting.start()
    follower = Topom(folder, "second", kind, f"127.0.0.1:{counting.port}", port, settings)
    try:
        await follower.said("topom_listening")
        await asyncio.sleep(5)
        before = counting.bytes
        await asyncio.sleep(5)
        at_rest, before, cpu = counting.bytes - before, counting.bytes, follower.cpu
        changes = 20
        for number in range(changes):
            await add_or_remove(leader, 9001, number)
            await asyncio.sleep(0.25)
        a_change = (counting.bytes - before - at_rest) / changes
        cpu_a_change = (follower.cpu - cpu) / changes
        leader.end()
        led = await follower.said("leading") - await follower.said("elected")
        return {
            "follower reads a change, KB": a_change / 1024,
            "follower works a change, ms": 1000 * cpu_a_change,
            "leads after another, s": led.total_seconds(),
        }
    finally:
        follower.end()
        listening.close()


def show(kind: str, found: Found) -> bool:
    """Print tables; whether all goals are met."""
    console = Console(width=120)
    documents = Table(title=f"{kind}: documents")
    for heading in ("kind", "number", "bytes", "largest"):
        documents.add_column(heading)
    for what, (number, total, largest) in sorted(found.documents.items(), key=lambda each: -each[1][1]):
        documents.add_row(what, f"{number:,}", f"{total:,}", f"{largest:,}")
    console.print(documents)
    table = Table(title=f"{kind}: what it costs")
    for heading in ("figure", "measured", "goal", "verdict"):
        table.add_column(heading)
    met = True
    for figure, value in found.figures.items():
        goal = GOALS.get(figure)
        if goal is None:
            table.add_row(figure, f"{value:.2f}", "", "")
        else:
            met &= value <= goal
            table.add_row(figure, f"{value:.2f}", f"<= {goal:g}", "met" if value <= goal else "not met")
    console.print(table)
    return met


def main(
    store: Annotated[list[str] | None, typer.Option(help="etcd or zookeeper; may be given twice.")] = None,
    proxies: Annotated[int, typer.Option(min=1)] = 1000,
    groups: Annotated[int, typer.Option(min=1, help="Of three servers each.")] = 1000,
    slots: Annotated[int, typer.Option(help="A power of two.")] = 16_384,
    rounds: Annotated[int, typer.Option(min=10, help="Barriers, one after the other.")] = 200,
    seconds: Annotated[float, typer.Option(help="For which CPU time is taken.")] = 20.0,
    quick: Annotated[bool, typer.Option("--quick", help="A small cluster: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="Where every figure is kept, as JSON.")] = None,
    play_servers: Annotated[int, typer.Option(hidden=True)] = 0,
    play_proxies: Annotated[int, typer.Option(hidden=True)] = 0,
    url: Annotated[str, typer.Option(hidden=True)] = "",
    token: Annotated[str, typer.Option(envvar="SLOTFERRY_TOKEN", hidden=True)] = "",
) -> None:
    """Measure the control plane of a large cluster."""
    raise_limit(MOST_FILES)
    if play_servers or play_proxies:
        uvloop.run(quietservers.play(play_servers) if play_servers else players.play(url, token, play_proxies))
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if quick:
        proxies, groups, slots, rounds, seconds = 50, 20, 1024, 20, 5.0
    kinds: Sequence[str] = store or ["etcd", "zookeeper"]
    found = {kind: asyncio.run(measure(kind, proxies, groups, slots, rounds, seconds)) for kind in kinds}
    met = [show(kind, each) for kind, each in found.items()]
    content = {"machine": report.machine(), "found": {kind: report.plain(each) for kind, each in found.items()}}
    print(f"kept in {report.save('scale', output, content)}")
    if not all(met):
        raise typer.Exit(1)


if __name__ == "__main__":
    command = typer.Typer(pretty_exceptions_enable=False)
    command.command()(main)
    command()
