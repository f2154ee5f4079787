"""How many instructions a GET costs in a worker, whatever else the machine does.

    python -m benchmarks.instructions             # half a minute; needs valgrind
    python -m benchmarks.instructions --quick     # shows that all works

A worker serves 50 connections under callgrind, in front of two Redis servers. What the kernel does is not counted.
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

from slots.table import Slot

CONNECTIONS = 50
KEYS = 20_000
VALUE = b"$64\r\n" + b"x" * 64 + b"\r\n"
SETTLED_SECONDS = 3.0
"""After so long a worker has learned what it asks servers for at its start."""
BESIDE = ("statistics", "hotkeys", "slotload")
"""Modules whose own functions run for a sample of the requests, or each second: how often for a GET depends on time.
What they have in line counts where it is."""
ENGINE = re.compile(r"/(?:proxy/engine|slots(?:/requests)?)/(\w+)\.[^/]*$")
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
    """The instructions of each compiled module's own functions, by what callgrind wrote; of all else as ``""``."""
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
                module = found[1] if found else ""
        elif line.startswith("calls="):
            # The next line has what the callee took, which is also told where it stands itself.
            of_callee = True
        elif cost := COST.match(line):
            counted[module] += 0 if of_callee else int(cost[1])
            of_callee = False
    return counted


def ask(address: str, depth: int, requests: int) -> int:
    """Have all connections send a pipeline of GETs and then read the replies, again and again; how many there were."""
    host, port = address.split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
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
        done += depth * CONNECTIONS
    for client in clients:
        client.close()
    return done


def callgrind(*arguments: str) -> None:
    """Tell callgrind something about the worker."""
    subprocess.run(["callgrind_control", *arguments], check=True, capture_output=True)


async def measure(directory: Path, depths: list[int], requests: int) -> dict[int, Counter[str]]:
    """The instructions for a GET by module, for each depth of a pipeline."""
    found: dict[int, Counter[str]] = {}
    # The tests' harness is not checked for types.
    workers: Any = importlib.import_module("tests.integration.worker.harness")
    with patch.object(workers, "fork", under_callgrind(directory)):
        # Under callgrind all requests are slow.
        harness = await workers.WorkerHarness.start(directory, slow_log_microseconds=0.0)
    try:
        await harness.apply([Slot(index, 2) for index in range(512, 1024)])
        async with harness.client() as client:
            pipeline = client.pipeline(transaction=False)
            for key in range(KEYS):
                pipeline.set(f"key:{key:08}", b"x" * 64)
            await pipeline.execute()
        await asyncio.sleep(SETTLED_SECONDS)
        worker = str(harness.process.pid)
        for depth in depths:
            await asyncio.to_thread(ask, harness.settings.listen, depth, CONNECTIONS * depth * 2)
            callgrind("-i", "on", worker)
            done = await asyncio.to_thread(
                ask, harness.settings.listen, depth, requests if depth > 1 else requests // 8
            )
            callgrind("-d", worker)
            callgrind("-i", "off", worker)
            text = (directory / f"counted.{len(found) + 1}").read_text()
            found[depth] = Counter({name: round(each / done) for name, each in by_module(text.splitlines()).items()})
    finally:
        await harness.stop()
    return found


def main(
    quick: Annotated[bool, typer.Option(help="Few requests.")] = False,
    pipelines: Annotated[str, typer.Option(help="Depths of pipelines.")] = "1,64",
) -> None:
    """Print a table."""
    if shutil.which("valgrind") is None:
        raise typer.BadParameter("valgrind is not installed")
    depths = [int(depth) for depth in pipelines.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(Path(directory), depths, 6_400 if quick else 64_000))
    table = Table("instructions for a GET", *(f"pipeline of {depth}" for depth in depths))
    modules = sorted({name for counted in found.values() for name in counted} - {"", *BESIDE})
    totals = [sum(counted[name] for name in modules) for counted in found.values()]
    table.add_row("the engine", *(f"{total:,}" for total in totals), end_section=True)
    for name in modules:
        if any(counted[name] for counted in found.values()):
            table.add_row(f"  {name}", *(str(counted[name]) for counted in found.values()))
    table.add_section()
    beside = [sum(counted[name] for name in BESIDE) for counted in found.values()]
    table.add_row("samples, figures of a second", *map(str, beside))
    table.add_row("Python, libraries", *(f"{counted['']:,}" for counted in found.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
