"""Everything at a time: three topoms over three etcd, three groups of two servers, three Sentinels, two proxies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slotferry.processes import ManagedProcess, free_ports
from slotferry.redis_server import HOST, RedisServer
from slotferry.traffic.placement import Layout
from tests.integration.cluster.harness import plain_client
from tests.integration.cluster.sentinels import WATCHED, Sentinel
from tests.integration.cluster.several import SeveralTopoms

GROUPS = (1, 2, 3)
TOPOM_SETTINGS = {
    "product": WATCHED,
    "ha": "sentinel",
    # On a machine that is also busy with other tests, slow must not count as broken.
    "sentinel_down_after_milliseconds": 2_000,
    "sentinel_failover_timeout_milliseconds": 20_000,
    "server_suspect_seconds": 1.0,
    "server_fail_seconds": 3.0,
    "server_view_seconds": 20.0,
    "promotion_seconds": 20.0,
    # Until another topom leads, proxies hear no topom.
    "stand_down_seconds": 60.0,
    # Three of the eight members, that is half of the servers, are more than may be lost at a time.
    "protection_share": 0.3,
    "placement_settle_seconds": 1.0,
}
# A draining proxy waits for clients that are in the middle of something.
PROXY_SETTINGS = {"replica_check_seconds": 0.2, "drain_last_seconds": 120.0}
REDIS_ARGUMENTS = (
    *("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"),
    # A server that is killed and started again still has its data.
    *("--appendonly", "yes", "--appendfsync", "no"),
)


class WholeCluster(SeveralTopoms):
    """A master and a replica in each group; ``sentinels`` watch them as soon as a topom leads."""

    def __init__(self) -> None:
        super().__init__(
            topoms=3,
            stores=3,
            groups=len(GROUPS),
            proxies=2,
            topom_settings=TOPOM_SETTINGS,
            proxy_settings=PROXY_SETTINGS,
            redis_arguments=REDIS_ARGUMENTS,
        )
        self.sentinels: list[Sentinel] = []
        self.health_addresses: list[str] = []
        """``host:port`` of each proxy's ``/readyz``."""

    async def _start_servers(self) -> None:
        for group in GROUPS:
            master, replica = await self.add_server(group), await self.add_server(group)
            await follow(replica, master.address)
        for number in range(3):
            sentinel = Sentinel(f"sentinel-{number}", Path(self.directory))
            self.sentinels.append(sentinel)
            sentinel.start()
        for sentinel in self.sentinels:
            await sentinel.ready()
        self._topom_settings["sentinels"] = [sentinel.address for sentinel in self.sentinels]

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        self.health_addresses.append(f"{HOST}:{free_ports(1)[0]}")
        super()._start_proxy({"metrics": self.health_addresses[-1], **own_settings})

    @property
    def processes(self) -> list[ManagedProcess]:
        return [*self.sentinels, *super().processes]

    def server(self, address: str) -> RedisServer:
        """The process at this address."""
        return next(server for servers in self.servers.values() for server in servers if server.address == address)

    async def master_of(self, group: int) -> str:
        return (await self.masters())[group]

    async def layout(self) -> Layout:
        """Which master has to have which slot; replicas are not looked at."""
        return Layout.from_api(await self.api.status(), await self.api.slots())

    async def masters(self) -> dict[int, str]:
        """The master of each group, by the slot table."""
        return {group: addresses[0] for group, addresses in (await self.members()).items()}

    async def members(self) -> dict[int, Sequence[str]]:
        """The servers of each group, by the slot table, the master first."""
        return {group["id"]: [server["address"] for server in group["servers"]] for group in await self.api.groups()}


async def follow(replica: RedisServer, master: str) -> None:
    """Have a server follow another one."""
    host, _, port = master.rpartition(":")
    async with plain_client(replica.address) as client:
        await client.replicaof(host, port)
