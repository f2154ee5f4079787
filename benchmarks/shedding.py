"""What users notice of a server that is overloaded, with a sheddable user beside them and with one that is not.

    python -m benchmarks.shedding           # five turns; about two minutes
    python -m benchmarks.shedding --quick

One proxy with one worker. One of its servers is stopped for half of the time, five milliseconds of every ten, as if
something else took half of its CPU. Two users have it count the bits of a long string, at fixed rates that are together
more than it can do then, while one alone is not. Every request has a time at which it is due, and its latency counts
from there. The figure is the p99 of the first user while the second one is sheddable, divided by that of the same turn
while it is not.
"""

import asyncio
import json
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.flows import Client
from proxy.engine.backend import command
from slotferry.local import LocalCluster
from slotferry.processes import ProcessError

STOPPED_SECONDS = 0.005
STRING_BYTES = 2_000_000
KEY = "bits"
SHARES = {"default": 0.5, "batch": 1.5}
"""What each user asks for, as a share of what the server can do with half of its CPU."""
LOGINS = {"as all others": "batch", "sheddable": "sheddable-batch"}
USERS = [
    {"name": "default", "no_password": True},
    {"name": "batch", "password": "x"},
    {"name": "sheddable-batch", "password": "x", "sheddable": True},
]
CLIENTS = 200
"""Of each user: it does not wait for a reply before it asks again, as many of its clients are idle."""
READ_SIZE = 65_536


@dataclass
class Measured:
    """By how the second user is treated, one value a turn."""

    p99: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of the first user."""
    served: dict[str, list[float]] = field(default_factory=dict)
    """The share of the second user's requests that were served."""


@contextmanager
def half_stopped(pid: int) -> Iterator[None]:
    """A process is stopped for half of the time within the block."""
    over = threading.Event()

    def stop() -> None:
        while not over.wait(STOPPED_SECONDS):
            os.kill(pid, signal.SIGSTOP)
            over.wait(STOPPED_SECONDS)
            os.kill(pid, signal.SIGCONT)

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        yield
    finally:
        over.set()
        stopping.join()


def login(address: str, user: str) -> list[Client]:
    """The clients of one user."""
    clients = [Client(address) for _ in range(CLIENTS)]
    for client in clients:
        client.socket.sendall(command(("AUTH", user, "x")))
        client.read(1)
    return clients


def capacity(client: Client, seconds: float) -> float:
    """How many requests a second the server answers."""
    done, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        client.socket.sendall(command(("BITCOUNT", KEY)) * 10)
        client.read(10)
        done += 10
    return done / (time.perf_counter() - begin)


def send(parts: list[tuple[list[Client], float]], seconds: float) -> list[list[tuple[float, bool]]]:
    """Send each part's requests at its rate. Gives, for each part and request, its seconds and whether it was served.

    Raises:
        ValueError: replies are missing long after they were due, or are something else.
    """
    request = command(("BITCOUNT", KEY))
    places = {client.socket.fileno(): (part, client) for part, (clients, _) in enumerate(parts) for client in clients}
    poller = select.epoll()
    for descriptor in places:
        poller.register(descriptor, select.EPOLLIN)
    due: dict[int, list[float]] = {descriptor: [] for descriptor in places}
    found: list[list[tuple[float, bool]]] = [[] for _ in parts]
    sent = [0 for _ in parts]
    begin = time.perf_counter()
    limit = begin + 3 * seconds + 10.0
    while sum(map(len, found)) < sum(round(rate * seconds) for _, rate in parts):
        now = time.perf_counter()
        for part, (clients, rate) in enumerate(parts):
            while sent[part] < round(rate * seconds) and begin + sent[part] / rate <= now:
                client = clients[sent[part] % len(clients)]
                due[client.socket.fileno()].append(begin + sent[part] / rate)
                client.socket.send(request)
                sent[part] += 1
        for descriptor, _ in poller.poll(0.0005):
            part, client = places[descriptor]
            received = client.socket.recv(READ_SIZE)
            while not received.endswith(b"\r\n"):
                received += client.socket.recv(READ_SIZE)
            now = time.perf_counter()
            for reply in received.split(b"\r\n")[:-1]:
                if not reply.startswith((b":", b"-TRYAGAIN")):
                    raise ValueError(f"BITCOUNT got {reply.decode()}")
                found[part].append((now - due[descriptor].pop(0), reply.startswith(b":")))
        if now > limit:
            raise ValueError("many requests were not answered in time")
    poller.close()
    return found


async def measure(seconds: float, turns: int) -> Measured:
    """Have the server overloaded so often. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with LocalCluster(groups=1, proxies=0) as cluster:
        address = await cluster.add_proxy({"workers": 1, "users": json.dumps(USERS)})
        [[server]] = cluster.servers.values()
        pid = server.pid
        assert pid is not None
        users = {user: await asyncio.to_thread(login, address, user) for user in ("default", *LOGINS.values())}
        users["default"][0].socket.sendall(command(("SETRANGE", KEY, str(STRING_BYTES), "x")))
        users["default"][0].read(1)
        can = await asyncio.to_thread(capacity, users["default"][0], seconds) / 2
        for turn in range(turns):
            ways = list(LOGINS.items())
            for way, user in ways if turn % 2 else reversed(ways):
                with half_stopped(pid):
                    loads = [(users["default"], SHARES["default"] * can), (users[user], SHARES["batch"] * can)]
                    app, batch = await asyncio.to_thread(send, loads, seconds)
                found.p99.setdefault(way, []).append(1e3 * processes.percentile(sorted(took for took, _ in app), 99))
                found.served.setdefault(way, []).append(sum(served for _, served in batch) / len(batch))
                if not all(served for _, served in app):
                    raise ValueError("a request of the first user was refused")
    return found


def show(found: Measured, console: Console) -> None:
    """Print the table."""
    table = Table(title="A server with half of its CPU, asked for twice what it can do")
    for heading in ("the second user is", "p99 ms of the first", "to the other row's", "served of the second"):
        table.add_column(heading)
    usual, shed = (found.p99[way] for way in LOGINS)
    ratios = {
        "as all others": "1",
        "sheddable": report.Spread.of([a / b for a, b in zip(shed, usual, strict=True)]).show(),
    }
    for way in LOGINS:
        served = report.Spread.of(found.served[way]).show()
        table.add_row(way, report.Spread.of(found.p99[way]).show(0), ratios[way], served)
    console.print(table)


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each run.")] = 5.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what users notice of an overloaded server."""
    console = report.console()
    if quick:
        turns, seconds = 1, 1.0
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(seconds, turns))
    show(found, console)
    console.print(f"saved as {report.save('shedding', output, {'machine': machine, 'measured': report.plain(found)})}")


if __name__ == "__main__":
    typer.run(main)
