"""What clients that wait cost the proxy, beside HAProxy, which passes the same bytes unread.

    python -m benchmarks.waiting            # five turns; about two minutes
    python -m benchmarks.waiting --quick

One proxy with one worker over two Redis servers, and HAProxy (``mode tcp``, one thread) over one server. In one load,
every client waits with BLPOP for a key of its own, gets an element that another client pushes, and waits again. In the
other one, every client is subscribed to one channel, to which another client publishes. A figure is the CPU time of the
worker for an element, or for a delivered message, divided by HAProxy's in the same turn.
"""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Protocol

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.flows import Client
from benchmarks.peers import Target, installed, start_haproxy, start_slotferry
from benchmarks.samples import PROXY
from proxy.engine.backend import command
from slotferry.processes import ProcessError
from slotferry.redis_server import find_binary, start_redis

VALUE = "x" * 16
CHANNEL = "news"
AT_ONCE = 50
"""Elements, or messages, that are under way at once."""
SETTLE_SECONDS = 0.1
MESSAGES = 4
"""For each of the elements of the other load: a message goes to every client."""


class Load(Protocol):
    """Clients that wait at one target."""

    goal: ClassVar[float]
    """The most that it may cost, as a multiple of HAProxy's cost."""

    def __init__(self, address: str, number: int) -> None: ...

    def go(self, times: int) -> int:
        """Have every client get something so often; give how often that is in all."""


class Waiting(Load):
    """Clients that wait for elements."""

    goal = 3.0

    def __init__(self, address: str, number: int) -> None:
        self._pusher = Client(address)
        self._clients = [Client(address) for _ in range(number)]
        self._pushes = [command(("LPUSH", f"list{place}", VALUE)) for place in range(number)]
        self._pops = [command(("BLPOP", f"list{place}", "0")) for place in range(number)]
        for client, pop in zip(self._clients, self._pops, strict=True):
            client.socket.sendall(pop)

    def go(self, times: int) -> int:
        """Have every client get so many elements, and wait again; give the number of elements."""
        for _ in range(times):
            for first in range(0, len(self._clients), AT_ONCE):
                places = range(first, min(first + AT_ONCE, len(self._clients)))
                self._pusher.socket.sendall(b"".join(self._pushes[place] for place in places))
                self._pusher.read(len(places))
                for place in places:
                    self._clients[place].read(1)
                    self._clients[place].socket.sendall(self._pops[place])
        return times * len(self._clients)


class Subscribed(Load):
    """Clients that are subscribed to one channel."""

    goal = 1.2

    def __init__(self, address: str, number: int) -> None:
        self._publisher = Client(address)
        self._clients = [Client(address) for _ in range(number)]
        for client in self._clients:
            client.socket.sendall(command(("SUBSCRIBE", CHANNEL)))
        for client in self._clients:
            client.read(1)

    def go(self, times: int) -> int:
        """Publish, and have every client get all messages; give the number of messages that were delivered."""
        request = command(("PUBLISH", CHANNEL, VALUE))
        messages = times * MESSAGES
        for first in range(0, messages, AT_ONCE):
            count = min(AT_ONCE, messages - first)
            self._publisher.socket.sendall(request * count)
            self._publisher.read(count)
            for client in self._clients:
                client.read(count)
        return messages * len(self._clients)


LOADS: dict[str, type[Load]] = {
    "BLPOP that waits and is woken": Waiting,
    "PUBLISH, a delivered message": Subscribed,
}


@dataclass
class Measured:
    """CPU microseconds for an element or a message, by load: one value a turn."""

    slotferry: dict[str, list[float]] = field(default_factory=dict)
    haproxy: dict[str, list[float]] = field(default_factory=dict)


async def start(stack: AsyncExitStack) -> list[Target]:
    """HAProxy and the proxy. Raises ProcessError."""
    program = installed("haproxy")
    if program is None:
        raise ProcessError("haproxy is not installed: apt install haproxy")
    directory = Path(tempfile.mkdtemp(prefix="slotferry-benchmark-"))
    stack.callback(shutil.rmtree, directory)
    server = await start_redis("redis", directory, binary=find_binary())
    stack.push_async_callback(server.stop)
    haproxy = await start_haproxy(stack, program, directory, [server.address])
    return [haproxy, *await start_slotferry(stack, ["slotferry"])]


async def measure(number: int, times: int, turns: int) -> Measured:
    """Have both targets serve both loads as often as there are turns. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with AsyncExitStack() as stack:
        targets = await start(stack)
        for name, load in LOADS.items():
            ready = [(target, await asyncio.to_thread(load, target.address, number)) for target in targets]
            for turn in range(turns + 1):
                for target, clients in ready:
                    before = processes.cpu_by_role(target.processes)
                    done = await asyncio.to_thread(clients.go, times)
                    await asyncio.sleep(SETTLE_SECONDS)
                    used = processes.spent(before, processes.cpu_by_role(target.processes))[PROXY]
                    if turn:  # the first turn warms up
                        kept = found.haproxy if target.name == "haproxy" else found.slotferry
                        kept.setdefault(name, []).append(1e6 * used / done)
    return found


def show(found: Measured, console: Console) -> bool:
    """Print the table; whether all goals are met."""
    table = Table(title="CPU of the worker, to HAProxy's")
    for heading in ("load", "us", "HAProxy's us", "to HAProxy's", "goal", "verdict"):
        table.add_column(heading)
    all_met = True
    for name, cpu in found.slotferry.items():
        others = found.haproxy[name]
        spread = report.Spread.of([one / other for one, other in zip(cpu, others, strict=True)])
        met = spread.median <= LOADS[name].goal
        all_met &= met
        table.add_row(
            name,
            report.Spread.of(cpu).show(),
            report.Spread.of(others).show(),
            spread.show(),
            f"<= {LOADS[name].goal:g}",
            "met" if met else "not met",
        )
    console.print(table)
    return all_met


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    times: Annotated[int, typer.Option(min=1, help="How many elements each client gets in a turn.")] = 10,
    clients: Annotated[int, typer.Option(min=1, max=1900)] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what waiting clients cost the proxy, beside HAProxy."""
    console = report.console()
    if quick:
        turns, times, clients = 1, 1, 100
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(clients, times, turns))
    met = show(found, console)
    console.print(f"saved as {report.save('waiting', output, {'machine': machine, 'cpu': report.plain(found)})}")
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
