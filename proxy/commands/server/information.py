"""INFO: shows the proxy as if it were one Redis. The keyspace is the sum of all masters."""

import asyncio
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from proxy.commands import replies
from proxy.commands.arguments import mode
from proxy.commands.family import Family, Handler
from proxy.commands.server.latency import percentile, statistics
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session
from proxy.servers import everywhere
from slots import address as addresses
from slots.messages.questions import ClientCounts, WorkerCounters
from slots.reserved import RESERVED_KEYS
from slots.scripts import load

KEYSPACE = command(("INFO", "keyspace"))
OWN = "slotferry"
"""The name of the line that counts Slotferry's own keys in database 0."""
KEYSPACE_OF_CLIENTS = command(("EVAL", load("keyspace").text, len(RESERVED_KEYS), *RESERVED_KEYS, OWN))
MASTER_SECONDS = 1.0
"""Seconds to wait for a master. Clients ask for INFO when they connect, and wait for it."""
Fields = Mapping[str, object]


@dataclass
class Found:
    """Values asked for before the sections are written: the workers' counters, and the masters' keyspaces."""

    counters: Mapping[str, float]
    keyspaces: Mapping[str, bytes] = field(default_factory=dict)


NOT_BY_DEFAULT = ("commandstats", "latencystats")
EVERYTHING = {"all", "everything"}


class Information(Family):
    """The family's handler.

    Args:
        services: the worker's parts.
        versions: of the servers.
    """

    def __init__(self, services: Services, versions: ServerVersions) -> None:
        self._services = services
        self._versions = versions
        self._sections: dict[str, Callable[[Found], Awaitable[Fields]]] = {
            "Server": self._server,
            "Clients": self._clients,
            "Memory": self._memory,
            "Persistence": self._persistence,
            "Stats": self._stats,
            "Replication": self._replication,
            "CPU": self._cpu,
            "Modules": self._nothing,
            "Commandstats": self._commandstats,
            "Errorstats": self._nothing,
            "Latencystats": self._latencystats,
            "Cluster": self._cluster,
            "Keyspace": self._keyspace,
            "Slotferry": self._slotferry,
        }

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"INFO": self.info}

    async def info(self, session: Session, argv: list[bytes]) -> Outcome:
        """INFO [section ...]."""
        asked = {section.decode(errors="replace").lower() for section in argv[1:]}
        by_default = not asked or "default" in asked
        wanted = [
            name
            for name in self._sections
            if asked & {name.lower(), *EVERYTHING} or (by_default and name.lower() not in NOT_BY_DEFAULT)
        ]
        return await self._info(session, session.protocol, wanted)

    async def _info(self, session: Session, protocol: int, wanted: Collection[str]) -> bytes:
        counters: dict[str, float] = {}
        for question in (WorkerCounters(), ClientCounts()):
            for answer in await self._services.ask_all(question):
                for name, value in answer.items():
                    counters[name] = counters.get(name, 0) + value
        found = Found(counters)
        if {"Keyspace", "Slotferry"} & set(wanted):
            found.keyspaces = await self._ask_masters(session)
        sections = []
        for name in wanted:
            fields = await self._sections[name](found)
            sections.append(f"# {name}\r\n" + "".join(f"{field}:{value}\r\n" for field, value in fields.items()))
        return replies.verbatim("\r\n".join(sections), protocol)

    async def _ask_masters(self, session: Session) -> dict[str, bytes]:
        """Each master's keyspace; a master that takes too long is left out."""
        router = self._services.router

        async def ask(master: str) -> bytes:
            said = await everywhere.ask(router.shared(session, master), KEYSPACE_OF_CLIENTS)
            # Without scripts nothing moves.
            return (
                await everywhere.ask(router.shared(session, master), KEYSPACE) if said.startswith(b"-NOPERM") else said
            )

        work_time = router.loop.work_time
        asked = {master: asyncio.create_task(work_time.task(ask(master))) for master in self._services.masters()}
        if asked:
            _, late = await asyncio.wait(asked.values(), timeout=MASTER_SECONDS)
            for task in late:
                task.cancel()
        return {master: task.result() if task.done() else b"" for master, task in asked.items()}

    # -- sections ------------------------------------------------------------------------------------------

    async def _server(self, found: Found) -> Fields:
        now = time.time()
        uptime = int(now - self._services.started)
        settings = self._services.settings
        return {
            "redis_version": self._versions.lowest,
            "redis_mode": mode(settings),
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "arch_bits": 64 if sys.maxsize > 2**32 else 32,
            "process_id": os.getpid(),
            "tcp_port": addresses.split(settings.listen)[1] if settings.listen else 0,
            "server_time_usec": int(now * 1_000_000),
            "uptime_in_seconds": uptime,
            "uptime_in_days": uptime // 86400,
        }

    async def _clients(self, found: Found) -> Fields:
        settings = self._services.settings
        return {
            "connected_clients": int(found.counters.get("clients", 0)),
            "maxclients": settings.max_clients * settings.worker_count,
            "blocked_clients": int(found.counters.get("blocked", 0)),
            "tracking_clients": int(found.counters.get("tracking", 0)),
            "pubsub_clients": int(found.counters.get("subscribed", 0)),
            "held_requests": int(found.counters.get("held", 0)),
        }

    async def _memory(self, found: Found) -> Fields:
        used = int(found.counters.get("memory_bytes", 0))
        return {
            "used_memory": used,
            "used_memory_human": human(used),
            "used_memory_rss": used,
            "used_memory_rss_human": human(used),
            "maxmemory": 0,
            "maxmemory_human": "0B",
            "maxmemory_policy": "noeviction",
        }

    async def _persistence(self, found: Found) -> Fields:
        return {"loading": 0, "async_loading": 0, "rdb_bgsave_in_progress": 0, "aof_enabled": 0}

    async def _stats(self, found: Found) -> Fields:
        return {
            "total_connections_received": int(found.counters.get("connections", 0)),
            "total_commands_processed": int(found.counters.get("requests", 0)),
            "rejected_connections": int(found.counters.get("refused", 0)),
            "total_error_replies": int(found.counters.get("errors", 0)),
        }

    async def _replication(self, found: Found) -> Fields:
        return {
            "role": "master",
            "connected_slaves": 0,
            "master_failover_state": "no-failover",
            "master_repl_offset": 0,
        }

    async def _cpu(self, found: Found) -> Fields:
        return {"used_cpu_user": f"{found.counters.get('cpu_seconds', 0.0):.6f}"}

    async def _cluster(self, found: Found) -> Fields:
        return {"cluster_enabled": int(self._services.settings.cluster_mode)}

    async def _nothing(self, found: Found) -> Fields:
        return {}

    async def _commandstats(self, found: Found) -> Fields:
        return {
            f"cmdstat_{name}": f"calls={calls},usec={int(microseconds)},usec_per_call={microseconds / calls:.2f},"
            f"rejected_calls=0,failed_calls={errors}"
            for name, (calls, errors, microseconds, *_) in (await statistics(self._services.ask_all)).items()
        }

    async def _latencystats(self, found: Found) -> Fields:
        return {
            f"latency_percentiles_usec_{name}": ",".join(
                f"p{share:g}={percentile(statistic, share / 100):.3f}" for share in (50, 99, 99.9)
            )
            for name, statistic in (await statistics(self._services.ask_all)).items()
        }

    async def _keyspace(self, found: Found) -> Fields:
        """The sums. A master that does not answer is left out, and named in the section Slotferry."""
        return sum_keyspaces(found.keyspaces.values())

    async def _slotferry(self, found: Found) -> Fields:
        silent = [
            address for address, reply in found.keyspaces.items() if not reply or everywhere.unheard(address, reply)
        ]
        return {
            **self._services.describe(),
            "masters": len(found.keyspaces),
            "masters_without_answer": len(silent),
            "masters_without_answer_names": ",".join(silent),
        }


def sum_keyspaces(answers: Iterable[bytes]) -> dict[str, str]:
    """The section Keyspace of several servers as one: numbers are summed, and the average TTL is over all keys.

    Slotferry's own keys are not counted.
    """
    total: dict[int, list[int]] = {}
    for answer in answers:
        for line in answer.decode(errors="replace").splitlines():
            name, _, values = line.partition(":")
            if name == OWN:
                total.setdefault(0, [0, 0, 0])[0] -= int(values)
            if name.startswith("db") and name[2:].isdigit():
                found = {key: int(value) for key, _, value in (part.partition("=") for part in values.split(","))}
                keys, expires = found.get("keys", 0), found.get("expires", 0)
                database = total.setdefault(int(name[2:]), [0, 0, 0])
                database[0] += keys
                database[1] += expires
                database[2] += found.get("avg_ttl", 0) * expires
    return {
        f"db{number}": f"keys={keys},expires={expires},avg_ttl={ttls // expires if expires else 0}"
        for number, (keys, expires, ttls) in sorted(total.items())
        if keys > 0
    }


def human(size: int) -> str:
    """A number of bytes as Redis shows it to a person."""
    value: float = size
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{size}B" if unit == "B" else f"{value:.2f}{unit}"
        value /= 1024
    return f"{value:.2f}T"
