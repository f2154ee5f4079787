"""What a follower knows: the store's newest state, for reading.

The view is a :class:`~topom.term.service.Topom` that never acts: its ledger takes over what others store, and refuses
every change. It does not have what only the leader knows of proxies, and of keys on their way.
"""

import asyncio
from collections.abc import Callable

import structlog

from slots.backoff import Backoff
from topom.cluster import records
from topom.cluster.event_sinks import EventSinks, newest_event
from topom.cluster.ledger import require_same
from topom.cluster.remembering import require_newest
from topom.cluster.state import ClusterState
from topom.errors import NotLeading
from topom.load.day import Day
from topom.reasons import Kind, Reason, Reasons
from topom.store import STATE, Leader, Store, StoreError
from topom.store.leading import LedStore
from topom.term import features
from topom.term.access import Access
from topom.term.service import Topom
from topom.term.settings import TopomSettings

log = structlog.get_logger(__name__)

SIZES_SECONDS = 10.0
"""How old the sizes of slots may be that the view shows."""


class View:
    """The newest state, kept up to date by :meth:`follow`.

    Attributes:
        leader: the leader, as far as it was last known.
    """

    def __init__(
        self,
        settings: TopomSettings,
        store: Store,
        events: EventSinks,
        leads: Callable[[], bool] = lambda: False,
        day: Day | None = None,
        instance: str = "",
        access: Access | None = None,
    ) -> None:
        """
        Args:
            instance: of the process.
            events: gets the events that the view reads.
            leads: whether this process leads, and so knows more than any view.
            day: what the process knows of the load of the last day; None for nothing.
            access: how the process gets in at servers; None for a way by the settings.
        """
        self._access = access
        self._day = day
        self._events = events
        self._instance = instance
        self._leads = leads
        self._version = -1
        self._reader = records.Reader()
        self._settings = settings
        self._store = store
        self._topom: Topom | None = None
        self._sizes_at = -SIZES_SECONDS
        self._unreadable = Reasons[None]("store_unreachable")
        self.leader: Leader | None = None
        self.changed = asyncio.Event()
        """Set when the leader has changed; a task that waits for it clears it first."""

    @property
    def reason(self) -> Reason | None:
        """Why the store cannot be read; None while it can."""
        return self._unreadable.get(None)

    def unreadable(self, error: StoreError) -> None:
        """Note that the store could not be read just now."""
        self._unreadable.waits(None, error)

    def configure(self, settings: TopomSettings) -> None:
        """Let settings hold that may change while topom runs."""
        self._settings = settings
        if self._topom is not None:
            self._topom.configure(settings)

    @property
    def topom(self) -> Topom:
        """What the handlers of the API read. Raises :class:`~topom.errors.NotLeading` while nothing is known."""
        if self._topom is None:
            unread = Reason(Kind.STORE, "this topom has not read the store yet, or nobody has written to it")
            raise (self.reason or unread).to(NotLeading)
        return self._topom

    @property
    def seen(self) -> ClusterState | None:
        """The newest state that this process has seen, as a follower or while it led."""
        return None if self._topom is None else self._topom.ledger.state

    async def follow(self) -> None:
        """Take over what is stored, without end.

        Raises:
            ProductMismatch: the store belongs to another product.
            StoreIsOlder: this process has seen a newer state.
        """
        backoff = Backoff(0.1, 1.0)
        # A new leader does not change the version, so the wait for a new version is short.
        seconds = self._settings.leader_lease_seconds / 4
        while True:
            if self._leads():
                await asyncio.sleep(seconds)
                continue
            try:
                leader = await self._store.leader()
                if leader != self.leader:
                    self.leader = leader
                    self.changed.set()
                if await self._store.watch(self._version, seconds) != self._version:
                    await self._read()
            except StoreError as error:
                self.unreadable(error)
                await asyncio.sleep(backoff.next())
            else:
                if self.reason is not None:
                    log.info("store_reachable")
                self._unreadable.over(None)
                backoff.reset()

    async def sized(self) -> Topom:
        """:attr:`topom`, with sizes of slots no older than :data:`SIZES_SECONDS`; older ones if the store cannot be
        read.

        Raises :class:`~topom.errors.NotLeading` while nothing is known.
        """
        topom = self.topom
        now = asyncio.get_running_loop().time()
        if now - self._sizes_at >= SIZES_SECONDS:
            self._sizes_at = now
            try:
                await topom.sizes.start()
            except StoreError as error:
                log.warning("sizes_not_read", reason=str(error))
        return topom

    async def close(self) -> None:
        """Close what the view opened."""
        if self._topom is not None:
            await self._topom.close()

    def show(self, state: ClusterState) -> None:
        """Take over a stored state, if it is newer than the known one."""
        if self._topom is None:
            self._topom = Topom(
                self._settings, LedStore(self._store, _never), leads=_never, day=self._day, access=self._access
            )
            self._topom.ledger.listen(self._events.changed)
            self._topom.show(state)
            self._events.show(state, newest_event(state))
        else:
            self._topom.show(state)
        self._version = max(self._version, state.version)

    async def _read(self) -> None:
        seen = self.seen
        book = self._store.book(STATE)
        stored = await book.catch_up()
        state = self._reader.decode(stored)
        # newest-store: the one that leads may have started since, and remember nothing.
        await require_newest(book, state, seen, self._instance)
        if state is not None:
            require_same(state.product, features.product(self._settings))
            self.show(state)
        self._version = stored.version


def _never() -> bool:
    return False
