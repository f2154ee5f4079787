"""How soon clients that wait for keys of several slots are woken, and what 1,000 of them cost the proxy.

    python -m benchmarks.waiting_over_slots            # about a minute
    python -m benchmarks.waiting_over_slots --quick

One proxy with one worker over two Redis servers. First one client waits with BLPOP, and another one pushes through the
proxy: the time is from sending the push until the element is read. It is taken for a key of one slot, where the client
waits at the server, and for three keys of three slots, where it waits in the proxy. Then many clients wait for three
keys each, all for the same ones or each for its own: the figures are the memory of the worker for a client that waits,
its CPU time while nothing happens, and for an element that is pushed and taken. At last, as many clients wait with
XREAD for the same three streams, where one entry serves all of them.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.flows import Client
from benchmarks.peers import Target, start_slotferry
from benchmarks.samples import PROXY
from proxy.engine.backend import command
from slotferry.processes import ProcessError

VALUE = "x" * 16
GOAL_SECONDS = 0.020
KEYS = 3
ENTRIES = 10
REST_SECONDS = 5.0
SETTLE_SECONDS = 0.5


@dataclass
class Measured:
    """Seconds until a client was woken, by what it waited for; and what many clients cost, likewise."""

    woken: dict[str, list[float]] = field(default_factory=dict)
    clients: dict[str, dict[str, float]] = field(default_factory=dict)
    readers: dict[str, float] = field(default_factory=dict)


def keys_of(name: str) -> list[str]:
    """Keys of several slots."""
    return [f"{name}:{number}" for number in range(KEYS)]


def wake(address: str, keys: list[str], times: int) -> list[float]:
    """The seconds from each push to the last of the keys until a client that waits has the element."""
    waiting, pusher = Client(address), Client(address)
    took = []
    for _ in range(times):
        waiting.socket.sendall(command(("BLPOP", *keys, 0)))
        time.sleep(0.005)
        before = time.perf_counter()
        pusher.socket.sendall(command(("RPUSH", keys[-1], VALUE)))
        waiting.read(1)
        took.append(time.perf_counter() - before)
        pusher.read(1)
    return took


def memory(target: Target) -> int:
    """Bytes of the worker's memory."""
    (pid,) = target.processes[PROXY]
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def cpu(target: Target) -> dict[str, float]:
    """CPU seconds of the processes by now."""
    return processes.cpu_by_role(target.processes)


def connected(target: Target, number: int) -> list[Client]:
    """So many clients that the proxy has answered."""
    clients = [Client(target.address) for _ in range(number)]
    for client in clients:
        client.socket.sendall(command(("PING",)))
        client.read(1)
    return clients


def wait_together(target: Target, number: int, same: bool) -> dict[str, float]:
    """Have so many clients wait, leave them alone, and give each an element."""
    clients, pusher = connected(target, number), Client(target.address)
    keys = [keys_of("same" if same else f"own{place}") for place in range(number)]
    before = memory(target)
    for client, own in zip(clients, keys, strict=True):
        client.socket.sendall(command(("BLPOP", *own, 0)))
    time.sleep(SETTLE_SECONDS + number / 1000)
    kept = memory(target) - before
    start = cpu(target)
    time.sleep(REST_SECONDS)
    rest = processes.spent(start, cpu(target))[PROXY]
    start, began = cpu(target), time.perf_counter()
    for client, own in zip(clients, keys, strict=True):
        pusher.socket.sendall(command(("RPUSH", own[-1], VALUE)))
        client.read(1)
        pusher.read(1)
    took = time.perf_counter() - began
    used = processes.spent(start, cpu(target))[PROXY]
    return {
        "bytes": kept / number,
        "cpu of a second at rest": rest / REST_SECONDS,
        "us of cpu for an element": 1e6 * used / number,
        "elements a second": number / took,
    }


def read_together(target: Target, number: int) -> dict[str, float]:
    """Have so many clients wait for entries of the same streams, and add some, one after the other."""
    clients, writer = connected(target, number), Client(target.address)
    streams = keys_of("stream")
    took: list[float] = []
    asked = served = 0.0
    for _ in range(ENTRIES):
        start = cpu(target)
        for client in clients:
            client.socket.sendall(command(("XREAD", "BLOCK", 0, "STREAMS", *streams, *("$" for _ in streams))))
        time.sleep(SETTLE_SECONDS + number / 1000)
        before, began = cpu(target), time.perf_counter()
        asked += processes.spent(start, before)[PROXY]
        writer.socket.sendall(command(("XADD", streams[-1], "*", "field", VALUE)))
        for client in clients:
            client.read(1)
        took.append(time.perf_counter() - began)
        served += processes.spent(before, cpu(target))[PROXY]
        writer.read(1)
    return {
        "us of cpu to begin to wait": 1e6 * asked / number / ENTRIES,
        "us of cpu for a client that is served": 1e6 * served / number / ENTRIES,
        "ms until the last one is served (median)": 1e3 * sorted(took)[len(took) // 2],
    }


async def measure(times: int, number: int) -> Measured:
    """All of it. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with AsyncExitStack() as stack:
        (target,) = await start_slotferry(stack, ["slotferry"])
        for name, keys in (("one slot", ["queue:0"]), ("three slots", keys_of("queue"))):
            found.woken[name] = await asyncio.to_thread(wake, target.address, keys, times)
        for name, same in (("the same keys", True), ("each its own keys", False)):
            found.clients[name] = await asyncio.to_thread(wait_together, target, number, same)
        found.readers = await asyncio.to_thread(read_together, target, number)
    return found


def show(found: Measured, number: int, console: Console) -> bool:
    """Print the tables; whether the goal is met."""
    woken = Table(title="milliseconds from a push to the client")
    for heading in ("keys of", "median", "p99", "most"):
        woken.add_column(heading)
    for name, took in found.woken.items():
        ascending = sorted(took)
        parts = (processes.percentile(ascending, percent) for percent in (50, 99, 100))
        woken.add_row(name, *(f"{1e3 * part:.2f}" for part in parts))
    console.print(woken)
    clients = Table(title=f"{number} clients that wait for {KEYS} keys over slots")
    clients.add_column("clients wait for")
    for heading in next(iter(found.clients.values())):
        clients.add_column(heading)
    for name, cost in found.clients.items():
        clients.add_row(name, *(f"{value:.4g}" for value in cost.values()))
    console.print(clients)
    readers = Table(title=f"{number} clients that wait for the same {KEYS} streams over slots")
    for heading in found.readers:
        readers.add_column(heading)
    readers.add_row(*(f"{value:.4g}" for value in found.readers.values()))
    console.print(readers)
    return processes.percentile(sorted(found.woken["three slots"]), 99) <= GOAL_SECONDS


def main(
    times: Annotated[int, typer.Option(min=1, help="How often one client is woken.")] = 1000,
    clients: Annotated[int, typer.Option(min=1, max=10_000)] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="Shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure how soon clients that wait over slots are woken, and what they cost."""
    console = report.console()
    if quick:
        times, clients = 50, 50
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(times, clients))
    met = show(found, clients, console)
    content = {"machine": machine, "woken": found.woken, "clients": found.clients, "readers": found.readers}
    console.print(f"saved as {report.save('waiting_over_slots', output, content)}")
    if not met:
        console.print(f"a client was not woken within {GOAL_SECONDS * 1e3:g} ms (p99)", style="red")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
