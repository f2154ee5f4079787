"""Starts the programs that a load is sent through, side by side: nothing, twemproxy, HAProxy, and proxies of Slotferry.

Each peer gets as much as one worker of Slotferry: one thread that carries requests, in front of the same kind and
number of Redis servers. A program that is not installed is left out, with a note.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.plan import AGAIN, PEERS, TWO_WORKERS
from benchmarks.processes import running
from benchmarks.report import version
from benchmarks.samples import PROXY
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess, free_ports, until
from slotferry.redis_server import HOST, ask, find_binary, start_redis

VARIANTS: dict[str, dict[str, Any]] = {
    "slotferry": {"workers": 1},
    TWO_WORKERS: {"workers": 2},
    AGAIN: {"workers": 1},
}
"""Slotferry's proxies and their settings. One is there twice, to show how much two equal ones differ."""
NAMES = tuple(dict.fromkeys((*PEERS, *VARIANTS)))
"""All targets, in the order of their turns."""
SERVERS = 2
"""Redis servers behind each target."""
START_SECONDS = 10.0

_TWEMPROXY = """\
pool:
  listen: {address}
  redis: true
  preconnect: true
  servers:
{servers}
"""
# Hash and distribution are twemproxy's defaults, fnv1a_64 and ketama. One connection to each server is also its
# default.
_TWEMPROXY_SERVER = "   - {server}:1"

_HAPROXY = """\
global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen redis
  bind {address}
  balance roundrobin
{servers}
"""
_HAPROXY_SERVER = "  server redis{number} {server}"


@dataclass(frozen=True)
class Target:
    """A place to send a load to, and the process ids, by role, whose CPU time the load costs."""

    name: str
    address: str
    version: str
    servers: Sequence[str]
    processes: Mapping[str, Sequence[int]] = field(default_factory=dict)


def installed(name: str) -> str | None:
    """Path of a peer's program, or None. Debian installs both for root only, in /usr/sbin."""
    program = {"twemproxy": "nutcracker", "haproxy": "haproxy"}[name]
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def direct(server: str, server_version: str) -> Target:
    """One of the servers itself: the limit of the load and of the server with nothing in between."""
    return Target("direct", server, server_version, [server])


async def start_twemproxy(stack: AsyncExitStack, program: str, directory: Path, servers: Sequence[str]) -> Target:
    """Start twemproxy in front of ``servers``; it ends with ``stack``. Raises ProcessError."""
    port, statistics_port = free_ports(2)
    address = f"{HOST}:{port}"
    configuration = directory / "twemproxy.yml"
    lines = "\n".join(_TWEMPROXY_SERVER.format(server=server) for server in servers)
    configuration.write_text(_TWEMPROXY.format(address=address, servers=lines))
    arguments = [
        *(program, "--conf-file", str(configuration), "--stats-port", str(statistics_port), "--stats-addr", HOST),
        *("--pid-file", str(directory / "twemproxy.pid"), "--output", str(directory / "twemproxy.log")),
    ]
    process = await _start(stack, ManagedProcess("twemproxy", arguments, directory / "twemproxy.log"), address)
    return Target("twemproxy", address, version(program, "--version"), servers, {PROXY: [process.pid]})


async def start_haproxy(stack: AsyncExitStack, program: str, directory: Path, servers: Sequence[str]) -> Target:
    """Start HAProxy in front of ``servers``, whole connections in turn; it ends with ``stack``. Raises ProcessError."""
    address = f"{HOST}:{free_ports(1)[0]}"
    configuration = directory / "haproxy.cfg"
    lines = "\n".join(_HAPROXY_SERVER.format(number=n, server=server) for n, server in enumerate(servers, 1))
    configuration.write_text(_HAPROXY.format(address=address, servers=lines))
    # -db: in the foreground and without a master process, so that this process does the work.
    arguments = [program, "-db", "-f", str(configuration)]
    process = await _start(stack, ManagedProcess("haproxy", arguments, directory / "haproxy.log"), address)
    return Target("haproxy", address, version(program, "-v"), servers, {PROXY: [process.pid]})


async def _start(stack: AsyncExitStack, process: ManagedProcess, address: str) -> ManagedProcess:
    async def answers() -> bool:
        return (await ask(address, "GET", "slotferry:ready")).startswith("$")

    stack.push_async_callback(process.stop)
    process.start()
    await until(answers, f"{process.name} at {address}", START_SECONDS, [process])
    return process


async def start_slotferry(stack: AsyncExitStack, names: Sequence[str]) -> list[Target]:
    """Start a cluster with one proxy for each name; it ends with ``stack``. Raises ProcessError.

    They share topom and servers, so that only their settings differ.
    """
    cluster = await stack.enter_async_context(LocalCluster(groups=SERVERS, proxies=0))
    addresses = [group[0] for group in cluster.groups.values()]
    targets = []
    for name in names:
        settings = VARIANTS[name]
        address = await cluster.add_proxy(settings)
        proxy = cluster.proxies[-1]

        async def complete(supervisor: int = proxy.pid, workers: int = settings["workers"]) -> bool:
            return len(running(supervisor, "proxy.worker.worker")) == workers

        await until(complete, f"all workers of {name}", START_SECONDS, [proxy])
        supervisor = proxy.pid
        roles = {
            PROXY: running(supervisor, "proxy.worker.worker"),
            "supervisor": [supervisor],
            "topom": [cluster.topom.pid],
        }
        described = ", ".join(f"{setting}: {value}" for setting, value in settings.items())
        targets.append(Target(name, address, described, addresses, roles))
    return targets


async def start(stack: AsyncExitStack, names: Sequence[str], console: Console) -> list[Target]:
    """Start the programs of ``names`` that are installed; all end with ``stack``. Raises ProcessError."""
    binary = find_binary()
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slotferry-benchmark-")))
    servers = []
    for number in range(1, SERVERS + 1):
        server = await start_redis(f"redis-{number}", directory, binary=binary)
        stack.push_async_callback(server.stop)
        servers.append(server.address)
    targets = []
    for name in (name for name in PEERS if name in names and name not in VARIANTS):
        if name == "direct":
            targets.append(direct(servers[0], version(binary, "--version")))
        elif (program := installed(name)) is None:
            console.print(f"[yellow]{name} is left out: it is not installed[/yellow]")
        elif name == "twemproxy":
            targets.append(await start_twemproxy(stack, program, directory, servers))
        else:
            targets.append(await start_haproxy(stack, program, directory, servers))
    variants = [name for name in VARIANTS if name in names]
    return targets + (await start_slotferry(stack, variants) if variants else [])
