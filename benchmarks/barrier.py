"""How long a whole barrier takes: from a change of the table until every proxy has acknowledged it.

    python -m benchmarks.barrier            # 100 and 1,000 proxies; about a minute
    python -m benchmarks.barrier --quick

topom is the real one, in this process, with its store on the disk and its control streams on the loopback address.
Another process plays the proxies. It only reads each table and acknowledges it, so the control plane is measured.
Barriers come one after the other, like those of the states of a slot.
"""

import asyncio
import contextlib
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvicorn
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import players, report
from benchmarks.processes import percentile
from slots import garbage
from slots.slot import OFFLINE, Slot
from topom import api
from topom.api.callers import Callers
from topom.api.wire import Wire
from topom.cluster import topology
from topom.term.node import Node
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.stores import open_store
from topom.term.tokens import Tokens

GOALS = {100: 50.0, 1000: 100.0}
"""Milliseconds within which 99 of 100 barriers should be over, by the number of proxies."""
SLOTS_CHANGED = 8
LIMIT_SECONDS = 120.0


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Topom, str, str]]:
    """A topom that leads, its address and its token."""
    settings = TopomSettings(data=folder)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    node = Node(settings, open_store(settings), f"http://{address}")
    token = secrets.token_hex(16)
    config = uvicorn.Config(
        api.build(node, Callers(Tokens(token))),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=Wire,
        ws_per_message_deflate=False,
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(node.run())
    leads = asyncio.create_task(node.led.wait())
    await asyncio.wait((running, leads), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        leads.cancel()
        running.result()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    topom = node.leading
    assert topom is not None
    try:
        yield topom, f"ws://{address}", token
    finally:
        node.release()
        server.should_exit = True
        server.force_exit = True
        running.cancel()
        await asyncio.gather(running, serving, return_exceptions=True)
        await node.close()


async def one(topom: Topom, round_number: int) -> float:
    """Milliseconds of one barrier: some slots are changed, stored, sent, and acknowledged by all."""
    group_id = OFFLINE if round_number % 2 else 1
    first = SLOTS_CHANGED * (round_number // 2 % 100)
    began = time.perf_counter()
    table = await topom.edits.edit(
        lambda table, epoch: table.changed(epoch, [Slot(first + each, group_id) for each in range(SLOTS_CHANGED)])
    )
    await topom.barrier.reach(table.epoch, [], LIMIT_SECONDS, stop_at_refusal=True)
    return 1000 * (time.perf_counter() - began)


async def measure(proxies: int, rounds: int) -> list[float]:
    """Milliseconds of each barrier over so many proxies."""
    with tempfile.TemporaryDirectory(prefix="slotferry-barrier-") as folder:
        async with served(Path(folder)) as (topom, url, token):
            await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["127.0.0.1:1"]))
            command = [sys.executable, "-m", "benchmarks.barrier", "--play", str(proxies), "--url", url]
            players = await asyncio.create_subprocess_exec(
                *command, env={"PATH": "", "SLOTFERRY_TOKEN": token}, stdout=subprocess.DEVNULL
            )
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    while len(topom.members.all()) < proxies:
                        await asyncio.sleep(0.1)
                    await topom.barrier.reach(topom.ledger.table.epoch, [], LIMIT_SECONDS, stop_at_refusal=False)
                garbage.spare_what_is_here()
                return [await one(topom, number) for number in range(rounds)]
            finally:
                players.kill()
                await players.wait()


def main(
    rounds: Annotated[int, typer.Option(min=10, help="Barriers, one after the other.")] = 300,
    quick: Annotated[bool, typer.Option("--quick", help="Few proxies and barriers: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="Where every figure is kept, as JSON.")] = None,
    play_proxies: Annotated[int, typer.Option("--play", hidden=True)] = 0,
    url: Annotated[str, typer.Option(hidden=True)] = "",
    token: Annotated[str, typer.Option(envvar="SLOTFERRY_TOKEN", hidden=True)] = "",
) -> None:
    """Measure barriers over many proxies."""
    if play_proxies:
        uvloop.run(players.play(url, token, play_proxies))
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    table = Table(title="A barrier, from the change to the last acknowledgement")
    for heading in ("proxies", "ms, median", "ms, p99", "ms, most", "goal, p99", "verdict"):
        table.add_column(heading)
    found, all_met = {}, True
    for proxies, goal in {10: 50.0}.items() if quick else GOALS.items():
        took = uvloop.run(measure(proxies, 20 if quick else rounds))
        found[str(proxies)] = took
        p99 = percentile(sorted(took), 99)
        all_met &= p99 <= goal
        figures = (statistics.median(took), p99, max(took))
        shown = (f"{figure:.1f}" for figure in figures)
        table.add_row(f"{proxies:,}", *shown, f"<= {goal:g}", "met" if p99 <= goal else "not met")
    Console(width=120).print(table)
    path = report.save("barrier", output, {"machine": report.machine(), "milliseconds": found})
    print(f"kept in {path}")
    if not all_met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
