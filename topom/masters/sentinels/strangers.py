"""Makes Sentinels forget *strangers*: servers that have left the group to which Sentinels count them.

A Sentinel never forgets a replica by itself. A replica that has left its group and follows nobody may still be elected.
What is worse, after eight seconds a Sentinel makes it a replica of its former master again, and even takes it away from
another group in which it is a replica or the master. So topom looks at the replicas that every Sentinel lists for a
group, and compares them with the group, and with those that its master lists, where Sentinels find replicas:

- A stranger that the master lists follows it, so Sentinels would find it again at once. topom keeps them from electing
  it (:mod:`topom.masters.sentinels.electable`). A stranger in the pool that is not being filled is told to follow
  nobody.
- A stranger that the master does not list is forgotten when each Sentinel begins the group anew, as if it knew no
  replica. They do so one after the other, so that the others can agree on a failover meanwhile: the next one begins
  once all are *settled*, that is, know the group's replicas and each other again. A Sentinel that takes the master for
  down, is in a failover, or names another master, is left for later.
- A server is filled for a group only once no Sentinel counts it to another group (:meth:`Strangers.require_forgotten`).
  If a Sentinel does not answer, its last answer still counts. A Sentinel that has not answered this topom yet may take
  a replica away when it is back, until topom asks it; topom asks at once. It cannot take a master away like this: no
  planned promotion makes a master while a Sentinel is silent (:mod:`topom.masters.sentinels.unwatched`).

Nothing is stored: any leader sees the strangers at the Sentinels themselves.

topom uses ``SENTINEL REMOVE`` and ``MONITOR`` rather than ``RESET``. After ``MONITOR`` a Sentinel asks the master at
once. After ``RESET`` it asks only when it would have asked anyway, up to ten seconds later, and could elect no server
meanwhile.

**bounded**: topom waits :data:`SETTLE_SECONDS` for a Sentinel that is not settled, and not at all for one that does not
answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis

from slots.failures import FAILURES
from slots.replies import Info, info_of
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.masters.sentinels import addresses, monitoring
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.aliases import Aliases
from topom.masters.sentinels.errors import SentinelsRemember
from topom.masters.sentinels.link import SentinelLink
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.watch import Watch
from topom.periodic import Look, Loop
from topom.servers.redis_servers import RedisServers

log = structlog.get_logger(__name__)

LOOK_SECONDS = 10.0
"""Seconds between two looks at what Sentinels list."""
HURRY_SECONDS = 0.3
"""The same, while a Sentinel has a server to forget."""
SETTLE_SECONDS = 20.0
"""How long a Sentinel may take to know all replicas and Sentinels again, before others begin anew, too."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a Sentinel knows of a group: its replicas, by the addresses that it gives, and how many other Sentinels."""

    replicas: frozenset[str]
    others: int


def next_to_forget(
    known: Mapping[str, Known], gone: Collection[str], own: Collection[str], patient: bool
) -> str | None:
    """The Sentinel that begins a group anew now; None if none needs to, or the others are not settled yet.

    Args:
        known: for each Sentinel that answers and watches the group, what it knows.
        gone: the replicas to forget.
        own: the group's replicas that its master lists.
        patient: whether topom still waits for Sentinels that are not settled.
    """
    listing = [sentinel for sentinel, one in known.items() if not one.replicas.isdisjoint(gone)]
    if not listing:
        return None
    settled = {sentinel for sentinel, one in known.items() if one.replicas >= {*own} and one.others >= len(known) - 1}
    if not patient:
        return listing[0]
    return next((sentinel for sentinel in listing if settled >= known.keys() - {sentinel}), None)


class Strangers(Loop):
    """Servers that Sentinels count to groups that they are not in.

    Args:
        links: the Sentinels that topom asks, by address.
        release: makes servers of the pool follow nobody. Never raises.
        aliases: is told what each master lists.
    """

    name = "strangers"

    def __init__(
        self,
        ledger: Ledger,
        servers: RedisServers,
        resolver: Resolver,
        telling: Telling,
        watch: Watch,
        links: Mapping[str, SentinelLink],
        release: Callable[[Collection[str]], Awaitable[None]],
        aliases: Aliases,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._servers = servers
        self._resolver = resolver
        self._telling = telling
        self._watch = watch
        self._links = links
        self._release = release
        self._aliases = aliases
        self.changed: Callable[[], None] = lambda: None
        """Is called when other strangers follow."""
        ledger.listen(self._hear)
        self._unsettled: dict[int, float] = {}
        self._by_group: dict[int, frozenset[str]] = {}
        self.following: frozenset[str] = frozenset()
        """Strangers that follow a master; by topom's own addresses for those that topom knows."""
        self.complete = False
        """Whether these are all: each group's master has said at least once which servers follow it."""

    async def look(self) -> Look:
        """Look at all groups once; the next look is soon if something is left to do."""
        if await self.look_once():
            return Look("makes Sentinels forget servers that have left their groups", HURRY_SECONDS)
        return Look("", LOOK_SECONDS)

    def _hear(self, old: ClusterState, new: ClusterState) -> None:
        if old.table.groups is not new.table.groups or old.pool is not new.pool or old.sentinels is not new.sentinels:
            self.wake()

    async def look_once(self) -> bool:
        """Look at all groups once, and let one Sentinel of each forget; gives whether to go on with that soon."""
        watched = self._watch.masters
        product = self._ledger.state.product.name
        wanted = {group_id: monitoring.name_of(product, group_id) for group_id in watched}

        async def names(link: SentinelLink) -> list[str]:
            return list(wanted.values())

        await self._list(names)
        found = await asyncio.gather(*(self._listed_by(master) for master in watched.values()))
        pending = False
        # If a group is getting another master, or its master does not answer, what was known of it stays.
        groups = self._ledger.table.groups
        by_group = {
            group_id: names
            for group_id, names in self._by_group.items()
            if group_id in groups and len(groups[group_id].servers) > 1
        }
        self._aliases.keep_only({server for group_id in by_group for server in groups[group_id].replicas})
        for group_id, listed in zip(watched, found, strict=True):
            if listed is None:
                continue
            if group_id in groups:
                await self._aliases.look(groups[group_id], listed)
            own, strangers = await self._told_apart(group_id, listed)
            by_group[group_id] = frozenset((await self._without_own(group_id, strangers)).values())
            named = frozenset(
                end for link in self._links.values() if link.up for end in link.listed.get(wanted[group_id], ())
            )
            _, left = await self._told_apart(group_id, named - listed)
            if left:
                pending = True
                await self._forget(group_id, left.keys(), own)
            else:
                self._unsettled.pop(group_id, None)
        for group_id in self._unsettled.keys() - watched.keys():
            del self._unsettled[group_id]
        self._by_group = by_group
        following = frozenset(name for names in by_group.values() for name in names)
        complete = all(len(group.servers) < 2 or group.id in by_group for group in groups.values())
        if (following, complete) != (self.following, self.complete):
            self.following, self.complete = following, complete
            self.changed()
        return await self._release_from(following) or pending

    async def require_forgotten(self, server: str, group_id: int) -> None:
        """Raises SentinelsRemember while a Sentinel counts a server to another group than this one."""
        product = self._ledger.state.product.name

        async def names(link: SentinelLink) -> list[str]:
            # Also ask for the names of groups that are gone now.
            return [name for name in await link.masters() if monitoring.group_id_of(product, name) is not None]

        await self._list(names)
        for sentinel, link in list(self._links.items()):
            for name, replicas in link.listed.items():
                number = monitoring.group_id_of(product, name)
                if number == group_id or await self._resolver.same(server, replicas) is None:
                    continue
                self.wake()
                how = "it forgets it soon" if link.up else "it does not answer: bring it back"
                raise SentinelsRemember(
                    f"Sentinel {sentinel} still counts {server} as a replica of group {number}, and would make it one "
                    f"again; {how}, or remove it with 'slotferry sentinel remove {sentinel}'"
                )

    async def _list(self, names: Callable[[SentinelLink], Awaitable[list[str]]]) -> None:
        """Ask each Sentinel that answers what it lists under these names."""

        async def ask(link: SentinelLink) -> None:
            try:
                await link.list_replicas(await names(link))
            except FAILURES as error:
                log.debug("sentinel_does_not_list", sentinel=link.address, reason=str(error))

        await asyncio.gather(*(ask(link) for link in self._links.values() if link.up))

    async def _told_apart(self, group_id: int, ends: Collection[str]) -> tuple[set[str], dict[str, str]]:
        """Tells addresses as Redis gives them apart: those of a group's servers; and the others, each with topom's own
        name for it.

        There are no others if the group is gone.
        """
        group = self._ledger.table.groups.get(group_id)
        if group is None or not all([await self._resolver.ends(server) for server in group.servers]):
            # The group is gone, or it is not known now where one of its servers is.
            return set(ends), {}
        others = {end for end in ends if await self._resolver.same(end, group.servers) is None}
        return set(ends) - others, {
            end: await self._resolver.same(end, self._ledger.state.pool) or end for end in sorted(others)
        }

    async def _without_own(self, group_id: int, strangers: Mapping[str, str]) -> dict[str, str]:
        """The strangers without the group's own servers, which may be reached by several addresses."""
        group = self._ledger.table.groups.get(group_id)
        if not strangers or group is None:
            return dict(strangers)
        asked = [*group.servers, *strangers]
        found = dict(zip(asked, await asyncio.gather(*map(self._process, asked)), strict=True))
        own = {found[server] for server in group.servers} - {""}
        return {end: name for end, name in strangers.items() if found[end] not in own}

    async def _process(self, server: str) -> str:
        """The run id of a server's process; empty if it does not answer."""
        found: list[str] = []

        async def look(client: Redis) -> None:
            found.append((await info_of(client, "server")).text("run_id", ""))

        await self._servers.guarded(server, look)
        return found[0] if found else ""

    async def _listed_by(self, master: str) -> frozenset[str] | None:
        """The replicas that a master says it has; None if it does not answer, or is not a master."""
        found: list[frozenset[str]] = []

        async def look(client: Redis) -> None:
            info = await info_of(client, "replication")
            if info.is_master:
                found.append(replicas_of(info))

        await self._servers.guarded(master, look)
        return found[0] if found else None

    async def _forget(self, group_id: int, gone: Collection[str], own: Collection[str]) -> None:
        name = monitoring.name_of(self._ledger.state.product.name, group_id)
        known: dict[str, Known] = {}
        for sentinel, link in list(self._links.items()):
            if not link.up:
                continue
            try:
                fields = (await link.masters()).get(name)
            except FAILURES:
                continue
            if fields is not None:
                known[sentinel] = Known(frozenset(link.listed.get(name, ())), int(fields["num-other-sentinels"]))
        now = asyncio.get_running_loop().time()
        since = self._unsettled.setdefault(group_id, now)
        chosen = next_to_forget(known, gone, own, now < since + SETTLE_SECONDS)
        if chosen is None or chosen not in self._links:
            return
        link = self._links[chosen]
        try:
            if await self._telling.begin_one_anew(link, group_id):
                self._unsettled[group_id] = now
                log.info("sentinel_forgets_replicas", sentinel=chosen, group=group_id, servers=sorted(gone))
        except FAILURES as error:
            # It may have forgotten the group, and not begun it again.
            log.warning("sentinel_keeps_replicas", sentinel=chosen, group=group_id, reason=str(error))
            link.due = True
            link.wake.set()

    async def _release_from(self, following: Collection[str]) -> bool:
        """Tell servers of the pool that follow a master, and are not being filled, to follow nobody; gives whether
        there are any.
        """
        state = self._ledger.state
        run = state.placement.run
        copying = {step.server for step in run.steps if not step.over} if run is not None else set()
        if idle := sorted(server for server in following if server in state.pool and server not in copying):
            # A Sentinel that was not told yet has made the server a replica again, or it could not be told before.
            await self._release(idle)
        return bool(idle)


def replicas_of(info: Info) -> frozenset[str]:
    """Addresses of the replicas that INFO replication of a master lists. Raises NotUnderstood."""
    return frozenset(addresses.text(one.text("ip"), one.number("port")) for one in info.replicas)
