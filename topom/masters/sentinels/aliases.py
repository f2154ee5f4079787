"""Finds replicas that their master lists by an address that is not topom's.

Sentinels find a group's replicas in what the master lists (``INFO replication``). If addresses are translated, as with
mapped ports of containers, or if a host has several addresses, a master may list a replica otherwise than the slot
table does. A Sentinel then elects an address that topom does not have, so proxies do not follow. If that address is
another server's, the Sentinel tells the wrong server whom to follow. topom cannot mend that, and says so beforehand.
"""

from collections.abc import Collection

from slots.group import Group
from topom.cluster.ledger import Ledger
from topom.cluster.topology import parse_address
from topom.masters.sentinels import addresses
from topom.masters.sentinels.addresses import Resolver
from topom.reasons import Kind, Reason, Reasons
from topom.servers.redis_servers import RedisServers


class Aliases:
    """The replicas of all groups that their masters list otherwise."""

    def __init__(self, ledger: Ledger, servers: RedisServers, resolver: Resolver) -> None:
        self._ledger = ledger
        self._servers = servers
        self._resolver = resolver
        self._reasons = Reasons[str]("replica_listed_otherwise")

    def reason(self, server: str) -> Reason | None:
        """Why Sentinels do not know a server by topom's address; None if they may."""
        return self._reasons.get(server)

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget all other servers."""
        self._reasons.keep_only([server for server in self._reasons if server in servers])

    async def look(self, group: Group, listed: Collection[str]) -> None:
        """Compare a group's replicas with those that its master lists now."""
        others = [end for end in sorted(listed) if await self._resolver.same(end, group.replicas) is None]
        for server in group.replicas:
            if others and await self._is_missing(server, group, listed):
                host, port = addresses.first(await self._resolver.ends(server)) or parse_address(server)
                what = (
                    f"{server} is known to its master, and so to every Sentinel, by another address "
                    f"({', '.join(others)}); a Sentinel that makes it the master names a server that topom lacks"
                )
                to_do = (
                    f"at {server}: redis-cli CONFIG SET replica-announce-ip {host}, CONFIG SET replica-announce-port "
                    f"{port} and CLIENT KILL TYPE master; then slotferry sentinel resync"
                )
                self._reasons.waits(server, Reason(Kind.SENTINEL, what, to_do=to_do))
            else:
                self._reasons.over(server)

    async def _is_missing(self, server: str, group: Group, listed: Collection[str]) -> bool:
        """Whether a replica follows the master directly, and is not on the master's list."""
        if server in self._ledger.state.joining or not await self._resolver.ends(server):
            return False
        if any([await self._resolver.same(end, [server]) for end in listed]):
            return False
        found = await self._servers.read(server)
        if found is None or not found.replication.link_up or found.replication.following is None:
            return False
        return await self._resolver.same(addresses.text(*found.replication.following), group.servers[:1]) is not None
