"""The Sentinels for the rest of topom: what operators do with them, what is known of them, and the loops that follow
them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from slots.access import ServerAccess
from slots.failures import FAILURES, in_words
from topom.cluster.events import What, actor
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import parse_address
from topom.masters.sentinels import monitoring
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.aliases import Aliases
from topom.masters.sentinels.copies import Copies
from topom.masters.sentinels.deciding import Deciding
from topom.masters.sentinels.errors import (
    SentinelKnown,
    SentinelNotFound,
    SentinelsOff,
    SentinelUnusable,
    TooManySentinels,
)
from topom.masters.sentinels.following import Following
from topom.masters.sentinels.link import ANSWER_SECONDS, NOT_ASKED
from topom.masters.sentinels.links import Links
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.masters.sentinels.strangers import Strangers
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.unwatched import Unwatched
from topom.masters.sentinels.watch import Watch
from topom.periodic import Loop
from topom.reasons import Kind, Reason
from topom.servers.redis_servers import RedisServers
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)

HighAvailability = Literal["off", "topom", "sentinel"]
MAXIMUM_SENTINELS = 99


@dataclass(frozen=True, slots=True)
class SentinelStatus:
    """One Sentinel: why it cannot be used (None if it can), and the master that it names for each group that it
    watches.
    """

    address: str
    reason: Reason | None
    masters: Mapping[int, str]


async def _release_nobody(servers: Collection[str]) -> None:
    """Do nothing with servers of the pool that follow a master."""


class Sentinels:
    """All Sentinels. If ``mode`` is ``sentinel``, :attr:`loops` follow them.

    Args:
        configured: the Sentinels in the settings, which count until an operator adds or removes one.
        access: how to log in at the Sentinels.
        leads: whether this topom may change anything at this instant.
        has_failed: as for :func:`topom.masters.sentinels.electable.barred`.
        release: makes servers of the pool follow nobody. Never raises.
    """

    def __init__(
        self,
        mode: HighAvailability,
        ledger: Ledger,
        servers: RedisServers,
        configured: Iterable[str],
        settings: SentinelSettings,
        access: ServerAccess,
        leads: Callable[[], bool] = lambda: True,
        has_failed: Callable[[str], bool] = lambda server: False,
        release: Callable[[Collection[str]], Awaitable[None]] = _release_nobody,
    ) -> None:
        self.mode = mode
        self._ledger = ledger
        self._watch = watch = Watch(ledger, configured)
        resolver = Resolver()
        self._following = Following(ledger, servers)
        self._telling = telling = Telling(ledger, servers, resolver, settings, watch)
        self._links = links = Links(ledger, watch, telling, access, leads)
        self._unwatched = Unwatched(telling, watch, links)
        self._aliases = Aliases(ledger, servers, resolver)
        strangers = Strangers(ledger, servers, resolver, telling, watch, links, release, self._aliases)
        self.copies = Copies(mode == "sentinel", ledger, ServerReplication(servers, leads), strangers, has_failed)
        self._deciding = Deciding(ledger, watch, links, telling, self._following, resolver, settings.quorum)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops that run by themselves. If groups are not left to Sentinels, servers only get back the priorities
        that topom changed while groups were.
        """
        return (self._deciding, *self.copies.loops) if self.mode == "sentinel" else self.copies.loops

    @property
    def known(self) -> tuple[str, ...]:
        """Addresses of all Sentinels."""
        return self._watch.sentinels

    def status(self) -> list[SentinelStatus]:
        """Every Sentinel, as it last answered."""
        found = []
        for address in self.known:
            link = self._links.get(address)
            named = (link.named if link else None) or {}
            masters = {
                group_id: master
                for name, master in named.items()
                if master is not None and (group_id := self._watch.group_of(name)) is not None
            }
            found.append(SentinelStatus(address, link.reason if link else NOT_ASKED, masters))
        return found

    def reason_for(self, group_id: int) -> Reason | None:
        """Why topom does not follow what Sentinels say of a group; None if there is no such reason."""
        return self._following.reason(group_id)

    def reason_known_otherwise(self, server: str) -> Reason | None:
        """Why Sentinels do not know a replica by topom's address; None if they may."""
        return self._aliases.reason(server)

    def reason(self) -> Reason | None:
        """Why they could replace no failed master; None if no reason is known, or if ``mode`` is not ``sentinel``."""
        return self._deciding.reason() if self.mode == "sentinel" else None

    def reason_failed(self, group_id: int, since: float) -> Reason | None:
        """Why a master that failed at ``since`` is not replaced yet; None if Sentinels do not decide that.

        ``since`` is in seconds since 1970, UTC.
        """
        if self.mode != "sentinel":
            return None
        if group_id not in monitoring.watched(self._ledger.table):
            return Reason(Kind.OPERATOR, "its group has no replica, or is locked for a promotion", since)
        undecided = Reason(Kind.SENTINEL, "a majority of the Sentinels names no other master yet", since)
        return self.reason() or self.reason_for(group_id) or undecided

    @property
    def switches(self) -> int:
        """How many masters that Sentinels elected this topom has put into the slot table since it began to lead."""
        return self._following.switches

    def watched(self) -> dict[int, str]:
        """The masters, by group, of the groups that Sentinels should watch now."""
        return self._watch.masters

    def unwatched(self, group_id: int) -> AbstractAsyncContextManager[None]:
        """Keep all Sentinels from watching a group inside the ``with`` block; do nothing if groups are not left to
        Sentinels.

        Raises:
            SentinelWatches: on entering, if a Sentinel could not be told.
        """
        return self._unwatched.during(group_id) if self.mode == "sentinel" else nullcontext()

    # -- what operators do ---------------------------------------------------------------------------------

    async def add(self, address: str) -> None:
        """Let one more Sentinel watch all groups.

        Raises:
            SentinelsOff, InvalidAddress, SentinelKnown, TooManySentinels, SentinelUnusable: as they say.
        """
        self._require_on()
        parse_address(address)
        link = self._links.to(address)
        try:
            await link.masters()
        except FAILURES as error:
            raise SentinelUnusable(
                f"{address} does not answer as a Sentinel ({in_words(error)})",
                "start it, or look at the address, and at sentinel_user and sentinel_password",
            ) from error
        finally:
            await link.close()

        def change(state: ClusterState, epoch: int) -> ClusterState:
            known = self._watch.sentinels_in(state)
            if address in known:
                raise SentinelKnown(f"{address} is known already")
            if len(known) >= MAXIMUM_SENTINELS:
                raise TooManySentinels(f"there are {MAXIMUM_SENTINELS} Sentinels already; remove one first")
            return replace(state, sentinels=(*known, address))

        await self._ledger.change(change)
        log.info("sentinel_added", sentinel=address)

    async def remove(self, address: str) -> str:
        """Remove a Sentinel: it watches nothing of this product from then on, and the others count without it.

        Returns:
            Why it could not be told; empty if it was. It is forgotten in any case.

        Raises:
            SentinelsOff, SentinelNotFound: as they say.
        """
        self._require_on()

        def change(state: ClusterState, epoch: int) -> ClusterState:
            known = self._watch.sentinels_in(state)
            if address not in known:
                raise SentinelNotFound(f"{address} is no Sentinel that is known; {', '.join(known) or 'none'} are")
            return replace(state, sentinels=tuple(one for one in known if one != address))

        await self._ledger.change(change)
        log.info("sentinel_removed", sentinel=address)
        # First end its tasks, so that none tells it what to watch.
        await self._links.leave(address)
        link = self._links.to(address)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                product = self._ledger.state.product.name
                for name in monitoring.superfluous(product, await link.masters(), ()):
                    await link.forget(name)
        except FAILURES as error:
            return in_words(error)
        finally:
            await link.close()
        # Sentinels do not forget each other, and a majority of all that they ever knew must agree to a failover.
        await self.resync()
        return ""

    async def resync(self) -> dict[str, str]:
        """Let every Sentinel forget the groups and watch them anew; gives for each why it could not be told, or an
        empty text.

        Only groups with a master that answers are concerned: a Sentinel that begins with a master that is gone knows no
        replica.

        Raises:
            SentinelsOff: as it says.
        """
        self._require_on()
        outcome: dict[str, str] = {}
        healthy = await self._telling.masters_that_are(self._watch.masters)
        # They do so one after the other, so that the others watch meanwhile.
        for link in list(self._links.values()):
            outcome[link.address] = ""
            try:
                await self._telling.begin_anew(link, healthy)
            except FAILURES as error:
                outcome[link.address] = in_words(error)
        failed = [one for one in outcome if outcome[one]]
        log.info("sentinels_resynced", groups=sorted(healthy), failed=failed)
        text = f"{len(outcome)} Sentinels forgot the groups and each other, and watch anew"
        text += f"; could not be told: {', '.join(failed)}" if failed else ""
        self._ledger.note(What.SENTINELS_RESYNCED, text, actor.get())
        return outcome

    def _require_on(self) -> None:
        if self.mode != "sentinel":
            raise SentinelsOff(
                f'topom leaves nothing to Sentinels: its setting ha is "{self.mode}"; start it with ha = "sentinel"'
            )
