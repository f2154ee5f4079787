"""How many instructions a GET costs in a worker, whatever else the machine does.

    python -m benchmarks.instructions             # half a minute; needs valgrind
    python -m benchmarks.instructions --rules     # the same under slot rules: two minutes
    python -m benchmarks.instructions --quick     # shows that all works

A worker serves 50 connections under callgrind, in front of two Redis servers. What the kernel does is not counted.
Under slot rules, it serves one connection, so that the same work is done for each GET.
"""

import asyncio
import importlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from slots.rules import SlotRule
from slots.slot import Slot

CONNECTIONS = 50
KEYS = 20_000
VALUE = b"$64\r\n" + b"x" * 64 + b"\r\n"
SETTLED_SECONDS = 3.0
"""After so long a worker has learned what it asks servers for at its start."""


def rules_that_begin(*beginnings: str) -> tuple[SlotRule, ...]:
    """Twenty slot rules whose patterns begin so, by turns."""
    return tuple(SlotRule(f"{beginnings[number % len(beginnings)]}{number:02}:(*):*") for number in range(20))


RULES: dict[str, tuple[SlotRule, ...]] = {
    "no rules": (),
    "20 rules, none begins with the key's letter": rules_that_begin("queue:"),
    "20 rules, 10 begin with the key's letter": rules_that_begin("queue:", "k"),
    "20 rules, 10 begin with four of the key's letters": rules_that_begin("queue:", "key:"),
    "20 rules, the last is the key's: key:*": (*rules_that_begin("queue:", "key:")[1:], SlotRule("key:*")),
    "20 rules, the last is the key's: key:(*)": (*rules_that_begin("queue:", "key:")[1:], SlotRule("key:(*)")),
    "20 rules, the last is the key's: *:(*)": (*rules_that_begin("queue:", "key:")[1:], SlotRule("*:(*)")),
}
"""Keys are ``key:`` and a number of eight digits."""
BESIDE = ("statistics", "hotkeys", "slotload")
"""Modules whose own functions run for a sample of the requests, or each second: how often for a GET depends on time.
What they have in line counts where it is."""
LIBC = "libc"
SLOT = ("functions", "keyslots", "patterns")
"""Modules that find a key's slot."""
ENGINE = re.compile(r"/(?:proxy/engine|slots(?:/requests)?)/(\w+)\.[^/]*$")
C_LIBRARY = re.compile(r"/libc[-.][^/]*$")
NAME = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?")
COST = re.compile(r"[-+*\d]\S* (\d+)$")


def under_callgrind(directory: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a worker whose instructions are counted while callgrind is told so, as :func:`tests.forking.fork` starts
    one."""

    def start(
        module: str, arguments: list[str], descriptors: dict[int, int], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/counted"]
        return subprocess.Popen(
            ["valgrind", "-q", *options, sys.executable, "-m", module, *arguments],
            stdout=descriptors[1],
            stderr=descriptors[2],
            pass_fds=[number for number in descriptors.values() if number not in (descriptors[1], descriptors[2])],
            env=environment,
        )

    return start


def by_module(lines: Iterable[str]) -> Counter[str]:
    """The instructions of each compiled module's own functions, by what callgrind wrote; of the C library as ``libc``,
    of all else as ``""``."""
    files: dict[str, str] = {}
    counted: Counter[str] = Counter()
    module, of_callee = "", False
    for line in lines:
        if named := NAME.match(line):
            called, number, name = named.groups()
            if name is not None:
                files[number] = name.strip()
            if not called:
                found = ENGINE.search(files[number])
                module = found[1] if found else LIBC if C_LIBRARY.search(files[number]) else ""
        elif line.startswith("calls="):
            # The next line has what the callee took, which is also told where it stands itself.
            of_callee = True
        elif cost := COST.match(line):
            counted[module] += 0 if of_callee else int(cost[1])
            of_callee = False
    return counted


def ask(address: str, connections: int, depth: int, requests: int) -> int:
    """Have so many connections send a pipeline of GETs and read the replies, again and again; how many there were."""
    host, port = address.split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(connections)]
    chosen = random.Random(depth)
    done = 0
    while done < requests:
        for client in clients:
            keys = (chosen.randrange(KEYS) for _ in range(depth))
            client.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$12\r\nkey:%08d\r\n" % key for key in keys))
        for client in clients:
            left = len(VALUE) * depth
            while left:
                received = len(client.recv(left))
                if not received:
                    raise ConnectionError("the worker has ended a connection")
                left -= received
        done += depth * connections
    for client in clients:
        client.close()
    return done


def callgrind(*arguments: str) -> None:
    """Tell callgrind something about the worker."""
    subprocess.run(["callgrind_control", *arguments], check=True, capture_output=True)


Figures = dict[tuple[str, int], Counter[str]]
"""The instructions for a GET by module: for each name of rules, and each depth of a pipeline."""


async def measure(directory: Path, rules: Mapping[str, tuple[SlotRule, ...]], depths: list[int], gets: int) -> Figures:
    """All figures, of one worker."""
    found: Figures = {}
    # The tests' harness is not checked for types.
    workers: Any = importlib.import_module("tests.integration.worker.harness")
    with patch.object(workers, "fork", under_callgrind(directory)):
        # Under callgrind all requests are slow.
        harness = await workers.WorkerHarness.start(directory, slow_log_microseconds=0.0)
    try:
        await harness.apply([Slot(index, 2) for index in range(512, 1024)])
        worker = str(harness.process.pid)
        for name, chosen in rules.items():
            if chosen:
                harness.table = harness.table.ruled(harness.table.epoch + 1, chosen)
            await harness.apply()
            async with harness.client() as client:
                await client.flushall()
                pipeline = client.pipeline(transaction=False)
                for key in range(KEYS):
                    pipeline.set(f"key:{key:08}", b"x" * 64)
                await pipeline.execute()
            await asyncio.sleep(SETTLED_SECONDS)
            for depth in depths:
                connections = 1 if len(rules) > 1 else CONNECTIONS
                fewer = gets if depth > 1 else gets // 8
                await asyncio.to_thread(ask, harness.settings.listen, connections, depth, CONNECTIONS * depth * 2)
                callgrind("-i", "on", worker)
                done = await asyncio.to_thread(ask, harness.settings.listen, connections, depth, fewer)
                callgrind("-d", worker)
                callgrind("-i", "off", worker)
                text = (directory / f"counted.{len(found) + 1}").read_text()
                counted = by_module(text.splitlines())
                found[name, depth] = Counter({module: round(each / done) for module, each in counted.items()})
    finally:
        await harness.stop()
    return found


def engine(counted: Counter[str]) -> int:
    """The instructions of the engine."""
    return sum(counted.values()) - beside(counted) - counted[LIBC] - counted[""]


def beside(counted: Counter[str]) -> int:
    """Those that depend on time."""
    return sum(counted[name] for name in BESIDE)


def by_modules(found: Figures) -> Table:
    """A table with a column for each depth."""
    columns = list(found.values())
    table = Table("instructions for a GET", *(f"pipeline of {depth}" for _, depth in found))
    table.add_row("the engine", *(f"{engine(counted):,}" for counted in columns), end_section=True)
    for name in sorted({name for counted in columns for name in counted} - {"", LIBC, *BESIDE}):
        if any(counted[name] for counted in columns):
            table.add_row(f"  {name}", *(str(counted[name]) for counted in columns))
    table.add_section()
    table.add_row("samples, figures of a second", *(str(beside(counted)) for counted in columns))
    table.add_row("the C library", *(f"{counted[LIBC]:,}" for counted in columns))
    table.add_row("Python, other libraries", *(f"{counted['']:,}" for counted in columns))
    return table


def by_rules(found: Figures, depths: list[int]) -> Table:
    """A table with a row for each name of rules: the engine's instructions, and the C library's, which looks for bytes.

    Without pipelines, the C library's depend on time, and are left out.
    """
    table = Table("instructions for a GET", "for its slot", *(f"pipeline of {depth}" for depth in depths))

    def all_of(name: str, depth: int) -> int:
        counted = found[name, depth]
        return engine(counted) + (counted[LIBC] if depth > 1 else 0)

    for name in RULES:
        figures = [(all_of(name, depth), all_of("no rules", depth)) for depth in depths]
        slot = sum(found[name, depths[0]][module] for module in SLOT)
        table.add_row(name, str(slot), *(f"{figure:,} ({figure / without:.3f})" for figure, without in figures))
    return table


def main(
    quick: Annotated[bool, typer.Option(help="Few requests.")] = False,
    pipelines: Annotated[str, typer.Option(help="Depths of pipelines.")] = "1,64",
    rules: Annotated[bool, typer.Option(help="Under slot rules.")] = False,
) -> None:
    """Print a table."""
    if shutil.which("valgrind") is None:
        raise typer.BadParameter("valgrind is not installed")
    depths = [int(depth) for depth in pipelines.split(",")]
    chosen = RULES if rules else {"no rules": ()}
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(Path(directory), chosen, depths, 6_400 if quick else 64_000))
    Console().print(by_rules(found, depths) if rules else by_modules(found))


if __name__ == "__main__":
    typer.run(main)
