"""One of the topom processes over one store: it follows, stands for election, and leads while it may.

Each term has objects of its own (:class:`~topom.term.service.Topom`): its ledger, its members, its batches. They are
made when the term begins, and end with it. No later term uses them, so a late task stays late for good: its lease is
over, and another has the writer's place (:mod:`topom.store.leading`). So the process need not end when it ceases to
lead. It goes on as a follower, and can say what is wrong while the store is cut off. It ends, with an error, if the
tasks of a term do not end (:data:`STOP_SECONDS`), or if one of them breaks: a new process is sure to have none of them.

With a store that is not shared (SQLite) the process leads at once and for good; then there is no leader to follow.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import httpx
import structlog

from slots.backoff import Backoff
from slots.reloading import refusing
from topom.cluster.event_sinks import EventSinks
from topom.errors import NotLeading, TopomError
from topom.load.day import Day
from topom.reasons import Kind, Reason, Reasons
from topom.store import Leader, Leadership, Store, StoreConflict, StoreError
from topom.store.leading import LedStore
from topom.store.timed import StoreTimes, TimedStore
from topom.term import certificates
from topom.term.access import Access
from topom.term.features import OwnMigrator
from topom.term.peers import Peers
from topom.term.roster import Roster
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tending import Tending
from topom.term.view import View

log = structlog.get_logger(__name__)

STOP_SECONDS = 10.0
"""How long the tasks of a term may take to end; a migrator finishes the command that is under way."""
RESIGN_SECONDS = 2.0

Unfit = Literal["refused", "misplaced", "unheard"]
"""The leader refuses this topom; another topom is at this one's URL; the leader says nothing."""
Make = Callable[[Leadership], Topom]
"""Makes the topom of a term."""


def alone(error: BaseException) -> BaseException:
    """The only error of a group of one, and of a group within; any other error as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class StuckTerm(Exception):
    """The tasks of a term that is over do not end. So the process must end."""


class Node:
    """A topom process. :meth:`run` works until it is cancelled.

    Args:
        url: where the other topoms reach this one's API.
        make: makes the topom of a term; None for one by the settings.
        own_migrator: how the migrator that this process starts itself reaches it; None for no such migrator.
        newest: whether an operator says that the store is the newest. That holds for the first term.
    """

    def __init__(
        self,
        settings: TopomSettings,
        store: Store,
        url: str,
        make: Make | None = None,
        own_migrator: OwnMigrator | None = None,
        newest: bool = False,
    ) -> None:
        self.settings = settings
        self.url = url
        self.instance = secrets.token_hex(16)
        self.store_times = StoreTimes()
        store = TimedStore(store, self.store_times)
        self.events = EventSinks()
        """The sinks for the events that this process stores, or reads as a follower."""
        self.day = Day()
        """The load of the last day. It outlives terms (:mod:`topom.term.loadkeeping`)."""
        self._access = Access(settings)
        self.view = View(
            settings, store, self.events, lambda: self.leading is not None, self.day, self.instance, self._access
        )
        self.roster = Roster()
        self.unfit = Reasons[Unfit]()
        """Why this topom is of no use as it is (:mod:`topom.term.announcing`)."""
        self._no_leader = Reasons[None]()
        self.leadership: Leadership | None = None
        """The place of this topom while it leads and can be asked; else None."""
        self.led = asyncio.Event()
        """Set once this topom has led."""
        self.shared = store.shared
        """Whether there may be other topoms."""
        self._of_topoms = certificates.of_topoms(settings).certificates()
        self._peers = Peers(self._of_topoms)
        self._store = store
        self._make = make or self._topom_of
        self._own_migrator = own_migrator
        self._newest = newest
        self._topom: Topom | None = None
        self.tending = Tending(TopomError, StuckTerm)
        """Keeps the loops that run whether this topom leads or not."""

    @property
    def http(self) -> httpx.AsyncClient:
        """The client for requests to the other topoms."""
        return self._peers.http

    @property
    def leading(self) -> Topom | None:
        """The topom of the present term, if this process leads and may act."""
        topom = self._topom
        return topom if topom is not None and topom.leads() else None

    @property
    def serving(self) -> Topom:
        """The topom from which the API answers: the term's, or the view. Raises NotLeading if there is neither."""
        return self.leading or self.view.topom

    @property
    def leader(self) -> Leader | None:
        """The leader, as far as it is known; this process only if it leads now."""
        if self.leading is not None and self.leadership is not None:
            return self.leadership.leader
        known = self.view.leader
        return known if known is not None and known.instance != self.instance else None

    @property
    def reason(self) -> Reason | None:
        """Why nothing can be changed through this topom now; None if changes are possible."""
        if (leading := self.leading) is not None:
            return leading.ledger.unstored
        if (known := self.view.reason) is not None:
            what = f"{known.what}; nothing can be changed until the store is back, and proxies serve on meanwhile"
            return replace(known, what=what)
        if self.leader is None:
            return self._no_leader.waits(None, Reason(Kind.STORE, "no topom leads at present; try again in a while"))
        self._no_leader.over(None)
        return self.unfit.get("misplaced") or self.unfit.get("refused") or self.unfit.get("unheard")

    def look(self, settings: TopomSettings) -> Callable[[], None]:
        """A look at settings that may soon hold, also for the terms to come (:data:`slots.reloading.Taker`)."""
        tls = certificates.of_topoms(settings)
        with refusing("TLS with the other topoms"):
            use_of_topoms = self._of_topoms.look(tls.files, tls.context)
        use_access = self._access.look(settings)

        def put() -> None:
            use_of_topoms()
            use_access()
            self._configure(settings)

        return put

    def _configure(self, settings: TopomSettings) -> None:
        self.settings = settings
        self.view.configure(settings)
        if self._topom is not None:
            self._topom.configure(settings)

    def release(self) -> None:
        """End all waits for news: the process is about to stop."""
        self.events.close()
        with suppress(NotLeading):
            self.serving.waiters.release()

    async def run(self) -> None:
        """Follow and lead, until cancelled, or, with a store that is not shared, until the place is lost.

        Raises:
            ProductMismatch: the store belongs to another product.
            StoreError: a store that is not shared cannot be used.
            StuckTerm: the tasks of a term do not end.
        """
        if not self.shared:
            await self._store.open()
            await self._lead(await self._store.campaign(self.instance, self.url, self.settings.leader_lease_seconds))
            return
        await self._open()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tending.keep("view", self.view.follow))
            group.create_task(self.tending.keep("standing for election", self._stand))

    async def close(self) -> None:
        """Close the view and the store, after :meth:`run` has ended."""
        with suppress(Exception):
            await self._peers.close()
        with suppress(Exception):
            await self.view.close()
        await self._store.close()

    async def _open(self) -> None:
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                await self._store.open()
            except StoreError as error:
                self.view.unreadable(error)
                await asyncio.sleep(backoff.next())
            else:
                return

    async def _stand(self) -> None:
        backoff = Backoff(0.1, max(0.2, self.settings.leader_lease_seconds / 2))
        while True:
            try:
                leadership = await self._store.campaign(self.instance, self.url, self.settings.leader_lease_seconds)
                await self._lead(leadership)
                backoff.reset()
            except (StoreError, NotLeading) as error:
                log.error("not_leading", reason=str(error))
            await asyncio.sleep(backoff.next())

    async def _lead(self, leadership: Leadership) -> None:
        """Lead for one term, from the election to its end."""
        try:
            topom = await self._started(leadership)
            self.leadership, self._topom = leadership, topom
            topom.configure(self.settings)  # they may have changed since it was made
            self.led.set()
            # Clients that wait for news first get that of this term, and then ask the term.
            self.events.show(topom.ledger.state, topom.ledger.began_after)
            if self.shared:
                self.view.show(topom.ledger.state)
            log.info("leading", term=leadership.leader.term, epoch=topom.ledger.table.epoch)
            try:
                await self._serve_term(topom, leadership)
            finally:
                self._topom = self.leadership = None
                await topom.close()
        finally:
            with suppress(Exception):
                async with asyncio.timeout(RESIGN_SECONDS):
                    await leadership.resign()

    async def _started(self, leadership: Leadership) -> Topom:
        """The topom of the term, which has taken the writer's place.

        The former leader may write until then; then the state is read again.
        """
        while True:
            topom = self._make(leadership)
            topom.ledger.listen(self.events.changed)
            try:
                await topom.start()
            except StoreConflict:
                if not leadership.valid() or not self.shared:
                    raise
            else:
                self._newest = False
                return topom

    async def _serve_term(self, topom: Topom, leadership: Leadership) -> None:
        running = asyncio.create_task(topom.run(), name="term")
        lost = asyncio.create_task(leadership.lost.wait())
        replaced = asyncio.create_task(topom.ledger.lost.wait())
        try:
            await asyncio.wait((running, lost, replaced), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # From here on no proxy gets anything from this term, and no request finds it.
            self._topom = None
            self.view.show(topom.ledger.state)
            topom.retire()
            over = lost.done() or replaced.done()
            for task in (running, lost, replaced):
                task.cancel()
            await asyncio.wait((running,), timeout=STOP_SECONDS)
            if over:
                log.warning("leading_ended", term=leadership.leader.term, replaced=topom.ledger.lost.is_set())
        if not running.done():
            stuck = topom.not_ended() or [running.get_name()]
            for name in stuck:
                log.error("task_does_not_end", task=name, seconds=STOP_SECONDS)
            names = ", ".join(stuck)
            raise StuckTerm(
                f"what this topom did while it led does not end within {STOP_SECONDS:g} s ({names}); start it anew"
            )
        # An error of a late leader is no fault: another topom may have written.
        at_fault = not over and (leadership.valid() or not self.shared)
        if at_fault and not running.cancelled() and (error := running.exception()) is not None:
            raise alone(error)

    def _topom_of(self, leadership: Leadership) -> Topom:
        term = leadership.leader.term if self.shared else 0
        store = LedStore(self._store, leadership.valid)
        return Topom(
            self.settings,
            store,
            leads=leadership.valid,
            term=term,
            process=self.instance,
            url=leadership.leader.url,
            day=self.day,
            access=self._access,
            own_migrator=self._own_migrator,
            newest=self._newest,
            seen=self.view.seen,
        )
