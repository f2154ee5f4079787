"""Many clients at once: memory of an idle one, and what clients that never read cost the others.

    python -m benchmarks.clients [--clients 10000] [--stuck 1000]

One worker of the proxy before two groups. First so many clients connect, ask for one key and stay; the worker's memory
is read before and after. Then a probe asks for small values, in three spells: alone, while the stuck clients ask for
large values over and over without reading a reply, and alone again. Printed are the worker's memory, and the probe's
latencies beside those of the spells around it, because the machine makes noise of its own.
"""

import asyncio
import os
import resource
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.load import LoadFailed, fill, get_request, key, set_request
from benchmarks.probe import Kind, read
from cli.local import LocalCluster
from cli.processes import ProcessError
from cli.signals import until_signal

WARM_CLIENTS = 200
"""Connected before memory is read the first time, so that what is only made once is there."""
PROBE_KEYS = 1000
PROBE_BYTES = 64
LARGE_BYTES = 16384
STUCK_REQUESTS = 64
"""Requests for a large value that a stuck client sends at a time."""
DESCRIPTORS_BESIDE = 500


class ClientsFailed(RuntimeError):
    """The system does not allow so many connections, or the proxy refused one."""


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files, and that of what it starts. Raises ClientsFailed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < wanted:
        raise ClientsFailed(f"{wanted} open files are needed, and the system allows {most}: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def connect(address: str, count: int) -> list[socket.socket]:
    """Clients that have had one reply each. Raises ClientsFailed."""
    host, _, port = address.rpartition(":")
    clients: list[socket.socket] = []
    for _ in range(count):
        client = socket.create_connection((host, int(port)), 10)
        client.sendall(get_request(key(0)))
        if not client.recv(1024).startswith(b"$"):
            raise ClientsFailed(f"the proxy refused client {len(clients) + 1} of {count}")
        clients.append(client)
    return clients


def put_large(address: str) -> None:
    """Set the large value."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(set_request(b"large", b"x" * LARGE_BYTES))
        client.recv(64)


class Stuck:
    """Clients that ask for large values and read nothing, as fast as the proxy takes their requests."""

    def __init__(self, clients: list[socket.socket]) -> None:
        self._selector = selectors.DefaultSelector()
        self._request = get_request(b"large") * STUCK_REQUESTS
        self.open = len(clients)
        for client in clients:
            client.setblocking(False)
            self._selector.register(client, selectors.EVENT_WRITE)

    def push(self, seconds: float) -> None:
        """Send what can be sent for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for ready, _ in self._selector.select(0.05):
                client: Any = ready.fileobj
                try:
                    client.send(self._request)
                except BlockingIOError:
                    continue
                except OSError:
                    # The proxy has closed it: one of the limits.
                    self._selector.unregister(client)
                    self.open -= 1
            time.sleep(0.01)


async def spell(address: str, directory: Path, name: str, seconds: float, rate: float) -> dict[str, float]:
    """Latencies of a probe over so many seconds, in milliseconds."""
    output = directory / f"{name}.times"
    arguments = [
        *(sys.executable, "-m", "benchmarks.probe", address, "--output", str(output), "--keys", str(PROBE_KEYS)),
        *("--value-bytes", str(PROBE_BYTES), "--rate", str(rate), "--connections", "16", "--limit", str(seconds)),
    ]
    process = await asyncio.create_subprocess_exec(*arguments)
    await process.wait()
    requests = list(read(output))
    answered = sorted(1e3 * request.seconds for request in requests if request.kind is Kind.ANSWERED)
    if not answered:
        raise ClientsFailed("the probe had no reply at all")
    return {
        "requests": len(requests),
        "failed": len(requests) - len(answered),
        **{f"p{percent:g}": processes.percentile(answered, percent) for percent in (50, 99, 99.9)},
        "max": answered[-1],
    }


async def benchmark(clients: int, stuck: int, seconds: float, rate: float, console: Console) -> dict[str, Any]:
    """Start a cluster, measure, and give the figures."""
    allow_descriptors(2 * clients + stuck + DESCRIPTORS_BESIDE)
    os.environ["SLOTFERRY_PROXY_MAX_CLIENTS"] = str(clients + stuck + DESCRIPTORS_BESIDE)
    with tempfile.TemporaryDirectory(prefix="slotferry-benchmark-") as name:
        directory = Path(name)
        async with LocalCluster(groups=2, proxies=1, workers=1) as cluster:
            address = cluster.proxy_addresses[0]
            worker = processes.running(cluster.proxies[0].pid, "proxy.worker")[0]
            await asyncio.to_thread(fill, address, PROBE_KEYS, PROBE_BYTES)
            await asyncio.to_thread(put_large, address)
            warm = await asyncio.to_thread(connect, address, WARM_CLIENTS)
            before = resident(worker)
            idle = await asyncio.to_thread(connect, address, clients)
            held = resident(worker)
            spells = {"alone": await spell(address, directory, "alone", seconds, rate)}
            jammed = Stuck(await asyncio.to_thread(connect, address, stuck))
            pushing = asyncio.create_task(asyncio.to_thread(jammed.push, seconds))
            spells["beside the stuck"] = await spell(address, directory, "beside", seconds, rate)
            await pushing
            most = resident(worker)
            for client in (*warm, *idle):
                client.close()
            spells["afterwards"] = await spell(address, directory, "after", seconds, rate)
    console.print(f"an idle client costs {(held - before) / clients / 1024:.2f} KiB (of {clients})")
    console.print(
        f"the worker has {held / 2**20:.0f} MiB with the idle clients, {most / 2**20:.0f} MiB beside {stuck} stuck "
        f"ones, of which {jammed.open} are still connected"
    )
    table = Table(title=f"a probe of {rate:g} requests/s, milliseconds")
    for heading in ("spell", "requests", "failed", "p50", "p99", "p99.9", "max"):
        table.add_column(heading, justify="left" if heading == "spell" else "right")
    for spell_name, figures in spells.items():
        counts = [f"{figures[name]:.0f}" for name in ("requests", "failed")]
        times = [f"{figures[name]:.2f}" for name in ("p50", "p99", "p99.9", "max")]
        table.add_row(spell_name, *counts, *times)
    console.print(table)
    return {
        "clients": clients,
        "stuck": stuck,
        "bytes_a_client": (held - before) / clients,
        "worker_bytes": {"before": before, "held": held, "beside the stuck": most},
        "stuck_still_connected": jammed.open,
        "spells": spells,
    }


def main(
    clients: Annotated[int, typer.Option(min=1, help="Idle clients held.")] = 10_000,
    stuck: Annotated[int, typer.Option(min=1, help="Clients that ask and never read.")] = 1_000,
    seconds: Annotated[float, typer.Option(min=1, help="Length of each spell of the probe.")] = 10,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second of the probe.")] = 1_000,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Memory of idle clients, and latency beside clients that never read."""
    console = Console() if sys.stdout.isatty() else Console(width=report.TABLE_WIDTH)
    try:
        figures = asyncio.run(until_signal(benchmark(clients, stuck, seconds, rate, console)))
    except (ClientsFailed, LoadFailed, processes.ProcessGone, ProcessError, OSError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None
    if figures is None:
        raise typer.Abort
    path = report.save("clients", output, {"machine": report.machine(), **figures})
    console.print(f"saved as {path}")


if __name__ == "__main__":
    typer.run(main)
