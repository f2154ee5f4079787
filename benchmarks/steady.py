"""Latency and cost at a steady rate that saturates nothing: beside HAProxy, and with two workers beside one.

    python -m benchmarks.steady             # five turns; about two minutes
    python -m benchmarks.steady --quick

1,000 connections take turns to send a GET, 20,000 a second in all. Every request has a time at which it is due, and its
latency counts from there, so that a target that is late once is not asked less for it. HAProxy is the same as in
:mod:`benchmarks.proxy`. A figure is that of one target, divided by another's in the same turn.
"""

import asyncio
import select
import shutil
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.flows import Client
from benchmarks.load import SMALL_BYTES, fill, get_request, key
from benchmarks.peers import Target, installed, start_haproxy, start_slotferry
from benchmarks.samples import PROXY
from slotferry.processes import ProcessError

KEYS = 10_000
SETTLE_SECONDS = 0.2
READ_SIZE = 65_536
GOAL = 1.1
"""The most that p99 may be, to HAProxy's, and that a request may cost with two workers, to one."""
RATIOS = (
    ("p99 of one worker, to HAProxy's", "p99", "slotferry", "haproxy"),
    ("p99 of two workers, to HAProxy's", "p99", "slotferry-2", "haproxy"),
    ("CPU of two workers, to one's", "cpu", "slotferry-2", "slotferry"),
)
"""What a ratio is called, its figure, and the two targets."""


@dataclass
class Measured:
    """By target, one value a turn: milliseconds of p99, and CPU microseconds a request."""

    p99: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)


def send_steadily(clients: list[Client], rate: float, seconds: float) -> list[float]:
    """Send GETs at a rate; give the seconds of each from when it is due to its reply.

    Raises:
        ValueError: a reply is missing, or is no value.
    """
    requests = [get_request(key(number)) for number in range(len(clients))]
    places = {client.socket.fileno(): place for place, client in enumerate(clients)}
    poller = select.epoll()
    for descriptor in places:
        poller.register(descriptor, select.EPOLLIN)
    due: list[list[float]] = [[] for _ in clients]
    found: list[float] = []
    total = round(rate * seconds)
    begin = time.perf_counter()
    limit = begin + 2 * seconds + 5.0
    sent = 0
    while len(found) < total:
        now = time.perf_counter()
        while sent < total and begin + sent / rate <= now:
            place = sent % len(clients)
            due[place].append(begin + sent / rate)
            clients[place].socket.send(requests[place])
            sent += 1
        for descriptor, _ in poller.poll(0):
            place = places[descriptor]
            # One value has one line of its length, and itself.
            replies, rest = divmod(clients[place].socket.recv(READ_SIZE).count(b"\r\n"), 2)
            if rest or replies > len(due[place]):
                raise ValueError("a GET got something else than its value")
            now = time.perf_counter()
            found += [now - due[place].pop(0) for _ in range(replies)]
        if now > limit:
            raise ValueError(f"{total - len(found)} of {total} GETs were not answered in time")
    poller.close()
    return found


async def measure(rate: float, seconds: float, number: int, turns: int) -> Measured:
    """Have all targets serve the load as often as there are turns. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with AsyncExitStack() as stack:
        targets = await start(stack)
        clients: dict[str, list[Client]] = {}
        sockets = stack.enter_context(ExitStack())
        for target in targets:
            clients[target.name] = [Client(target.address) for _ in range(number)]
            for client in clients[target.name]:
                sockets.callback(client.socket.close)
        for turn in range(turns + 1):
            for target in targets if turn % 2 else reversed(targets):
                before = processes.cpu_by_role(target.processes)
                times = await asyncio.to_thread(send_steadily, clients[target.name], rate, seconds)
                await asyncio.sleep(SETTLE_SECONDS)
                used = processes.spent(before, processes.cpu_by_role(target.processes))[PROXY]
                if turn:  # the first turn warms up
                    found.p99.setdefault(target.name, []).append(1e3 * processes.percentile(times, 99))
                    found.cpu.setdefault(target.name, []).append(1e6 * used / len(times))
    return found


async def start(stack: AsyncExitStack) -> list[Target]:
    """HAProxy and the proxies, whose servers have all keys. Raises ProcessError, OSError."""
    program = installed("haproxy")
    if program is None:
        raise ProcessError("haproxy is not installed: apt install haproxy")
    directory = Path(tempfile.mkdtemp(prefix="slotferry-benchmark-"))
    stack.callback(shutil.rmtree, directory)
    targets = await start_slotferry(stack, ["slotferry", "slotferry-2"])
    for server in targets[0].servers:
        await asyncio.to_thread(fill, server, KEYS, SMALL_BYTES)
    return [await start_haproxy(stack, program, directory, targets[0].servers), *targets]


def show(found: Measured, console: Console) -> bool:
    """Print the tables; whether all goals are met."""
    table = Table(title="At a steady rate")
    for heading in ("target", "p99 ms", "CPU us a request"):
        table.add_column(heading)
    for name in found.p99:
        table.add_row(name, report.Spread.of(found.p99[name]).show(), report.Spread.of(found.cpu[name]).show())
    console.print(table)
    table = Table()
    for heading in ("ratio", "measured", "goal", "verdict"):
        table.add_column(heading)
    all_met = True
    for title, figure, one, other in RATIOS:
        values: dict[str, list[float]] = getattr(found, figure)
        spread = report.Spread.of([mine / its for mine, its in zip(values[one], values[other], strict=True)])
        met = spread.median <= GOAL
        all_met &= met
        table.add_row(title, spread.show(), f"<= {GOAL:g}", "met" if met else "not met")
    console.print(table)
    return all_met


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    rate: Annotated[float, typer.Option(min=1, help="GETs a second.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each run.")] = 5.0,
    clients: Annotated[int, typer.Option(min=1, max=10_000)] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure latency and cost at a steady rate, beside HAProxy."""
    console = report.console()
    if quick:
        turns, rate, seconds, clients = 1, 1000.0, 0.5, 50
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(rate, seconds, clients, turns))
    met = show(found, console)
    console.print(f"saved as {report.save('steady', output, {'machine': machine, 'measured': report.plain(found)})}")
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
