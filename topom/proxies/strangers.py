"""Proxies that use a server and are no members: they go by the table of another topom, as over a copy of the store.

**one-owner**: topom can neither have them lock slots nor fence them, for it does not know of them. What they write to
slots that have moved would be lost, and a sweep would delete what they have written. A living proxy has connections to
every master, under names that begin with its instance. So topom looks whose connections a server has: before slots are
to leave it or to come to it, again right before they are locked, each time their keys begin to move, and before a sweep
deletes the first key. In between may be hours, or another topom.

That is no proof: such a proxy may connect a moment later. It finds who uses the same servers for long.

**newest-store**: it also looks who has changed the owner of slots at the server last. Before topom moves some, it
leaves a mark at both ends that names its state. It does so, too, at a server to which it assigns slots, and at one that
becomes a master. So there is such a mark wherever clients write, and where they did before. Whoever finds one that was
made after its own state has an older store, also if no proxy is left that could tell (:mod:`topom.proxies.newest`). A
server that does not say whose mark it has may have that one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from slots.counting import counted
from topom.cluster.ledger import Ledger
from topom.proxies.newest import NewestStore
from topom.reasons import Kind, Reason

NAMED = 3
"""How many strangers a sentence names."""


class Connections(Protocol):
    """Knows which proxies' connections servers have; see :class:`topom.servers.redis_servers.RedisServers`."""

    async def connected(self, addresses: Iterable[str]) -> Mapping[str, Collection[str]]:
        """The proxies that have connections, for each server that answers. Does not raise; bounded in time."""


class Marks(Connections, Protocol):
    """Knows marks, too."""

    async def used_by(self, addresses: Iterable[str]) -> Mapping[str, str]:
        """Who has changed the owner of slots at each server last; "" for nobody. Servers that do not say are left out.
        Does not raise; bounded in time.
        """


class Strangers:
    """Looks for them in one term of topom."""

    def __init__(self, ledger: Ledger, servers: Marks, newest: NewestStore) -> None:
        self._ledger = ledger
        self._servers = servers
        self._newest = newest

    async def reason(self, server: str) -> Reason | None:
        """Why nothing may be begun at a server because of proxies that use it, or because it does not say who does;
        None if it has no stranger's connection.

        Raises:
            StoreIsOlder: another topom has changed the owner of slots there since.
        """
        marks = await self._servers.used_by([server])
        if server not in marks:
            return Reason.now(
                Kind.SERVER,
                f"{server} does not say which topom has moved slots there last",
                "see that it runs, and answers topom: slotferry status",
            )
        self._newest.hear_use(server, marks[server])
        there = (await self._servers.connected([server])).get(server, ())
        # Looked at afterwards: a proxy that registers is stored before it gets a table, and connects after that.
        state = self._ledger.state
        known = {proxy.instance for proxy in state.proxies.values()} | state.fenced.keys()
        strangers = sorted(set(there) - known)
        if not strangers:
            return None
        named = ", ".join(strangers[:NAMED])
        many = counted(len(strangers), "proxy", "proxies")
        return Reason(
            Kind.PROXY,
            f"{server} is used by {many} that topom does not know ({named}): they would go on to write by another "
            "topom's table",
            to_do="find them by redis-cli CLIENT LIST there, and end them and any topom over a copy of this store",
        )
