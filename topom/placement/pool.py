"""The pool: servers that are in no group, registered with node and datacenter, for groups to take.

A server is in one group or in the pool, never in both. Every operator's change of the slot table is checked against the
pool (:mod:`topom.cluster.rules`), and a server that is taken leaves the pool in the write that puts it into its group.

A server that becomes a replica loses what it holds. So a server is registered only if it answers, is a master without
replicas and holds no key, unless the operator says that it may be wiped. It is checked again before it is taken.
"""

from dataclasses import replace

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, InvalidResponse

from slots.failures import in_words
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, PoolServer, leaving_nodes
from topom.errors import Conflict, NodeLeaving, NotFound, ServerInUse, ServersUnreachable
from topom.reasons import Kind
from topom.servers.identities import Identities, with_run_ids
from topom.servers.lastcopy import HoldsKeys
from topom.servers.otherprograms import speaks_http
from topom.servers.readings import ProxyAnswers, Reading, SentinelAnswers, read
from topom.servers.redis_servers import RedisServers


class NotInPool(NotFound):
    """The pool has no such server."""


class NoRedisServer(Conflict):
    """A proxy, a Sentinel, a node of a Redis Cluster or another program answers at the address. It is to be no server
    of a group."""

    kind = Kind.SERVER


def with_server(state: ClusterState, entry: PoolServer) -> ClusterState:
    """The state with a server in the pool, or with a changed entry of one.

    Raises:
        InvalidAddress, InvalidDatacenter, InvalidNode: these are not valid.
        ServerInUse: the server is in a group.
        NodeLeaving: its node leaves, and so do the pool's servers there.
    """
    topology.parse_address(entry.address)
    topology.require_place(entry.datacenter, entry.node)
    for group in state.table.groups.values():
        if entry.address in group.servers:
            raise ServerInUse(f"{entry.address} belongs to group {group.id}; remove it there first")
    if state.pool.get(entry.address) == entry:
        return state
    if entry.node_name in leaving_nodes(state):
        raise NodeLeaving(
            f"{entry.address} is on node {entry.node_name}, which is on its way out; add it once that has left, or "
            f"have the node stay: slotferry node drain {entry.node_name} --cancel"
        )
    return replace(state, pool={**state.pool, entry.address: entry})


def without_server(state: ClusterState, address: str) -> ClusterState:
    """The state without this server in its pool. Raises :class:`NotInPool`."""
    if address not in state.pool:
        raise NotInPool(f"the pool has no server {address}; it has {', '.join(sorted(state.pool)) or 'none'}")
    return replace(state, pool={name: entry for name, entry in state.pool.items() if name != address})


class Pool:
    """The pool of one topom."""

    def __init__(self, ledger: Ledger, servers: RedisServers, identities: Identities) -> None:
        self._ledger = ledger
        self._identities = identities
        self._servers = servers

    async def add(self, entry: PoolServer) -> None:
        """Register a server that answers and has nothing to lose, or change the entry of one.

        Raises:
            ServersUnreachable, NoRedisServer: as :meth:`content`.
            HoldsKeys: something would be lost, and ``entry`` does not allow that.
            ServerInUse: it is a server of a group, or by another name one of a group or the pool (SameServer).
            ReplicaOfAnother: it holds a copy of a group, and ``entry`` does not say that it may be wiped.
            TopomError: as :func:`with_server`, and StoreError.
        """
        with_server(self._ledger.state, entry)
        content = await self.content(entry.address)
        problem = content.why_not_wipe(entry.address)
        if problem and not entry.wipe:
            raise HoldsKeys(f"{problem}; empty it first, or say that it may be wiped (--wipe)")
        run_ids = await self._identities.admit([entry.address], [entry.address], None, entry.wipe)

        def add(state: ClusterState, epoch: int) -> ClusterState:
            self._identities.require_new(state, run_ids)
            return with_run_ids(with_server(state, entry), run_ids)

        await self._ledger.change(add)

    async def remove(self, address: str) -> None:
        """Forget a server of the pool; nothing is done to it. Raises :class:`NotInPool`, and StoreError."""
        await self._ledger.change(lambda state, epoch: without_server(state, address))

    async def content(self, address: str) -> Reading:
        """What a server holds now.

        Raises:
            ServersUnreachable: it does not answer, does not let topom in, or is loading its data and says only what it
                has loaded so far.
            NoRedisServer: it is a proxy, of this product or another one, a Sentinel, a node of a Redis Cluster, or
                another program.
        """
        _require_no_member(self._ledger.state, address)
        found: list[Reading] = []

        async def look(client: Redis) -> None:
            try:
                found.append(await read(client))
            except ProxyAnswers:
                raise _no_server(address) from None
            except SentinelAnswers:
                raise NoRedisServer(
                    f"{address} is a Redis Sentinel, not a Redis server", "name the Redis servers themselves"
                ) from None
            except InvalidResponse as error:
                raise NoRedisServer(
                    f"what answers at {address} is not a Redis server ({in_words(error)})", "look at the address"
                ) from None
            except AuthenticationError as error:
                raise ServersUnreachable(
                    f"{address} does not let topom in ({str(error).rstrip('.')})",
                    "look at redis_user and redis_password in topom's settings",
                ) from None

        reason = await self._servers.guarded(address, look)
        if reason is not None and await speaks_http(address):
            raise NoRedisServer(
                f"what answers at {address} is not a Redis server (it answers by HTTP, as topom and web servers do)",
                "look at the address",
            )
        if reason is not None:
            raise ServersUnreachable(
                f"{address} does not answer topom's INFO ({reason.rstrip('.')})", "start it, or look at the address"
            )
        if found[0].loading:
            raise ServersUnreachable(
                f"{address} is loading its data, so nobody knows what it holds", "wait until it has loaded them"
            )
        if found[0].clustered:
            raise NoRedisServer(
                f"{address} is a node of a Redis Cluster, which sends clients elsewhere and has one database",
                "set cluster-enabled no in its redis.conf and restart it, or name another server",
            )
        return found[0]


def _require_no_member(state: ClusterState, address: str) -> None:
    """Raises NoRedisServer for the address of one of topom's proxies, no matter what answers there."""
    if any(proxy.address == address for proxy in state.proxies.values()):
        raise _no_server(address)


def _no_server(address: str) -> NoRedisServer:
    return NoRedisServer(f"{address} is a Slotferry proxy, not a Redis server; name the Redis servers themselves")
