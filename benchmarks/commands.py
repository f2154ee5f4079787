"""What the commands of applications cost the proxy, beside its own GET in the same run.

    python -m benchmarks.commands              # five turns; about five minutes
    python -m benchmarks.commands --quick

One proxy with one worker, over two Redis servers. Commands take turns with GET, at the same pipeline and number of
clients, so the machine's other work affects both alike. A figure is the CPU time of the worker for one request, divided
by that of a GET of the same turn. The replies are short, like that of the GET.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import redis.asyncio
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.load import KEY_PREFIX, SMALL_BYTES, Load, fill, run
from benchmarks.oneworker import one_worker
from slotferry.processes import ProcessError

KEYS = 10_000
RANDOM = "__rand_int__"
NAME = f"{KEY_PREFIX}{RANDOM}"
SCRIPT = "return redis.call('GET', KEYS[1])"
LIBRARY = "#!lua name=bench\nredis.register_function('bench', function(keys) return redis.call('GET', keys[1]) end)"
GET = "get"
GOAL = 1.25
SETTLE_SECONDS = 0.1


def requests_of(digest: str) -> dict[str, tuple[str, ...]]:
    """What is sent for each command; ``digest`` is the SHA1 of :data:`SCRIPT`."""
    return {
        GET: ("GET", NAME),
        "evalsha": ("EVALSHA", digest, "1", NAME),
        "eval": ("EVAL", SCRIPT, "1", NAME),
        "fcall": ("FCALL", "bench", "1", NAME),
        "xadd": ("XADD", f"stream:{RANDOM}", "MAXLEN", "1", "*", "f", "v"),
        "xread": ("XREAD", "COUNT", "1", "STREAMS", f"none:{RANDOM}", "0"),
        "xreadgroup": ("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "group", ">"),
        "zunion": ("ZUNION", "1", f"none:{RANDOM}"),
        "object": ("OBJECT", "ENCODING", NAME),
        "memory": ("MEMORY", "USAGE", NAME),
    }


@dataclass
class Measured:
    """CPU microseconds of the worker for one request, by command and pipeline: one value a turn."""

    cpu: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def ratios(self, command: str, depth: int) -> list[float]:
        """A command's figures, each divided by that of GET in the same turn."""
        return [one / get for one, get in zip(self.cpu[command][depth], self.cpu[GET][depth], strict=True)]


async def prepare(address: str, servers: list[str]) -> str:
    """Keys, the script, the library and the group; gives the script's SHA1."""
    for server in servers:
        await asyncio.to_thread(fill, server, KEYS, SMALL_BYTES)
    host, _, port = address.rpartition(":")
    async with redis.asyncio.Redis(host=host, port=int(port)) as client:
        digest = str(await client.script_load(SCRIPT))
        await client.function_load(LIBRARY)
        await client.xgroup_create("group", "g", mkstream=True)
    return digest


async def measure(depths: list[int], clients: int, requests: int, turns: int, only: list[str]) -> Measured:
    """Run every command as often as there are turns. Raises ProcessError, LoadFailed."""
    found = Measured()
    async with one_worker() as worker:
        words = requests_of(await prepare(worker.address, worker.servers))
        chosen = {name: sent for name, sent in words.items() if not only or name in only or name == GET}
        for turn in range(turns + 1):
            for depth in depths:
                for name, sent in chosen.items():
                    many = requests * min(depth, 8)
                    load = Load(name, depth, many, clients, KEYS, SMALL_BYTES, sent)
                    before = worker.cpu
                    await run(worker.address, load)
                    await asyncio.sleep(SETTLE_SECONDS)
                    used = worker.spent(before)
                    if turn:  # the first turn warms up
                        found.cpu.setdefault(name, {}).setdefault(depth, []).append(1e6 * used / many)
    return found


def show(found: Measured, depths: list[int], console: Console) -> bool:
    """Print the table; whether all goals are met."""
    table = Table(title="CPU of the worker for a request, to that of a GET")
    for heading in ("command", *(f"-P {depth}" for depth in depths), "goal", "verdict"):
        table.add_column(heading)
    all_met = True
    for command in found.cpu:
        if command == GET:
            shown = [f"{report.Spread.of(found.cpu[GET][depth]).show()} us" for depth in depths]
            table.add_row(command, *shown, "", "")
            continue
        spreads = [report.Spread.of(found.ratios(command, depth)) for depth in depths]
        met = all(spread.median <= GOAL for spread in spreads)
        all_met &= met
        shown = [spread.show() for spread in spreads]
        table.add_row(command, *shown, f"<= {GOAL:g}", "met" if met else "not met")
    console.print(table)
    return all_met


def main(
    turns: Annotated[int, typer.Option(min=1, max=100)] = 5,
    requests: Annotated[int, typer.Option(min=1000, help="Of an unpipelined run.")] = 20_000,
    clients: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    pipeline: Annotated[list[int] | None, typer.Option(min=1, max=1000, help="May be given several times.")] = None,
    command: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One short turn: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what commands cost the proxy, beside GET."""
    console = report.console()
    depths = pipeline or [1, 16]
    if quick:
        turns, requests = 1, 2000
    machine = report.machine()
    with report.failing(console, ProcessError, OSError, RuntimeError):
        found = asyncio.run(measure(depths, clients, requests, turns, command or []))
    met = show(found, depths, console)
    console.print(f"saved as {report.save('commands', output, {'machine': machine, 'cpu': report.plain(found)})}")
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
