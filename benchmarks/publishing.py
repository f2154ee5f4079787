"""What ``publish_counts_clients`` costs: PUBLISH by way of a proxy with it, beside one without.

    python -m benchmarks.publishing              # five turns; three minutes
    python -m benchmarks.publishing --quick

Two proxies with one worker each, over one Redis server. 20 clients are subscribed to the channel by way of each, or 20
to a pattern. The proxies take turns, so the machine's other work affects both alike. A figure is that of the proxy that
counts, divided by the other's in the same turn: requests a second, and CPU time of the worker and of the server for a
request.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import redis.asyncio
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.load import Load, run
from benchmarks.oneworker import START_SECONDS
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess, ProcessError, until

CHANNELS = {"nobody": "silent", "20 clients of the channel": "news", "20 clients of a pattern": "sport"}
"""What is published to, by who hears it."""
LISTENERS = 10
"""By way of each proxy."""
FIGURES = ("requests/s", "worker us", "server us")
SETTLE_SECONDS = 0.1

Found = dict[str, dict[int, list[dict[str, dict[str, float]]]]]
"""By who hears and pipeline, for each turn: the figures of the proxies ``off`` and ``on``."""


async def worker_of(proxy: ManagedProcess) -> int:
    """The process of a proxy's one worker."""

    async def complete() -> bool:
        return len(processes.running(proxy.pid, "proxy.worker.worker")) == 1

    await until(complete, "the worker", START_SECONDS, [proxy])
    [pid] = processes.running(proxy.pid, "proxy.worker.worker")
    return pid


async def listen(addresses: list[str], stack: AsyncExitStack) -> None:
    """Subscribe; messages are read and forgotten."""
    for address in addresses * LISTENERS:
        host, _, port = address.rpartition(":")
        for word, name in (("SUBSCRIBE", "news"), ("PSUBSCRIBE", "spor*")):
            client = await stack.enter_async_context(redis.asyncio.Redis(host=host, port=int(port)))
            pubsub = await stack.enter_async_context(client.pubsub())
            await pubsub.execute_command(word, name)
            await pubsub.parse_response()
            reading = asyncio.create_task(_read(pubsub))
            stack.callback(reading.cancel)


async def _read(pubsub: redis.asyncio.client.PubSub) -> None:
    while True:
        await pubsub.parse_response()


async def measure(depths: list[int], clients: int, requests: int, turns: int) -> Found:
    """Publish by way of both as often as there are turns. Raises ProcessError, LoadFailed."""
    found: Found = {}
    async with LocalCluster(groups=1, proxies=0) as cluster, AsyncExitStack() as stack:
        addresses, pids = {}, {}
        for name, counts in (("off", False), ("on", True)):
            addresses[name] = await cluster.add_proxy({"workers": 1, "publish_counts_clients": counts})
            pids[name] = await worker_of(cluster.proxies[-1])
        [server] = [process.pid for process in cluster.processes if process.name.startswith("redis")]
        await listen([*addresses.values()], stack)
        for turn in range(turns + 1):
            for who, channel in CHANNELS.items():
                for depth in depths:
                    many = requests * min(depth, 4)
                    load = Load("publish", depth, many, clients, 1, 1, ("PUBLISH", channel, "a message"))
                    of_turn = {}
                    for name, address in addresses.items():
                        roles = {"worker us": [pids[name]], "server us": [server]}
                        before = processes.cpu_by_role(roles)
                        outcome = await run(address, load)
                        await asyncio.sleep(SETTLE_SECONDS)
                        used = processes.spent(before, processes.cpu_by_role(roles))
                        of_turn[name] = {role: 1e6 * seconds / many for role, seconds in used.items()}
                        of_turn[name]["requests/s"] = outcome.requests_per_second
                    if turn:  # the first turn warms up
                        found.setdefault(who, {}).setdefault(depth, []).append(of_turn)
    return found


def show(found: Found, console: Console) -> None:
    """Print the table."""
    table = Table(title="PUBLISH that counts clients, to one that does not")
    for heading in ("who hears it", "pipeline", *(f"{figure}, off" for figure in FIGURES), *FIGURES):
        table.add_column(heading)
    for who, by_depth in found.items():
        for depth, turns in by_depth.items():
            off = [report.Spread.of([turn["off"][figure] for turn in turns]).show() for figure in FIGURES]
            ratios = [[turn["on"][figure] / turn["off"][figure] for turn in turns] for figure in FIGURES]
            table.add_row(who, str(depth), *off, *(report.Spread.of(ratio).show() for ratio in ratios))
    console.print(table)


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    requests: Annotated[int, typer.Option(min=1000, help="Of an unpipelined run.")] = 5_000,
    clients: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what it costs to count the clients that get a message."""
    console = report.console()
    if quick:
        turns, requests = 1, 1000
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, RuntimeError):
        found = asyncio.run(measure([1, 16], clients, requests, turns))
    show(found, console)
    console.print(f"saved as {report.save('publishing', output, {'machine': machine, 'figures': found})}")


if __name__ == "__main__":
    typer.run(main)
