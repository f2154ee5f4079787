"""A whole throw-away cluster on this machine: Redis servers as groups, topom, proxies.

The command ``slotferry local``, the demo, the tests and the benchmarks use it. All are real processes. They are started
as ``python -m slotferry topom`` and ``python -m slotferry proxy`` with their settings in the environment, as elsewhere.
All files are in one temporary folder. :meth:`LocalCluster.stop` ends every process and removes the folder, even after a
failed start. The folder of a cluster that was killed is removed by the next one (:mod:`slotferry.folders`).
"""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slotferry.calls import TopomUnreachable
from slotferry.client import TopomClient
from slotferry.folders import Folder
from slotferry.processes import STOP_SECONDS, ManagedProcess, ProcessError, free_ports, port_taken, until
from slotferry.redis_server import HOST, RedisServer, ask, find_binary, start_redis
from slots.python import PYTHON
from slots.ranges import show

READY_SECONDS = 60.0
"""How long topom, and each proxy, may take until it serves."""
END_SECONDS = 1.3
"""How long the proxies, then topom, then the servers may take to end before they are killed, when a person waits for
it. Together that is less than five seconds."""
_PROBES = 16
_SOURCE = Path(__file__).resolve().parent.parent


def environment_of(prefix: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a child with these settings: ours, without any setting of Slotferry's own.

    Lists are separated by commas, other values are in JSON.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTFERRY_")}
    # The child finds the same packages, installed or in a checkout.
    paths = [str(_SOURCE), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    for name, value in settings.items():
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        environment[f"{prefix}{name.upper()}"] = value if isinstance(value, str) else json.dumps(value)
    return environment


def spread(number_of_slots: int, group_ids: Sequence[int]) -> dict[int, range]:
    """Lay slots out in ascending ranges over groups, as evenly as possible."""
    size, more = divmod(number_of_slots, len(group_ids))
    found: dict[int, range] = {}
    start = 0
    for index, group_id in enumerate(group_ids):
        end = start + size + (index < more)
        found[group_id] = range(start, end)
        start = end
    return found


class LocalCluster:
    """A cluster that runs while the ``async with`` block runs.

    Attributes:
        topom_url: address of topom's API, ``http://host:port``.
        token: the API's bearer token.
        proxy_addresses: ``host:port`` of each proxy.
        groups: ``host:port`` of the servers of each group, the master first.
        servers: the Redis servers of each group, as processes.
        topom: topom's process.
        proxies: the proxies' processes, in the order of their addresses.
        killed: names of the processes that did not end in time when the cluster was last stopped.
    """

    def __init__(
        self,
        groups: int = 2,
        proxies: int = 1,
        workers: int = 1,
        databases: int = 16,
        port: int = 0,
        *,
        slots_on: Sequence[int] | None = None,
        number_of_slots: int = 1024,
        topom_settings: Mapping[str, Any] | None = None,
        proxy_settings: Mapping[str, Any] | None = None,
        redis_arguments: Sequence[str] = (),
        end_seconds: float = STOP_SECONDS,
    ) -> None:
        """
        Args:
            groups: how many groups of one server each; their ids count from 1.
            proxies: how many proxies.
            workers: worker processes of each proxy.
            databases: databases of each server.
            port: the first proxy's port, the others' follow it; 0 takes any free ones.
            slots_on: the groups that the slots are spread over; all of them when None, an empty list for none.
            number_of_slots: slots of the product, a power of two up to 16384.
            topom_settings: more settings of topom, by the names of TopomSettings' fields. With TLS, the environment
                has the certificates for clients (:mod:`slots.topomtls`).
            proxy_settings: more settings of every proxy, by the names of ProxySettings' fields.
            redis_arguments: more arguments for every Redis server's command line.
            end_seconds: how long the proxies, then topom, then the servers may take to end, before they are killed.
        """
        self.token = secrets.token_hex(16)
        self.topom_url = ""
        self.proxy_addresses: list[str] = []
        self.groups: dict[int, list[str]] = {}
        self.servers: dict[int, list[RedisServer]] = {}
        self.proxies: list[ManagedProcess] = []
        self.killed: list[str] = []
        self._topom: ManagedProcess | None = None
        self._folder: Folder | None = None
        self._group_count = groups
        self._proxy_count = proxies
        self._workers = workers
        self._databases = databases
        self._port = port
        self._slots_on = list(range(1, groups + 1)) if slots_on is None else list(slots_on)
        self._number_of_slots = number_of_slots
        self._topom_settings = dict(topom_settings or {})
        self._proxy_settings = dict(proxy_settings or {})
        self._redis_arguments = tuple(redis_arguments)
        self._end_seconds = end_seconds

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def directory(self) -> Path:
        """The temporary folder with logs and topom's store."""
        if self._folder is None:
            raise ProcessError("the cluster is not running; enter it with `async with`")
        return self._folder.path

    @property
    def topom(self) -> ManagedProcess:
        """topom's process."""
        if self._topom is None:
            raise ProcessError("the cluster has no topom; enter it with `async with`")
        return self._topom

    @property
    def processes(self) -> list[ManagedProcess]:
        """Every process that was started, in the order of starting."""
        servers = [server for group in self.servers.values() for server in group]
        return [*servers, *([self._topom] if self._topom else []), *self.proxies]

    def client(self) -> TopomClient:
        """A new client of topom's API; the caller closes it."""
        return TopomClient(self.topom_url, self.token)

    @property
    def page_url(self) -> str:
        """topom's page, for somebody who is logged in by it: a browser tells nobody what stands behind the ``#``."""
        return f"{self.topom_url}/#token={self.token}"

    def describe(self) -> dict[str, Any]:
        """The output of ``slotferry local``: all addresses."""
        return {
            "page": self.page_url,
            "topom": self.topom_url,
            "token": self.token,
            "proxies": list(self.proxy_addresses),
            "groups": {str(group_id): list(servers) for group_id, servers in self.groups.items()},
        }

    async def start(self) -> None:
        """Start everything and wait until it serves.

        Raises:
            ProcessError: with the tail of the failed process's log; processes that were started are ended again.
        """
        if self._folder is not None:
            raise ProcessError("the cluster runs already")
        self._folder = Folder.made()
        try:
            await self._start_servers()
            await self._start_topom()
            await self._lay_out()
            for _ in range(self._proxy_count):
                self._start_proxy({})
            await self.ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End every process, proxies first, and remove the folder. Harmless when nothing runs."""
        servers = [server for group in self.servers.values() for server in group]
        self.killed = []
        try:
            # bounded: each kind has its time, whatever one of them waits for.
            for kind in (self.proxies, [self._topom] if self._topom else [], servers):
                await asyncio.gather(*(self._end(process) for process in kind))
        finally:
            # If the stop was cancelled, the remaining processes are ended at once.
            for process in self.processes:
                await process.kill(family=True)
            self.servers.clear()
            self.groups.clear()
            self.proxies.clear()
            self.proxy_addresses.clear()
            self._topom = None
            if self._folder is not None:
                self._folder.remove()
                self._folder = None

    async def _end(self, process: ManagedProcess) -> None:
        ran = process.running
        if await process.stop(self._end_seconds) == -signal.SIGKILL and ran:
            self.killed.append(process.name)

    async def add_server(self, group_id: int, arguments: Sequence[str] | None = None) -> RedisServer:
        """Start one more Redis server and note it as a server of a group; topom is not told.

        Args:
            group_id: of the group.
            arguments: more arguments for its command line; the cluster's ``redis_arguments`` when None.
        """
        binary = find_binary()
        servers = self.servers.setdefault(group_id, [])
        name = f"redis-{group_id}" if not servers else f"redis-{group_id}-{len(servers)}"
        server = await start_redis(
            name,
            self.directory,
            binary=binary,
            databases=self._databases,
            extra=self._redis_arguments if arguments is None else arguments,
            end_seconds=self._end_seconds,
        )
        servers.append(server)
        self.groups.setdefault(group_id, []).append(server.address)
        return server

    async def add_proxy(self, settings: Mapping[str, Any] | None = None) -> str:
        """Start one more proxy, wait until it serves, and give its address. ``settings`` win over the cluster's."""
        self._start_proxy(settings or {})
        await self.ready()
        return self.proxy_addresses[-1]

    @property
    def _scheme(self) -> str:
        return "https" if self._topom_settings.get("tls_certificate") else "http"

    def _command(self, process: str) -> list[str]:
        """The command line of a ``topom`` or a ``proxy``."""
        return [*PYTHON, "-m", "slotferry", process]

    async def _start_servers(self) -> None:
        for group_id in range(1, self._group_count + 1):
            await self.add_server(group_id)

    async def _start_topom(self) -> None:
        port = free_ports(1)[0]
        settings = {
            "listen": f"{HOST}:{port}",
            "product": "local",
            "token": self.token,
            "data": str(self.directory / "topom"),
            "number_of_slots": self._number_of_slots,
            "databases": self._databases,
            **self._topom_settings,
        }
        self._topom = ManagedProcess(
            "topom",
            self._command("topom"),
            self.directory / "topom.log",
            environment_of("SLOTFERRY_TOPOM_", settings),
        )
        self.topom_url = f"{self._scheme}://{HOST}:{port}"
        self._topom.start()
        await self.topom_ready()

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        index = len(self.proxies)
        port = self._port + index if self._port else free_ports(1)[0]
        if self._port and (why := port_taken(port, HOST)):
            raise ProcessError(f"port {port} of {HOST} {why}; choose another first port with --port, or 0 for any")
        settings = {
            "listen": f"{HOST}:{port}",
            "topom": [self.topom_url],
            "token": self.token,
            "workers": self._workers,
            "metrics": "",
            "drain_seconds": min(2.0, self._end_seconds / 2),
            "drain_last_seconds": min(5.0, self._end_seconds / 4),
            **self._proxy_settings,
            **own_settings,
        }
        name = f"proxy-{index + 1}"
        process = ManagedProcess(
            name,
            self._command("proxy"),
            self.directory / f"{name}.log",
            environment_of("SLOTFERRY_PROXY_", settings),
        )
        process.start()
        self.proxies.append(process)
        self.proxy_addresses.append(f"{HOST}:{port}")

    async def _lay_out(self) -> None:
        async with self.client() as topom:
            for group_id, servers in self.groups.items():
                # They have answered already; on a slow computer the next answer may take longer than topom waits.
                await topom.add_group(group_id, servers, offline_ok=True)
            if self._slots_on:
                for group_id, slots in spread(self._number_of_slots, self._slots_on).items():
                    await topom.assign_slots(show(slots), group_id)

    async def topom_ready(self) -> None:
        """Wait until topom answers, for example after it was killed and started again."""
        async with self.client() as topom:
            await until(topom.healthy, f"topom at {self.topom_url}", READY_SECONDS, [self.topom])

    async def ready(self) -> None:
        """Wait until every running proxy serves, by the table that topom has now.

        Raises:
            ProcessError: with the tail of the log of the process that failed.
        """
        running = [(p, a) for p, a in zip(self.proxies, self.proxy_addresses, strict=True) if p.running]
        if len(running) < len(self.proxies):
            ended = next(process for process in self.proxies if not process.running)
            raise ProcessError(f"{ended.name} ended with status {ended.status}; its log ends:\n{ended.tail()}")
        await self.topom_ready()
        async with self.client() as topom:

            async def registered() -> bool:
                try:
                    status = await topom.status()
                except TopomUnreachable:
                    return False
                current = {
                    proxy["address"]
                    for proxy in status["proxies"]
                    if proxy["state"] == "online" and proxy["epoch"] >= status["epoch"]
                }
                return current.issuperset(address for _, address in running)

            await until(
                registered,
                "the proxies to have topom's slot table",
                READY_SECONDS,
                [self.topom, *(process for process, _ in running)],
            )
        for process, address in running:
            await until(
                lambda address=address: self._serves(address),  # type: ignore[misc]
                f"{process.name} at {address} to serve",
                READY_SECONDS,
                [process],
            )

    async def _serves(self, address: str) -> bool:
        # The reply is -NOAUTH if clients have to log in.
        if not (await ask(address, "PING")).startswith(("+PONG", "-NOAUTH")):
            return False
        if not self._slots_on:
            return True
        # So many keys that a slot of each group is likely among them.
        replies = [await ask(address, "GET", f"slotferry:ready:{number}") for number in range(_PROBES)]
        return all(reply.startswith(("$", "_", "-NOAUTH")) for reply in replies)
