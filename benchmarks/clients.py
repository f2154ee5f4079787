"""Measures many clients at once: the memory of an idle one, and the cost to others of clients that never read.

    python -m benchmarks.clients [--clients 10000] [--stuck 1000] [--quick]

One worker of the proxy before two groups. All clients connect, ask for one key and stay; the worker's memory is read
before and after. Then a probe asks for small values at an even pace, in three spells of several windows each: while
all the clients are idle, while some of them ask for large values over and over without reading a reply, and after
those have gone. README.md says how to read the figures.
"""

import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Run as a file, this folder must not be searched, for its proxy.py would hide the package `proxy`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import goals, processes, report
from benchmarks.crowd import AFTER, BEFORE, BESIDE, FILLING, MIB, Crowd, Span, Window
from benchmarks.holder import LARGE_KEY
from benchmarks.load import LoadFailed, fill, set_request
from benchmarks.probe import read
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess, ProcessError, end_with_parent
from slotferry.signals import until_signal

SERVERS = 2
WARM_CLIENTS = 200
"""Clients connected before memory is first read, so that memory that is allocated once is already there."""
PROBE_KEYS = 1000
PROBE_BYTES = 64
PROBE_CONNECTIONS = 16
LARGE_BYTES = 16384
ROOM = 100
"""Further connections that the proxy has to allow."""
BACKEND_BYTES = 4 * MIB
"""The limit for unsent requests to a server."""
REPLIES_BYTES = MIB
"""The expected bytes of a server's replies above which clients are not read: WINDOW_BYTES of proxy.engine.backend."""
_ANSWER_SECONDS = 120.0
_WARM_SECONDS = 1.0
_STEADY_SECONDS = 1.0
_STEADY_CPU = 0.02
_FILL_SECONDS = 30.0
_SAMPLE_SECONDS = 0.1
_ROOT = Path(__file__).resolve().parent.parent


class ClientsFailed(RuntimeError):
    """The process that holds the clients, or the probe, has failed."""


@dataclass(frozen=True)
class Scenario:
    """The number of clients, and how they are measured. ``output_limit`` is the proxy's sessions_limit_bytes."""

    clients: int
    stuck: int
    windows: int
    window_seconds: float
    rate: float
    output_limit: int

    @property
    def limit_bytes(self) -> int:
        """The memory that the worker may keep for clients that do not read."""
        return self.output_limit + SERVERS * (BACKEND_BYTES + REPLIES_BYTES)


def resident(pid: int) -> int:
    """Bytes of memory that a process has. Raises ProcessGone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        raise processes.ProcessGone(f"process {pid} is gone; look for its end in its log") from None


def most_resident(pid: int) -> int:
    """The most bytes that a process ever had. Raises OSError."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def kernel_memory() -> int:
    """Bytes that the system keeps for all TCP connections of the machine, including unread ones."""
    fields = next(
        line.split() for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:")
    )
    return int(fields[fields.index("mem") + 1]) * resource.getpagesize()


def put_large(address: str) -> None:
    """Set the large value."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(set_request(LARGE_KEY, b"x" * LARGE_BYTES))
        if client.recv(64) != b"+OK\r\n":
            raise ClientsFailed("the large value could not be set")


def environment() -> dict[str, str]:
    """The environment of a child that finds this package from any working directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}


class Clients:
    """The process that holds the clients. It reads and answers the messages of :meth:`tell`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, stack: AsyncExitStack, address: str) -> "Clients":
        """Start it; it ends with ``stack``."""
        parent = os.getpid()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.holder", address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(),
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )

        async def end() -> None:
            if process.returncode is None:
                process.kill()
            await process.wait()

        stack.push_async_callback(end)
        return cls(process)

    async def tell(self, command: str) -> dict[str, int]:
        """Give an order to the process, and return its answer. Raises ClientsFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(_ANSWER_SECONDS):  # its TimeoutError is an OSError
            line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or b'{"failed": "the process that holds the clients has ended"}')
        if "failed" in answer:
            raise ClientsFailed(f"{command}: {answer['failed']}")
        return answer


async def watch(worker: int, spell: str, seconds: float) -> Span:
    """Let time pass, and note the highest memory in it."""
    begin = time.monotonic()
    most, kernel = resident(worker), kernel_memory()
    while (left := begin + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _SAMPLE_SECONDS))
        most, kernel = max(most, resident(worker)), max(kernel, kernel_memory())
    return Span(spell, begin, time.monotonic(), most, kernel)


async def until_steady(worker: int, clients: Clients, quiet_cpu: float) -> Span:
    """Wait until the stuck clients can send no more requests, and the worker has handled those it took.

    Args:
        quiet_cpu: CPU seconds that it uses in a second while no client is stuck.
    """
    begin = time.monotonic()
    spans: list[Span] = []
    requests, steady = -1, False
    while not steady and time.monotonic() - begin < _FILL_SECONDS:
        used = processes.cpu_seconds(worker)
        spans.append(await watch(worker, FILLING, _STEADY_SECONDS))
        used = processes.cpu_seconds(worker) - used
        before, requests = requests, (await clients.tell("look"))["requests"]
        steady = requests == before and used <= _STEADY_SECONDS * (2 * quiet_cpu + _STEADY_CPU)
    return Span(
        FILLING,
        begin,
        time.monotonic(),
        max(span.worker_bytes for span in spans),
        max(span.kernel_bytes for span in spans),
    )


def start_probe(address: str, scenario: Scenario, directory: Path) -> tuple[ManagedProcess, Path]:
    """Start the probe; give it and its output file. Raises ProcessError."""
    output = directory / "probe.times"
    arguments = [
        *(sys.executable, "-m", "benchmarks.probe", address, "--output", str(output), "--keys", str(PROBE_KEYS)),
        *("--value-bytes", str(PROBE_BYTES), "--rate", str(scenario.rate), "--connections", str(PROBE_CONNECTIONS)),
    ]
    probe = ManagedProcess("probe", arguments, directory / "probe.log", environment())
    probe.start()
    return probe, output


async def measure(scenario: Scenario) -> Crowd:
    """Start a cluster, measure, and end it. Raises the errors that :func:`main` catches."""
    settings = {
        "max_clients": scenario.clients + WARM_CLIENTS + ROOM,
        "sessions_limit_bytes": scenario.output_limit,
        "backend_queue_pause_bytes": BACKEND_BYTES,
    }
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            LocalCluster(groups=SERVERS, proxies=1, workers=1, proxy_settings=settings)
        )
        address = cluster.proxy_addresses[0]
        worker = processes.running(cluster.proxies[0].pid, "proxy.worker.worker")[0]
        await asyncio.to_thread(fill, address, PROBE_KEYS, PROBE_BYTES)
        await asyncio.to_thread(put_large, address)
        clients = await Clients.start(stack, address)
        await clients.tell(f"hold {WARM_CLIENTS}")
        base = resident(worker)
        await clients.tell(f"hold {scenario.clients}")
        held = resident(worker)
        probe, output = start_probe(address, scenario, cluster.directory)
        stack.push_async_callback(probe.stop)
        spans: list[Span] = []

        async def windows(spell: str) -> None:
            for _ in range(scenario.windows):
                spans.append(await watch(worker, spell, scenario.window_seconds))

        await asyncio.sleep(_WARM_SECONDS)
        begin, used = time.monotonic(), processes.cpu_seconds(worker)
        await windows(BEFORE)
        quiet_cpu = (processes.cpu_seconds(worker) - used) / (time.monotonic() - begin)
        await clients.tell(f"stick {scenario.stuck}")
        spans.append(await until_steady(worker, clients, quiet_cpu))
        await windows(BESIDE)
        left = await clients.tell("look")
        await clients.tell("drop")
        await asyncio.sleep(_WARM_SECONDS)
        await windows(AFTER)
        await probe.stop()
        if probe.status != 0:
            raise ClientsFailed(f"the probe ended with status {probe.status}:\n{probe.tail()}")
        requests = list(read(output))
        return Crowd(
            clients=scenario.clients,
            stuck=scenario.stuck,
            stuck_requests=left["requests"],
            stuck_left=left["stuck"],
            idle_left=left["idle"] - WARM_CLIENTS,
            base_bytes=base,
            held_bytes=held,
            most_bytes=most_resident(worker),
            limit_bytes=scenario.limit_bytes,
            windows=[Window.of(requests, span) for span in spans],
        )


def show(crowd: Crowd, scenario: Scenario, console: Console) -> None:
    """Print a row for each window, and the figures in sentences."""
    table = Table(
        title=f"{crowd.clients} clients, {crowd.stuck} of them stuck for a while; others' {scenario.rate:g} requests/s"
    )
    for heading in (
        "spell",
        "s",
        "worker MiB",
        "of the limits",
        "TCP MiB",
        "requests",
        "failed",
        "p50 ms",
        "p99 ms",
        "max ms",
    ):
        table.add_column(heading, justify="left" if heading == "spell" else "right")
    for at, window in enumerate(crowd.windows):
        table.add_row(
            window.spell,
            f"{window.seconds:.1f}",
            f"{window.worker_bytes / MIB:.1f}",
            f"{max(0, window.worker_bytes - crowd.held_bytes) / crowd.limit_bytes:.0%}",
            f"{window.kernel_bytes / MIB:.0f}",
            str(window.requests),
            str(window.failed),
            *(f"{figure:.2f}" for figure in (window.p50, window.p99, window.maximum)),
            end_section=at + 1 == len(crowd.windows) or crowd.windows[at + 1].spell != window.spell,
        )
    console.print(table)
    for line in crowd.describe():
        console.print(line, highlight=False)


def verdicts(crowd: Crowd) -> Sequence[goals.Verdict]:
    """Verdicts on the goals about clients."""
    return goals.judge([goal for goal in goals.GOALS if isinstance(goal.of, goals.Held)], (), (), crowd.values())


FULL = Scenario(10_000, 1_000, 5, 4.0, 1_000, 256 * MIB)
QUICK = Scenario(2_000, 200, 2, 1.0, 1_000, 64 * MIB)
"""A few seconds, to see that it works."""


def main(
    clients: Annotated[int, typer.Option(min=1, help="Clients held.")] = FULL.clients,
    stuck: Annotated[int, typer.Option(min=1, help="How many of them ask and never read, for a while.")] = FULL.stuck,
    windows: Annotated[int, typer.Option(min=1, help="Windows of each spell of the probe.")] = FULL.windows,
    window_seconds: Annotated[float, typer.Option(min=0.1, help="Length of a window.")] = FULL.window_seconds,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second of the probe.")] = FULL.rate,
    output_limit: Annotated[
        int, typer.Option(min=1, help="The proxy's sessions_limit_bytes, in MiB.")
    ] = FULL.output_limit // MIB,
    quick: Annotated[bool, typer.Option("--quick", help="Few clients, short windows: to see that it works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Memory of idle clients, and latency beside clients that never read."""
    console = report.console()
    scenario = QUICK if quick else Scenario(clients, stuck, windows, window_seconds, rate, output_limit * MIB)
    if scenario.stuck > scenario.clients:
        raise typer.BadParameter("--stuck is at most --clients")
    with report.failing(console, ClientsFailed, LoadFailed, processes.ProcessGone, ProcessError, OSError):
        crowd = asyncio.run(until_signal(measure(scenario)))
    if crowd is None:
        raise typer.Abort
    show(crowd, scenario, console)
    judged = verdicts(crowd)
    goals.show("the goals", judged, console)
    content = {
        "machine": report.machine(),
        "scenario": scenario,
        "crowd": crowd,
        "goals": [verdict.row() for verdict in judged],
    }
    console.print(f"saved as {report.save('clients', output, report.plain(content))}")


if __name__ == "__main__":
    typer.run(main)
