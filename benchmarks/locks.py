"""How long clients wait for the lock of a switch, and how long a barrier takes meanwhile.

    python -m benchmarks.locks            # two proxies, then 100; six minutes
    python -m benchmarks.locks --quick

Some slots move by the replication stream from one real Redis server to another, and back, again and again. topom is the
real one, in this process, with its store on the disk. Two proxies are real, and a probe sends requests for keys of
these slots through both. One process plays all other proxies (:mod:`benchmarks.players`): they only acknowledge.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import barrier, report
from benchmarks.load import LoadFailed, fill
from benchmarks.probe import REPLY_SECONDS, Kind, Request, read
from benchmarks.processes import percentile
from benchmarks.switches import longest
from slotferry.calls import TopomError
from slotferry.client import TopomClient
from slotferry.local import environment_of
from slotferry.processes import ManagedProcess, ProcessError, free_ports, until
from slotferry.redis_server import HOST, RedisServer, ask, start_redis
from slots import garbage
from slots.ranges import show as show_slots
from slots.states import SlotState
from slots.table import DEFAULT_SLOTS
from topom import errors
from topom.term.service import Topom

REAL = 2
"""Proxies that carry the probe's requests. The others are played."""
SIZES = (REAL, 100)
KEYS = 20_000
VALUE_BYTES = 100
CONNECTIONS = 16
RATE = 2000.0
"""The probe's requests a second."""
READY_SECONDS = 60.0
SWITCH_SECONDS = 120.0
"""Longest that one switch, with what comes before and after it, may take."""
PROBE_SECONDS = 7200.0
LOOK_SECONDS = 0.02
QUIET_SECONDS = 0.1
"""So long before a lock the quiet span beside it ends: no request of it waits for the lock."""
BARRIER_ROUNDS = 128
"""Their slots are below the 512 highest, which may move."""
P99_MILLISECONDS, MOST_MILLISECONDS = 15.0, 40.0
"""Goals of the lock as a client sees it, with few proxies."""
BESIDE_MILLISECONDS = 20.0
"""The goal with many: so much more than the p99 of a barrier."""
PARTS = {
    "locked everywhere": ("prepared stored", "prepared acknowledged"),
    "level": ("prepared acknowledged", "level"),
    "switch stored": ("level", "finished stored"),
    "unlocked everywhere": ("finished stored", "finished acknowledged"),
}
"""What a lock consists of, each from a step of topom to another."""


class SwitchFailed(RuntimeError):
    """A move gave up its copy, or took too long; or a client had an error."""


@dataclass
class Found:
    """What was measured with so many proxies, in milliseconds."""

    seen: list[float] = field(default_factory=list)
    """For each switch, the longest request that was under way while slots were locked."""
    quiet: list[float] = field(default_factory=list)
    """The same for as long a span shortly before it."""
    barriers: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def verdicts(self, proxies: int) -> list[tuple[str, float, float]]:
        """Goals: what it is, what was measured, and the bound."""
        p99 = percentile(sorted(self.seen), 99)
        if proxies <= REAL:
            return [
                ("p99 of the lock", p99, P99_MILLISECONDS),
                ("longest lock", max(self.seen), MOST_MILLISECONDS),
            ]
        bound = percentile(sorted(self.barriers), 99) + BESIDE_MILLISECONDS
        return [(f"p99 of the lock, to a barrier's + {BESIDE_MILLISECONDS:g}", p99, bound)]


@dataclass(frozen=True)
class Servers:
    """The two groups' servers, and the real proxies' addresses."""

    redis: list[RedisServer]
    proxies: list[str]


@asynccontextmanager
async def running(folder: Path, topom: Topom, url: str, token: str, proxies: int) -> AsyncIterator[Servers]:
    """The servers, a migrator, and all proxies."""
    address = url.replace("ws://", "http://")
    async with AsyncExitStack() as stack:
        redis = []
        for number in (1, 2):
            redis.append(await start_redis(f"redis-{number}", folder, extra=("--repl-diskless-sync-delay", "0")))
            stack.push_async_callback(redis[-1].stop)
        common = {"topom": [address], "token": token}
        listens = [f"{HOST}:{port}" for port in free_ports(min(REAL, proxies))]
        processes = [("migrator", "MIGRATOR", {"spool": str(folder / "spool")})]
        processes += [(f"proxy-{listen}", "PROXY", {"listen": listen, "metrics": ""}) for listen in listens]
        started = []
        for name, kind, settings in processes:
            one = ManagedProcess(
                name,
                [sys.executable, "-m", "slotferry", kind.lower()],
                folder / f"{name}.log",
                environment_of(f"SLOTFERRY_{kind}_", {**common, **settings}),
            )
            one.start()
            started.append(one)
            stack.push_async_callback(one.stop)
        if played := proxies - len(listens):
            command = [sys.executable, "-m", "benchmarks.barrier", "--play", str(played), "--url", url]
            players = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, "SLOTFERRY_TOKEN": token}, stdout=subprocess.DEVNULL
            )
            stack.push_async_callback(players.wait)
            stack.callback(players.kill)

        async def registered() -> bool:
            return len(topom.members.all()) == proxies and len(topom.migrators.all()) == 1

        await until(registered, f"{proxies} proxies and a migrator", READY_SECONDS, started)
        yield Servers(redis, listens)


async def switch(client: TopomClient, topom: Topom, slots: list[int], group_id: int) -> dict[str, float]:
    """Move the slots by the stream, and wait until what they leave is gone; gives when each step was done.

    Raises :class:`SwitchFailed`.
    """
    done: dict[str, float] = {}

    async def note(step: str) -> None:
        done[step] = time.monotonic()

    stored = topom.actions.steps.stored
    stored.on_step = note
    try:
        async with asyncio.timeout(SWITCH_SECONDS):
            await client.move_slots(show_slots(slots), group_id)
            while topom.actions.batches or topom.ledger.state.leftovers:
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        reasons = "; ".join(map(str, topom.actions.reasons().values()))
        raise SwitchFailed(f"a switch took more than {SWITCH_SECONDS:g} s: {reasons or done}") from None
    finally:
        stored.on_step = None
    missing = {step for part in PARTS.values() for step in part} - done.keys()
    if missing or f"{SlotState.MIGRATING} stored" in done:
        raise SwitchFailed(f"a move did not go by the stream: {sorted(done)}")
    return done


async def measure(proxies: int, rounds: int, moving: int) -> Found:
    """So many switches over so many proxies, and a barrier after each. Raises the errors that :func:`main` catches."""
    found = Found()
    slots = list(range(DEFAULT_SLOTS - moving, DEFAULT_SLOTS))
    steps: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="slotferry-locks-") as name:
        folder = Path(name)
        (folder / "topom").mkdir()
        async with AsyncExitStack() as stack:
            topom, url, token = await stack.enter_async_context(barrier.served(folder / "topom"))
            servers = await stack.enter_async_context(running(folder, topom, url, token, proxies))
            client = await stack.enter_async_context(TopomClient(url.replace("ws://", "http://"), token))
            for group_id, server in enumerate(servers.redis, 1):
                await client.add_group(group_id, [server.address])
            await client.assign_slots(show_slots(slots), 1)
            await client.set_migration(way="stream", latency_goal_milliseconds=0)
            await asyncio.to_thread(fill, servers.redis[0].address, KEYS, VALUE_BYTES)
            await topom.barrier.reach(topom.ledger.table.epoch, [], READY_SECONDS, stop_at_refusal=False)
            output = folder / "probe.times"
            probe = start_probe(servers.proxies, slots, output, folder)
            stack.push_async_callback(probe.stop)
            await until(lambda: answers(servers.proxies), "the proxies", READY_SECONDS, [probe])
            garbage.spare_what_is_here()
            for number in range(rounds):
                steps.append(await switch(client, topom, slots, 1 + (number + 1) % 2))
                found.barriers.append(await barrier.one(topom, number % BARRIER_ROUNDS))
            await probe.stop()
            requests = list(read(output))
            if failed := [request for request in requests if request.kind != Kind.ANSWERED]:
                raise SwitchFailed(f"{len(failed)} of {len(requests)} requests failed:\n{probe.tail()}")
    note(found, steps, requests)
    return found


async def answers(proxies: list[str]) -> bool:
    """Whether all of them serve."""
    replies = [await ask(proxy, "PING") for proxy in proxies]
    return all(reply == "+PONG" for reply in replies)


def start_probe(proxies: list[str], slots: list[int], output: Path, folder: Path) -> ManagedProcess:
    """Start requests for keys of these slots alone. Raises ProcessError."""
    arguments = [
        *(sys.executable, "-m", "benchmarks.probe", *proxies, "--output", str(output), "--keys", str(KEYS)),
        *("--value-bytes", str(VALUE_BYTES), "--slots", show_slots(slots), "--connections", str(CONNECTIONS)),
        *("--rate", str(RATE), "--limit", str(PROBE_SECONDS)),
    ]
    probe = ManagedProcess("probe", arguments, folder / "probe.log")
    probe.start()
    return probe


def note(found: Found, steps: list[dict[str, float]], requests: list[Request]) -> None:
    """Put together what topom did and what the clients saw."""
    by_time = sorted(requests, key=attrgetter("at"))
    for done in steps:
        begin, end = done["prepared stored"], done["finished acknowledged"]
        first = bisect_left(by_time, begin - REPLY_SECONDS, key=attrgetter("at"))
        near = by_time[first : bisect_right(by_time, end, key=attrgetter("at"))]
        found.seen.append(longest(near, begin, end))
        quiet = begin - QUIET_SECONDS
        found.quiet.append(longest(near, quiet - (end - begin), quiet))
        for part, (before, after) in PARTS.items():
            found.parts[part].append(1000 * (done[after] - done[before]))


def show(proxies: int, found: Found, console: Console) -> bool:
    """Print a table; whether the goals are met."""
    table = Table(title=f"{proxies} proxies, {len(found.seen)} switches by the stream, in milliseconds")
    for heading in ("", "median", "p99", "most"):
        table.add_column(heading, justify="left" if not heading else "right")
    rows = {
        "the lock, as a client sees it": found.seen,
        "as long a time before it": found.quiet,
        "a barrier": found.barriers,
        **{f"of the lock: {part}": took for part, took in found.parts.items()},
    }
    for row, took in rows.items():
        figures = (statistics.median(took), percentile(sorted(took), 99), max(took))
        table.add_row(row, *(f"{figure:.1f}" for figure in figures))
    console.print(table)
    met = True
    for goal, measured, bound in found.verdicts(proxies):
        met &= measured <= bound
        console.print(f"{goal}: {measured:.1f} ms, <= {bound:.1f}: {'met' if measured <= bound else 'not met'}")
    return met


def main(
    proxies: Annotated[
        list[int] | None, typer.Option(min=1, help="Proxies, two of them real; may be given often. By default 2, 100.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Switches, one after the other.")] = 200,
    slots: Annotated[int, typer.Option(min=1, max=512, help="Slots that switch together.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="Few proxies and switches: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="Where every figure is kept, as JSON.")] = None,
) -> None:
    """Measure the lock of a switch as clients see it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    console = Console(width=120)
    found, all_met = {}, True
    for size in (10,) if quick else tuple(proxies or SIZES):
        with report.failing(console, SwitchFailed, ProcessError, LoadFailed, TopomError, errors.TopomError, OSError):
            found[size] = uvloop.run(measure(size, 6 if quick else rounds, slots))
        all_met &= show(size, found[size], console)
    content = {"machine": report.machine(), "found": {str(size): asdict(one) for size, one in found.items()}}
    print(f"kept in {report.save('locks', output, content)}")
    if not all_met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
