"""Keeps the Sentinels that topom knows in step with the slot table, and follows them.

There is one task for each Sentinel. It asks what the Sentinel watches: each second, at once if any of them announces a
switch, and ten times a second while one disagrees with the table. It tells the Sentinel what to watch, and looks every
:data:`STEP_SECONDS` whether it does. Another task decides (:mod:`topom.masters.sentinels.following`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.failures import FAILURES
from topom.cluster.events import What, actor
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import parse_address
from topom.masters.sentinels import monitoring
from topom.masters.sentinels.ability import nobody_replaces
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.copies import Copies
from topom.masters.sentinels.errors import (
    SentinelKnown,
    SentinelNotFound,
    SentinelsOff,
    SentinelUnusable,
    TooManySentinels,
)
from topom.masters.sentinels.following import Astray, Following, Verdict, View
from topom.masters.sentinels.leftalone import LeftAlone
from topom.masters.sentinels.link import (
    ANSWER_SECONDS,
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    NOT_ASKED,
    SentinelLink,
)
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.masters.sentinels.strangers import Strangers
from topom.masters.sentinels.telling import Telling
from topom.reasons import Kind, Reason, Reasons
from topom.servers.redis_servers import RedisServers
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)

HighAvailability = Literal["off", "topom", "sentinel"]
MAXIMUM_SENTINELS = 99
LOOK_SECONDS = 1.0
"""Seconds between two questions to each Sentinel for the masters."""
HURRY_SECONDS = 0.1
"""The same while Sentinels and slot table disagree: the other Sentinels follow the first within moments."""
MOST_HURRY_SECONDS = 15.0
"""After so many seconds of that, :data:`LOOK_SECONDS` holds again."""
END_SECONDS = 0.2
"""How long a cancelled task may take to end; then it is cancelled again."""
STEP_SECONDS = 10.0
"""Seconds between two looks whether a Sentinel watches the right groups with the right options."""


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
    """All Sentinels. :meth:`run` watches and follows them, if ``mode`` is ``sentinel``.

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
        self._servers = servers
        self._configured = tuple(configured)
        self._access = access
        self._leads = leads
        self._links: dict[str, SentinelLink] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._resolver = Resolver()
        self._following = Following(ledger, servers)
        self._astray = Astray()
        self._telling = Telling(ledger, servers, self._resolver, settings, self.watched, lambda: len(self.known))
        self._left_alone = LeftAlone(self._telling, lambda: self.known, self._links, self._begin_again)
        strangers = Strangers(ledger, servers, self._resolver, self._telling, self.watched, self._links, release)
        self.copies = Copies(mode == "sentinel", ledger, ServerReplication(servers, leads), strangers, has_failed)
        self._nobody = Reasons[None]()
        self._news = asyncio.Event()
        self._listed = asyncio.Event()
        self._quorum = settings.quorum
        # Groups on which Sentinels and slot table do not agree, and since when.
        self._disagreeing: dict[int, float] = {}
        ledger.listen(self._changed)

    @property
    def known(self) -> tuple[str, ...]:
        """Addresses of all Sentinels."""
        return self._known(self._ledger.state)

    def _known(self, state: ClusterState) -> tuple[str, ...]:
        return self._configured if state.sentinels is None else state.sentinels

    def status(self) -> list[SentinelStatus]:
        """Every Sentinel, as it last answered."""
        product = self._ledger.state.product.name
        found = []
        for address in self.known:
            link = self._links.get(address)
            named = (link.named if link else None) or {}
            masters = {
                group_id: master
                for name, master in named.items()
                if master is not None and (group_id := monitoring.group_id_of(product, name)) is not None
            }
            found.append(SentinelStatus(address, link.reason if link else NOT_ASKED, masters))
        return found

    def reason_for(self, group_id: int) -> Reason | None:
        """Why topom does not follow what Sentinels say of a group; None if there is no such reason."""
        return self._following.reason(group_id)

    def reason(self) -> Reason | None:
        """Why they could replace no failed master; None if they can, as far as is known, or if ``mode`` is not
        ``sentinel``.
        """
        if self.mode != "sentinel":
            return None
        silent = [link.address for link in self._links.values() if link.silent]
        error = nobody_replaces(self._quorum, len(self.known), silent)
        if error is None:
            self._nobody.over(None)
            return None
        return self._nobody.waits(None, error)

    def reason_failed(self, group_id: int, since: float) -> Reason | None:
        """Why a master that has failed ``since`` then is not replaced yet; None if Sentinels do not decide that.

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
        masters = monitoring.watched(self._ledger.table)
        return {group_id: master for group_id, master in masters.items() if group_id not in self._left_alone.groups}

    def left_alone(self, group_id: int) -> AbstractAsyncContextManager[None]:
        """Keep all Sentinels from watching a group inside the ``with`` block; do nothing if groups are not left to
        Sentinels.

        Raises:
            SentinelWatches: on entering, if a Sentinel could not be told.
        """
        return self._left_alone.during(group_id) if self.mode == "sentinel" else nullcontext()

    # -- what operators do ---------------------------------------------------------------------------------

    async def add(self, address: str) -> None:
        """Let one more Sentinel watch all groups.

        Raises:
            SentinelsOff, InvalidAddress, SentinelKnown, TooManySentinels, SentinelUnusable: as they say.
        """
        self._require_on()
        parse_address(address)
        link = self._link(address)
        try:
            await link.masters()
        except FAILURES as error:
            raise SentinelUnusable(
                f"{address} does not answer as a Sentinel ({str(error) or 'no answer in time'})",
                "start it, or look at the address, and at sentinel_user and sentinel_password",
            ) from error
        finally:
            await link.close()

        def change(state: ClusterState, epoch: int) -> ClusterState:
            known = self._known(state)
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
            known = self._known(state)
            if address not in known:
                raise SentinelNotFound(f"{address} is no Sentinel that is known; {', '.join(known) or 'none'} are")
            return replace(state, sentinels=tuple(one for one in known if one != address))

        await self._ledger.change(change)
        log.info("sentinel_removed", sentinel=address)
        # First end its tasks, so that none tells it what to watch.
        await self._leave(address)
        link = self._link(address)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                product = self._ledger.state.product.name
                for name in monitoring.superfluous(product, await link.masters(), ()):
                    await link.forget(name)
        except FAILURES as error:
            return str(error) or "no answer in time"
        finally:
            await link.close()
        # Sentinels do not forget each other, and a majority of all that they ever knew must agree to a failover.
        await self.resync()
        return ""

    async def resync(self) -> dict[str, str]:
        """Let every Sentinel forget the groups and watch them anew; gives for each why it could not be told, or an
        empty text.

        That concerns only groups whose masters answer: a Sentinel that begins with a master that is gone knows no
        replica.

        Raises:
            SentinelsOff: as it says.
        """
        self._require_on()
        outcome: dict[str, str] = {}
        healthy = await self._telling.masters_that_are(self.watched())
        # They do so one after the other, so that the others watch meanwhile.
        for link in list(self._links.values()):
            outcome[link.address] = ""
            try:
                await self._telling.begin_anew(link, healthy)
            except FAILURES as error:
                outcome[link.address] = str(error) or "no answer in time"
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

    # -- what goes on by itself ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch and follow, until cancelled."""
        if self.mode != "sentinel":
            # Servers get back the priorities that topom changed while groups were left to Sentinels.
            await self.copies.run()
            return
        deciding = asyncio.create_task(self._decide())
        others = [asyncio.create_task(work) for work in (self.copies.run(), self._tell_who_replaces())]
        try:
            while True:
                self._listed.clear()
                await self._attend_to_known()
                waiting = asyncio.create_task(self._listed.wait())
                await asyncio.wait((waiting, deciding, *others), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for task in (deciding, *others):
                    if task.done():
                        task.result()
        finally:
            await _end([deciding, *others])
            for address in list(self._links):
                await self._leave(address)

    async def _tell_who_replaces(self) -> None:
        """Log that no master could be replaced, or that masters can be replaced again, once two looks agree."""
        told, before = "", ""
        while True:
            now = str(self.reason() or "")
            if now == before and now != told:
                told = now
                if now:
                    log.warning("sentinels_replace_nobody", kind=Kind.SENTINEL, reason=now)
                else:
                    log.info("sentinels_can_replace")
            before = now
            await asyncio.sleep(LOOK_SECONDS)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.sentinels is not new.sentinels:
            self._listed.set()
        if old.sentinels is not new.sentinels or old.table.groups != new.table.groups:
            self._begin_again()

    def _begin_again(self) -> None:
        """Let every Sentinel be brought into step soon."""
        for link in self._links.values():
            link.due = True
        self._wake_all()

    def _wake_all(self) -> None:
        for link in self._links.values():
            link.wake.set()
        self._news.set()

    def _switched(self, name: str) -> None:
        if monitoring.group_id_of(self._ledger.state.product.name, name) is not None:
            log.info("switch_announced", name=name)
            self._wake_all()

    async def _attend_to_known(self) -> None:
        for address in self._links.keys() - set(self.known):
            await self._leave(address)
        for address in self.known:
            if address not in self._links:
                link = self._links[address] = self._link(address)
                self._tasks[address] = [
                    asyncio.create_task(self._attend(link), name=f"sentinel {address}"),
                    asyncio.create_task(link.listen(self._switched), name=f"switches of {address}"),
                ]

    async def _leave(self, address: str) -> None:
        link = self._links.pop(address, None)
        if link is None:
            return
        await _end(self._tasks.pop(address))
        with suppress(*FAILURES):
            await link.close()

    def _link(self, address: str) -> SentinelLink:
        return SentinelLink(address, self._access, self._leads)

    async def _attend(self, link: SentinelLink) -> None:
        """Ask one Sentinel again and again, and keep it in step."""
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        while True:
            link.wake.clear()
            try:
                product = self._ledger.state.product.name
                names = [monitoring.name_of(product, group_id) for group_id in self.watched()]
                await link.look(names)
                self._news.set()
                if link.due or loop.time() >= link.step_at:
                    link.due = False
                    link.step_at = loop.time() + STEP_SECONDS
                    await self._telling.keep_in_step(link)
            except Exception as error:
                # Only failures to reach it are expected; whatever the error is, this Sentinel is asked again.
                if not isinstance(error, FAILURES):
                    log.exception("sentinel_not_understood", sentinel=link.address)
                link.lost(error)
                link.due = True
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await link.wake.wait()

    def _pause(self) -> float:
        now = asyncio.get_running_loop().time()
        hurry = any(now - since < MOST_HURRY_SECONDS for since in self._disagreeing.values())
        return HURRY_SECONDS if hurry else LOOK_SECONDS

    async def _decide(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._decide_once()
            except Exception:
                # No error is expected; whatever it is, topom looks again at what the Sentinels say next.
                log.exception("sentinels_not_understood")
                await asyncio.sleep(LOOK_SECONDS)

    async def _decide_once(self) -> None:
        known = self.known
        self._resolver.keep(
            {*(server for group in self._ledger.table.groups.values() for server in group.servers), *self._named()}
        )
        found = [await self._view(group_id) for group_id in self.watched()]
        views = [view for view in found if view is not None]
        verdicts = await asyncio.gather(*(self._following.look(view, len(known)) for view in views))
        now = asyncio.get_running_loop().time()
        disagreeing = {
            view.group_id: self._disagreeing.get(view.group_id, now)
            for view, verdict in zip(views, verdicts, strict=True)
            if verdict is not Verdict.AGREED
        }
        if disagreeing.keys() - self._disagreeing.keys():
            self._wake_all()
        self._disagreeing = disagreeing
        for view, verdict in zip(views, verdicts, strict=True):
            astray = self._astray.note(view, len(known), now)
            if verdict is Verdict.OUTDATED:
                astray = [one for one, named in view.named.items() if named not in (view.master, None)]
            if astray:
                await self._telling.correct(view, [self._links[one] for one in astray if one in self._links])

    def _named(self) -> set[str]:
        found = (link.named for link in self._links.values())
        return {address for named in found if named for address in named.values() if address is not None}

    async def _view(self, group_id: int) -> View | None:
        """What all Sentinels that answer say of a group, with the addresses of the slot table; None if the group is
        gone.
        """
        group = self._ledger.table.groups.get(group_id)
        if group is None or not group.servers:
            return None
        name = monitoring.name_of(self._ledger.state.product.name, group_id)
        said: dict[str, str | None] = {}
        for link in list(self._links.values()):
            named = link.named
            if named is not None and name in named:
                address = named[name]
                if address is not None:
                    address = await self._resolver.same(address, group.servers) or address
                said[link.address] = address
        return View(group_id, group.servers[0], group.servers, said)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end. A client of redis-py may take a cancellation for a failure of its own."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=END_SECONDS)
