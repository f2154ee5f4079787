"""What several commands of an application together cost the proxy, beside as many of its own GETs in the same run.

    python -m benchmarks.flows              # five turns; about two minutes
    python -m benchmarks.flows --quick

One proxy with one worker, over two Redis servers. A *flow* is a transaction, a watched one, or a queue's two commands.
Some of its requests are sent at once, others one after the other. Each flow takes turns with as many GETs that are sent
in the same way. A figure is the CPU time of the worker for a flow, divided by that of the GETs of the same turn.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.load import fill
from benchmarks.oneworker import one_worker
from proxy.engine.backend import command
from slotferry.processes import ProcessError
from slots import address as addresses

REPLY_SECONDS = 30.0
KEYS = 10_000
"""At each server, so that a scan has many pages."""
SETTLE_SECONDS = 0.1
VALUE = "x" * 16
GET = (("GET", "{f}key"),)

Words = tuple[str, ...]
Step = tuple[Words, ...]
"""Requests that are sent at once."""


@dataclass(frozen=True)
class Flow:
    """Steps, each sent once the replies to the one before it are there.

    Attributes:
        steps: what is sent.
        goal: the most that it may cost, as a multiple of its number of GETs.
        gets: the GETs that it is compared with.
    """

    steps: tuple[Step, ...]
    goal: float
    gets: tuple[Step, ...]


SCAN_GOAL = 2.5
"""Two GETs, and 0.1 us for each of about ten keys."""
FLOWS = {
    "MULTI SET GET EXEC": Flow(
        ((("MULTI",), ("SET", "{f}key", VALUE), ("GET", "{f}key"), ("EXEC",)),), 1.8, (GET * 4,)
    ),
    "WATCH GET MULTI SET EXEC": Flow(
        tuple(
            (words,)
            for words in (("WATCH", "{f}key"), ("GET", "{f}key"), ("MULTI",), ("SET", "{f}key", VALUE), ("EXEC",))
        ),
        1.3,
        (GET,) * 5,
    ),
    "LPUSH BLPOP": Flow(((("LPUSH", "{f}list", VALUE),), (("BLPOP", "{f}list", "1"),)), 1.9, (GET,) * 2),
    "LPUSH BLMOVE": Flow(
        ((("LPUSH", "{f}list", VALUE),), (("BLMOVE", "{f}list", "{f}list2", "LEFT", "LEFT", "1"),)), 1.9, (GET,) * 2
    ),
    "SCAN": Flow(((("SCAN", "0"),),), SCAN_GOAL, (GET,)),
}


@dataclass
class Measured:
    """CPU microseconds of the worker for one run of a flow, and of its GETs: one value a turn."""

    flows: dict[str, list[float]] = field(default_factory=dict)
    gets: dict[str, list[float]] = field(default_factory=dict)


def size_of(reply: bytes) -> int:
    """The bytes of the first whole reply in RESP2; 0 if it is not whole."""
    end = reply.find(b"\r\n") + 2
    if end < 2:
        return 0
    match reply[:1]:
        case b"$":
            length = int(reply[1 : end - 2])
            return end if length < 0 else end + length + 2 if len(reply) >= end + length + 2 else 0
        case b"*":
            for _ in range(int(reply[1 : end - 2])):
                part = size_of(reply[end:])
                if not part:
                    return 0
                end += part
    return end


class Client:
    """One client that waits for its replies."""

    def __init__(self, address: str) -> None:
        host, port = addresses.split(address)
        self.socket = socket.create_connection((host, port), REPLY_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, replies: int) -> None:
        """Read so many replies. Raises OSError; ValueError for an error reply."""
        received = b""
        while replies:
            received += self.socket.recv(65_536)
            while size := size_of(received):
                if received.startswith(b"-"):
                    raise ValueError(received[: size - 2].decode())
                received = received[size:]
                replies -= 1


def go_through(clients: Sequence[Client], steps: Sequence[Step], times: int) -> None:
    """Have every client go through the steps so often."""
    made = [(b"".join(map(command, step)), len(step)) for step in steps]
    for _ in range(times):
        for payload, replies in made:
            for client in clients:
                client.socket.sendall(payload)
            for client in clients:
                client.read(replies)


async def measure(number: int, times: int, turns: int, only: list[str]) -> Measured:
    """Run every flow as often as there are turns. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with one_worker() as worker:
        with ExitStack() as open_sockets:
            clients = [Client(worker.address) for _ in range(number)]
            for client in clients:
                open_sockets.callback(client.socket.close)
            for server in worker.servers:
                await asyncio.to_thread(fill, server, KEYS, len(VALUE))
            await asyncio.to_thread(go_through, clients[:1], [(("SET", "{f}key", VALUE),)], 1)
            for turn in range(turns + 1):
                for name, flow in FLOWS.items():
                    if only and name not in only:
                        continue
                    for steps, kept in ((flow.gets, found.gets), (flow.steps, found.flows)):
                        before = worker.cpu
                        await asyncio.to_thread(go_through, clients, steps, max(1, times // number))
                        await asyncio.sleep(SETTLE_SECONDS)
                        used = worker.spent(before)
                        if turn:  # the first turn warms up
                            kept.setdefault(name, []).append(1e6 * used / (max(1, times // number) * number))
                    await asyncio.to_thread(go_through, clients[:1], [(("DEL", "{f}list", "{f}list2"),)], 1)
    return found


def show(found: Measured, console: Console) -> bool:
    """Print the table; whether all goals are met."""
    table = Table(title="CPU of the worker for a flow, to that of as many GETs")
    for heading in ("flow", "us", "to GETs", "goal", "verdict"):
        table.add_column(heading)
    all_met = True
    for name, cpu in found.flows.items():
        spread = report.Spread.of([one / get for one, get in zip(cpu, found.gets[name], strict=True)])
        met = spread.median <= FLOWS[name].goal
        all_met &= met
        table.add_row(
            name,
            report.Spread.of(cpu).show(),
            spread.show(),
            f"<= {FLOWS[name].goal:g}",
            "met" if met else "not met",
        )
    console.print(table)
    return all_met


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    times: Annotated[int, typer.Option(min=100, help="How often all clients together go through a flow.")] = 5000,
    clients: Annotated[int, typer.Option(min=1, max=1000)] = 1,
    flow: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what flows of commands cost the proxy, beside GETs."""
    console = report.console()
    if quick:
        turns, times = 1, 500
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(clients, times, turns, flow or []))
    met = show(found, console)
    console.print(f"saved as {report.save('flows', output, {'machine': machine, 'cpu': report.plain(found)})}")
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
