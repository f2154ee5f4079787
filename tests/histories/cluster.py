"""The cluster of a run: real processes, servers that keep what they acknowledged, and relays before all that may fail.

topom and the proxies know the servers by their relays' addresses, so whatever moves goes through one. Limits are
short, so that much happens in a short run: a pause of some seconds is longer than a lease.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from slotferry.local import LocalCluster
from slotferry.redis_server import RedisServer, start_redis
from tests.histories.relay import Relay
from tests.integration.cluster.harness import Cluster, eventually, plain_client

PROXIES = 2
WORKERS = 2
GROUPS = 3
SLOTS = 128
BALLAST = 600
"""Keys that no client touches, so that only the migrator moves them and slots are on their way for a while."""
BALLAST_DATABASE = 3
REST_SECONDS = 90.0
"""How long slots may take to come to rest once nothing fails any more."""

HOT_USER = "hot"
"""Name and password of the user with ``cached_reads``."""
TOPOM_SETTINGS = {
    "heartbeat_seconds": 0.3,
    "proxy_lease_seconds": 1.5,
    "barrier_seconds": 1.5,
    "migration_keys_per_second": 800,
}
PROXY_SETTINGS: dict[str, Any] = {
    "backend_reply_seconds": 2.0,
    "lock_hold_seconds": 3.0,
    "move_seconds": 1.0,
    "backend_retry_seconds_max": 0.5,
    "drain_seconds": 3.0,
    "users": json.dumps(
        [
            {"name": "default", "no_password": True},
            {"name": HOT_USER, "password": HOT_USER, "cached_reads": True},
        ]
    ),
}
# A copy by the replication stream is not to wait for replicas that might come.
PROMPT = ("--repl-diskless-sync-delay", "0")
# An acknowledged write is in the file, which outlives the process, so a server that was killed has it again.
REDIS_ARGUMENTS = (
    *("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"),
    *PROMPT,
)


class NotAtRest(AssertionError):
    """Slots did not come to rest though nothing fails any more."""


class HistoriesCluster(Cluster):
    """A cluster with relays, whose processes may be started by a launcher with a planted fault.

    Args:
        planted: name of a fault of :mod:`tests.histories.planted`, or "" for none.
        way: how slots move.
    """

    def __init__(self, planted: str = "", way: str = "keys") -> None:
        super().__init__(
            groups=GROUPS,
            proxies=PROXIES,
            workers=WORKERS,
            number_of_slots=SLOTS,
            patient=False,
            topom_settings={**TOPOM_SETTINGS, "migration_way": way},
            proxy_settings=PROXY_SETTINGS,
            redis_arguments=REDIS_ARGUMENTS,
        )
        self.planted = planted
        self.way = way
        self.server_links: list[Relay] = []
        """The servers' relays, by group."""
        self.control_links: list[Relay] = []
        """The proxies' relays to topom."""
        self.replicas: list[RedisServer] = []
        """By group, if there are any. They do not fail by themselves, and no client reads from them."""
        self.replica_links: list[Relay] = []
        """Their relays."""

    @property
    def redis_servers(self) -> list[RedisServer]:
        """The servers, by group."""
        return [self.servers[group][0] for group in sorted(self.servers)]

    def server_pids(self) -> list[int]:
        """The servers' processes, by group; 0 for one that does not run."""
        return [server.pid if server.running else 0 for server in self.redis_servers]

    async def stop(self) -> None:
        """End everything."""
        self.resume_all()
        try:
            await super().stop()
        finally:
            for replica in self.replicas:
                await replica.stop()
            self.replicas.clear()
            for link in (*self.server_links, *self.replica_links, *self.control_links):
                await link.stop()
            self.server_links.clear()
            self.replica_links.clear()
            self.control_links.clear()

    async def add_server(self, group_id: int) -> RedisServer:
        """A server and its relay; the group has the relay's address."""
        server = await super().add_server(group_id)
        link = await Relay(server.address).accept()
        self.server_links.append(link)
        self.groups[group_id][-1] = link.address
        return server

    async def _lay_out(self) -> None:
        await super()._lay_out()
        for _ in range(PROXIES):
            self.control_links.append(await Relay(self.topom_url.removeprefix("http://")).accept())

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        link = self.control_links[len(self.proxies)]
        super()._start_proxy({"topom": [f"http://{link.address}"], **own_settings})

    def _command(self, process: str) -> list[str]:
        if not self.planted:
            return super()._command(process)
        if process == "proxy" and not self.proxies:
            process = "first-proxy"
        return [sys.executable, "-m", "tests.histories.launcher", self.planted, process]

    async def add_replicas(self) -> None:
        """Give each group a replica, which follows the master by its relay, and has a relay of its own."""
        for group, link in zip(sorted(self.servers), self.server_links, strict=True):
            replica = await start_redis(f"replica-{group}", self.directory, extra=REDIS_ARGUMENTS)
            self.replicas.append(replica)
            own = await Relay(replica.address).accept()
            self.replica_links.append(own)
            async with plain_client(replica.address) as client:
                await client.replicaof(*link.address.split(":"))
            await self.api.add_server(group, own.address)

    def resume_all(self) -> None:
        """Let every process that was stopped run on; replicas, too: one may have been a master then."""
        super().resume_all()
        for replica in self.replicas:
            if replica.running:
                os.kill(replica.pid, signal.SIGCONT)

    async def look_for_masters(self) -> None:
        """Take each group's master for the master: it changes places with the replica if topom says so."""
        if not self.replicas:
            return
        for place, group in enumerate(await self.api.groups()):
            if group["servers"][0]["address"] != self.replica_links[place].address:
                continue
            servers, addresses = self.servers[group["id"]], self.groups[group["id"]]
            links, others = self.server_links, self.replica_links
            links[place], others[place] = others[place], links[place]
            servers[0], self.replicas[place] = self.replicas[place], servers[0]
            addresses[0] = links[place].address

    # Ballast

    async def load(self) -> None:
        """Write the keys that no client touches."""
        async with plain_client(self.proxy_addresses[0], db=BALLAST_DATABASE) as client:
            for number in range(0, BALLAST, 200):
                await client.mset({f"ballast:{n}": f"value {n}" for n in range(number, number + 200)})

    async def lost_ballast(self, is_excused: Callable[[str], bool]) -> list[str]:
        """Keys of the ballast that are not as they were written and not excused, in words."""
        names = [f"ballast:{number}" for number in range(BALLAST)]
        async with plain_client(self.proxy_addresses[0], db=BALLAST_DATABASE) as client:
            values = await client.mget(names)
        return [
            f"{name}, which no client touches, is {value!r}"
            for number, (name, value) in enumerate(zip(names, values, strict=True))
            if value != f"value {number}".encode() and not is_excused(name)
        ]

    # Rest

    async def heal(self) -> None:
        """Nothing is stopped, cut, held up or dead any more. Waits until all serve again."""
        self.resume_all()
        for link in (*self.server_links, *self.replica_links, *self.control_links):
            link.release()
            await link.accept()
        for process in (*self.processes, *self.replicas):
            if not process.running:
                process.start()
        for server in (*self.redis_servers, *self.replicas):
            await server.ready()
            async with plain_client(server.address) as client:
                await client.config_set("maxmemory", 0)
        await self.topom_ready()
        await eventually(self.look_for_masters, lambda _: True, "topom to name the masters")

    async def rest(self) -> None:
        """Wait until every proxy is at topom's epoch and no slot is on its way.

        Raises:
            NotAtRest: after :data:`REST_SECONDS`, with what topom says.
        """
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(REST_SECONDS):
                while True:
                    status = await eventually(self.api.status, lambda _: True, "topom to answer")
                    serving = sorted(
                        proxy["address"]
                        for proxy in status["proxies"]
                        if proxy["state"] == "online" and proxy["epoch"] >= status["epoch"]
                    )
                    if serving == sorted(self.proxy_addresses) and not status["slots"]["moving"]:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            batches = (await self.api.migration())["batches"]
            said = "; ".join(f"{it['state']}: {it['reason']}" for it in batches) or "no batch is under way"
            raise NotAtRest(
                f"{REST_SECONDS:g} s after the last fault {status['slots']['moving']} slots are still on their way "
                f"({said}); epoch {status['epoch']}, proxies: "
                + ", ".join(f"{it['state']} at {it['epoch']}" for it in status["proxies"])
            ) from None


@asynccontextmanager
async def started(planted: str = "", way: str = "keys", replicas: bool = False) -> AsyncIterator[HistoriesCluster]:
    """A cluster with its ballast, for any number of runs; with ``replicas``, each group has one."""
    cluster = HistoriesCluster(planted, way)
    async with cluster, LocalCluster.client(cluster) as cluster.api:
        await cluster.load()
        if replicas:
            await cluster.add_replicas()
        yield cluster
