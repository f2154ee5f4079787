"""The programs that a load is sent through, side by side: nothing, twemproxy, HAProxy, and Slotferry's proxy.

Each peer gets as much as one worker of Slotferry: one thread that carries requests, in front of the same kind
and number of Redis servers. What is not installed is left out, with a note.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import running
from benchmarks.report import version
from cli.local import LocalCluster
from cli.processes import ManagedProcess, free_ports, until
from cli.redis_server import HOST, ask

NAMES = ("direct", "twemproxy", "haproxy", "slotferry")
"""Every target there is, in the order in which they take turns."""
PROXY = "proxy"
"""The role of the processes that requests pass through; what they use is what a request is said to cost."""
START_SECONDS = 10.0

_TWEMPROXY = """\
pool:
  listen: {address}
  redis: true
  preconnect: true
  servers:
{servers}
"""
# Hash and distribution are twemproxy's defaults, fnv1a_64 and ketama; so is one connection to each server.
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
    """Where a load can be sent, and the process ids, by role, whose CPU time it costs."""

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
    """One of the servers itself: what the load and the server allow when nothing is in between."""
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
    # -db: in the foreground and without a master process, so that this process is the one that works.
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


async def start_slotferry(stack: AsyncExitStack, servers: int, workers: int) -> Target:
    """Start a cluster of as many groups of one server, with one proxy; it ends with ``stack``. Raises ProcessError."""
    cluster = await stack.enter_async_context(LocalCluster(groups=servers, proxies=1, workers=workers))
    supervisor = cluster.proxies[0].pid
    processes = {PROXY: running(supervisor, "proxy.worker"), "supervisor": [supervisor], "topom": [cluster.topom.pid]}
    addresses = [group[0] for group in cluster.groups.values()]
    return Target("slotferry", cluster.proxy_addresses[0], f"{workers} worker(s)", addresses, processes)
