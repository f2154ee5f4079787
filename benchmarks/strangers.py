"""Measures what connections without the token cost topom, and how they affect an operator.

    python -m benchmarks.strangers [--quick]

A cluster of one group and one proxy. An operator asks for the status again and again, first alone and then beside 2,000
connections without the token. Half of them send half a head, the others a head and a part of a body. A connection that
is closed connects again about a second later. README.md says how to read the figures.
"""

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.processes import cpu_seconds, percentile
from slotferry.calls import TopomError
from slotferry.local import LocalCluster
from slotferry.processes import ProcessError
from slotferry.signals import until_signal
from slots.openfiles import raise_limit

CONNECTIONS = 2000
REDIAL_SECONDS = 1.0
SPREAD_SECONDS = 10.0
"""Seconds over which they come."""
BODY = b" " * 100_000
HEAD = b"POST /api/v1/groups HTTP/1.1\r\nHost: topom\r\nContent-Type: application/json\r\n"
MEMORY_GOAL_BYTES = 50 * 1024 * 1024
LATENCY_GOAL = 2.0
"""A factor for the p99 without them."""


def memory(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def stranger(host: str, port: int, sends: bytes) -> None:
    """Connect at some time, send a request that never ends, and wait to be cut off; for ever."""
    await asyncio.sleep(random.uniform(0, SPREAD_SECONDS))
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(sends)
                while await reader.read(65536):
                    pass
            finally:
                writer.close()
        await asyncio.sleep(random.uniform(0, 2 * REDIAL_SECONDS))


async def be_strangers(host: str, port: int) -> None:
    """Be all of them, in a process of low priority: it plays other machines."""
    os.nice(10)
    raise_limit(CONNECTIONS + 256)
    bodies = HEAD + b"Content-Length: 1000000\r\n\r\n" + BODY
    heads = HEAD + b"X: " + b"x" * 8000
    await asyncio.gather(*(stranger(host, port, bodies if number % 2 else heads) for number in range(CONNECTIONS)))


async def latencies(cluster: LocalCluster, requests: int) -> list[float]:
    """Milliseconds of an operator's requests, each over a connection of its own, ascending."""
    found = []
    headers = {"Authorization": f"Bearer {cluster.token}"}
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=30, trust_env=False) as client:
        for _ in range(requests):
            began = time.monotonic()
            (await client.get(f"{cluster.topom_url}/api/v1/status")).raise_for_status()
            found.append(1000 * (time.monotonic() - began))
            await asyncio.sleep(0.01)
    return sorted(found)


async def benchmark(requests: int, output: Path | None, console: Console) -> bool:
    """Measure, print and save; say whether the goals are met."""
    before = report.machine()
    async with LocalCluster(groups=1, proxies=1) as cluster:
        url = urlsplit(cluster.topom_url)
        assert url.hostname is not None
        assert url.port is not None
        pid = cluster.topom.pid
        await latencies(cluster, requests // 4)
        quiet = await latencies(cluster, requests)
        small = memory(pid)
        program = "import asyncio; from benchmarks.strangers import be_strangers"
        arguments = f"{url.hostname!r}, {url.port}"
        command = sys.executable, "-c", f"{program}; asyncio.run(be_strangers({arguments}))"
        strangers = await asyncio.create_subprocess_exec(*command)
        try:
            await asyncio.sleep(SPREAD_SECONDS)
            used, began = cpu_seconds(pid), time.monotonic()
            await asyncio.sleep(SPREAD_SECONDS)
            share = (cpu_seconds(pid) - used) / (time.monotonic() - began)
            beside = await latencies(cluster, requests)
            large = memory(pid)
            held = len(os.listdir(f"/proc/{pid}/fd"))
        finally:
            strangers.kill()
            await strangers.wait()
    added, times = large - small, percentile(beside, 99) / percentile(quiet, 99)
    table = Table("", "alone", f"beside {CONNECTIONS} connections", "goal", "")
    for percent in (50, 99):
        goal = f"<= {LATENCY_GOAL:g} times" if percent == 99 else ""
        verdict = f"{times:.2f} times" if percent == 99 else ""
        row = (f"{percentile(figures, percent):.1f} ms" for figures in (quiet, beside))
        table.add_row(f"p{percent} of an operator's request", *row, goal, verdict)
    sizes = (f"{size / 2**20:.0f} MiB" for size in (small, large))
    table.add_row("memory of topom", *sizes, f"+{MEMORY_GOAL_BYTES / 2**20:.0f} MiB", f"+{added / 2**20:.0f} MiB")
    table.add_row("share of a core that topom uses for them", "", f"{100 * share:.0f}%", "", "")
    console.print(table)
    content = {
        "machine": before,
        "load_average_after": report.machine()["load_average"][0],
        "milliseconds_alone": quiet,
        "milliseconds_beside": beside,
        "bytes_alone": small,
        "bytes_beside": large,
        "files_beside": held,
        "core_share_beside": share,
    }
    console.print(f"saved as {report.save('strangers', output, content)}")
    return added <= MEMORY_GOAL_BYTES and times <= LATENCY_GOAL


def main(
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="Of the operator, alone and again beside.")] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="100 requests: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what connections without the token cost topom, and how they affect an operator."""
    console = report.console()
    with report.failing(console, TopomError, ProcessError, httpx.HTTPError, OSError):
        met = asyncio.run(until_signal(benchmark(100 if quick else requests, output, console)))
    if met is None:
        raise typer.Abort
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
