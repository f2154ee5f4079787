"""What a hot key costs its server, with a user who has ``cached_reads`` and with one who has not.

    python -m benchmarks.hotreads           # five turns: a minute
    python -m benchmarks.hotreads --quick

One proxy with two workers, 64 clients that GET one key of 64 bytes as fast as they can, and one that sets it ten times
a second. The figures are GETs that the server ran for each GET of a client, and the CPU seconds of the server and of
the proxy for a million of them.
"""

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.flows import Client
from proxy.engine.backend import command
from slotferry.local import LocalCluster
from slotferry.processes import ProcessError
from slots import address as addresses

CLIENTS = 64
KEY = "hot"
CHANGES_PER_SECOND = 10.0
LOGINS = {"as all others": "plain", "with cached_reads": "cached"}
USERS = [
    {"name": "default", "no_password": True},
    {"name": "plain", "password": "x"},
    {"name": "cached", "password": "x", "cached_reads": True},
]
SETTLED_SECONDS = 3.0
"""After so long the key is known to be hot."""


@dataclass
class Measured:
    """By user, one value a turn."""

    served: dict[str, list[float]] = field(default_factory=dict)
    """GETs at the server for each of a client."""
    server: dict[str, list[float]] = field(default_factory=dict)
    """CPU seconds of the server for a million GETs of clients."""
    proxy: dict[str, list[float]] = field(default_factory=dict)
    """Those of the proxy's workers."""


def login(address: str, user: str) -> list[Client]:
    """The clients of one user."""
    clients = [Client(address) for _ in range(CLIENTS)]
    for client in clients:
        client.socket.sendall(command(("AUTH", user, "x")))
        client.read(1)
    return clients


def read(clients: list[Client], seconds: float) -> int:
    """Have all read for so long; how many GETs that was."""
    done, end, request = 0, time.perf_counter() + seconds, command(("GET", KEY))
    while time.perf_counter() < end:
        for client in clients:
            client.socket.sendall(request)
        for client in clients:
            client.read(1)
        done += len(clients)
    return done


def change(address: str, over: threading.Event) -> None:
    """Set the key again and again, through the proxy."""
    host, port = addresses.split(address)
    with redis.Redis(host=host, port=port) as client:
        number = 0
        while not over.wait(1 / CHANGES_PER_SECOND):
            number += 1
            client.set(KEY, f"{number:064}")


def gets(server: redis.Redis) -> int:
    """How many GETs a server has run."""
    return int(server.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"])


async def measure(seconds: float, turns: int) -> Measured:
    """Read so often. Raises ProcessError, OSError, ValueError."""
    found = Measured()
    async with LocalCluster(groups=1, proxies=0) as cluster:
        address = await cluster.add_proxy({"workers": 2, "users": json.dumps(USERS)})
        [[server]] = cluster.servers.values()
        assert server.pid is not None
        workers = processes.running(cluster.proxies[0].pid or 0, "proxy.worker.worker")
        over = threading.Event()
        changing = asyncio.create_task(asyncio.to_thread(change, address, over))
        users = {user: await asyncio.to_thread(login, address, user) for user in LOGINS.values()}
        host, port = addresses.split(server.address)
        direct = redis.Redis(host=host, port=port)
        try:
            for turn in range(turns):
                ways = list(LOGINS.items())
                for way, user in ways if turn % 2 else reversed(ways):
                    await asyncio.to_thread(read, users[user], SETTLED_SECONDS)
                    ran, spent = gets(direct), processes.cpu_seconds(server.pid)
                    used = sum(map(processes.cpu_seconds, workers))
                    done = await asyncio.to_thread(read, users[user], seconds)
                    found.served.setdefault(way, []).append((gets(direct) - ran) / done)
                    cpu = processes.cpu_seconds(server.pid) - spent
                    found.server.setdefault(way, []).append(1e6 * cpu / done)
                    cpu = sum(map(processes.cpu_seconds, workers)) - used
                    found.proxy.setdefault(way, []).append(1e6 * cpu / done)
        finally:
            over.set()
            await changing
            direct.close()
    return found


def show(found: Measured, console: Console) -> None:
    """Print the table."""
    table = Table(title="One hot key, which is changed ten times a second")
    for heading in ("the clients' user is", "GETs at the server", "its CPU s, a million", "the proxy's"):
        table.add_column(heading)
    for way in LOGINS:
        figures = (found.served[way], found.server[way], found.proxy[way])
        table.add_row(way, *(report.Spread.of(one).show(3) for one in figures))
    console.print(table)


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each run.")] = 3.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what a hot key costs."""
    console = report.console()
    if quick:
        turns, seconds = 1, 1.0
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, ValueError):
        found = asyncio.run(measure(seconds, turns))
    show(found, console)
    console.print(f"saved as {report.save('hotreads', output, {'machine': machine, 'measured': report.plain(found)})}")


if __name__ == "__main__":
    typer.run(main)
