"""The one writer of the cluster's state.

Every change, an operator's or a running batch's, is a function from the state as it is to the next one. They run one at
a time, and each outcome is stored with compare-and-swap. Only then does it hold, and only then do the listeners, which
tell the proxies, hear of it. So the store has everything that a proxy was told (**epochs**). The events of a change are
stored with it (:mod:`topom.cluster.event_finding`).
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from slots.backoff import Backoff
from slots.messages.message import Product
from slots.table import SlotTable
from topom.cluster import changed_records, lineage, records, rules
from topom.cluster import event_finding as telling
from topom.cluster.event_sinks import newest_event
from topom.cluster.events import NAMED_BY, Said, What, actor
from topom.cluster.lineage import StoreIsOlder
from topom.cluster.notes import Notes
from topom.cluster.remembering import require_newest
from topom.cluster.state import ClusterState
from topom.cluster.topology import unlock_all
from topom.errors import NotLeading, TopomError, Unavailable
from topom.reasons import Kind, Reason
from topom.store import STATE, Store, StoreConflict, StoreError

log = structlog.get_logger(__name__)

Change = Callable[[ClusterState, int], ClusterState]
"""Gets the state, and the epoch for a table that changes. Gives the next state, or the same object for no change."""
Listener = Callable[[ClusterState, ClusterState], None]
"""Called with the old and the new state once the new one is stored. Must not block, nor raise."""
DEFAULT_EVENTS_KEPT = 2048
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
"""Between two attempts to store notes, or anything at all after a write that failed."""


class LostPlace(Unavailable):
    """Another topom has written to the store. This one may change nothing from then on and has to end."""


class ProductMismatch(Unavailable):
    """The configuration describes another product than the store holds."""

    kind = Kind.OPERATOR


def require_same(stored: Product, configured: Product) -> None:
    """Raises :class:`ProductMismatch` unless both are the same."""
    if stored != configured:
        raise ProductMismatch(
            f"the store holds {stored!r}, the configuration says {configured!r}; these settings are fixed at the first "
            "start. Set them back, or use another data folder or prefix of the store for a new product"
        )


class Ledger:
    """Holds the state. :attr:`state` is what is stored; it is replaced, never changed."""

    def __init__(
        self,
        store: Store,
        writer: str,
        leads: Callable[[], bool] = lambda: True,
        events_kept: int = DEFAULT_EVENTS_KEPT,
        term: int = 0,
        url: str = "",
    ) -> None:
        """
        Args:
            writer: an id of its own.
            leads: whether anything may be changed at this instant.
            term: of this leader; 0 where no other topom uses the store.
            url: where others reach this topom; the event that it leads names it.
        """
        self._store = store
        self._book = store.book(STATE)
        self._writer = writer
        self._term = term
        self._url = url
        self._leads = leads
        self._events_kept = events_kept
        self._notes = Notes()
        self._noting: asyncio.Task[None] | None = None
        self._notes_due = math.inf  # when the notes get a write of their own
        self._notes_hurry = asyncio.Event()
        self._closed = False
        self._lock = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._unknown = False  # a write failed in a way that leaves open whether it is in the store
        self.unstored: Reason | None = None
        """Why the last write failed. None once one has succeeded; until then the ledger tries by itself."""
        self._tasks: set[asyncio.Task[ClusterState] | asyncio.Task[None]] = set()
        self._state: ClusterState | None = None
        self.began_after = 0
        """Id of the newest event when :meth:`start` took the writer's place."""
        self.lost = asyncio.Event()
        """Set when another topom has taken over the store."""

    @property
    def state(self) -> ClusterState:
        """What is stored. Only after :meth:`start`."""
        assert self._state is not None, "the ledger was not started"
        return self._state

    @property
    def table(self) -> SlotTable:
        """The slot table that is stored."""
        return self.state.table

    @property
    def may_change(self) -> bool:
        """Whether this topom may change anything at this instant, as far as it knows."""
        return self._leads() and not self.lost.is_set()

    def listen(self, listener: Listener) -> None:
        """Have ``listener`` called after each change. A second call with the same listener changes nothing."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    async def start(self, product: Product, newest: bool = False, seen: ClusterState | None = None) -> None:
        """Read the store, or fill an empty one, and take the writer's place.

        A slot that was locked is unlocked in the same write, for this topom does not know which proxies acknowledged
        the lock. The table gets a new epoch in any case. So each epoch that proxies acknowledge from now on comes from
        this topom.

        Args:
            newest: whether an operator says that this store is the newest. A proof of the contrary is forgotten then.
            seen: the newest state that this process has seen before.

        Raises:
            ProductMismatch: when the store belongs to another product, or other fixed settings.
            StoreIsOlder: when it was proven before, or is by ``seen``; this topom does not take the writer's place.
            StoreError: when the store cannot be read or written, or holds what cannot be read.
        """
        await self._store.open()
        old = records.decode(await self._book.read())
        if old is not None:
            require_same(old.product, product)
            if newest and old.older:
                log.warning("store_taken_for_newest", reason=old.older)
            elif old.older:
                raise StoreIsOlder(old.older)
        if not newest:
            await require_newest(self._book, old, seen, self._writer)
        if old is None:
            table = replace(SlotTable.empty(product.number_of_slots), epoch=1)
            new = ClusterState(
                version=1,
                writer=self._writer,
                product=product,
                table=table,
                term=self._term,
                cluster_id=secrets.token_hex(16),
                seal_key=secrets.token_hex(32),
            )
        else:
            version = old.version + 1
            table = replace(unlock_all(old.table, version), epoch=version)
            new = replace(old, version=version, writer=self._writer, table=table, term=self._term, older="")
        new = replace(new, starts=lineage.started(new.starts, self._writer, table.epoch))
        new = self._recorded(old, new)
        await self._book.write(old.version if old else 0, new.version, changed_records.differences(old, new))
        self._state = new
        self.began_after = newest_event(old)
        log.info("store_opened", epoch=new.table.epoch, version=new.version, proxies=len(new.proxies))

    def show(self, state: ClusterState) -> None:
        """Take on a state that another topom has stored.

        A follower calls this in place of :meth:`start`, for each new state.
        """
        if self._state is None:
            self._state = state
        elif state.version > self._state.version:
            self._adopt(state)

    async def change(self, make: Change, said: Sequence[Said] = ()) -> ClusterState:
        """Store what ``make`` gives, and put it in place of the state. Returns the state that then holds.

        ``said`` are events to store with the change, if there is one, besides the events that are found for it.

        A caller that is cancelled meanwhile does not stop the change. A change that has begun is stored and told, or
        not done at all.

        Raises:
            StoreError: the change does not hold here. If the store has it all the same, the next change finds that.
            LostPlace: another topom has the store.
            NotLeading: this topom's lease is over.
            TopomError: whatever ``make`` raises; nothing was changed.
        """
        task = asyncio.create_task(self._change(make, said))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def note(self, what: What, text: str, by: str = "", wait: float = 0.0, reason: Reason | None = None) -> None:
        """Have an event stored that tells of no change of the state (:mod:`topom.cluster.notes`).

        Args:
            by: the name of who did it, as in :data:`topom.cluster.events.actor`.
            reason: why something waits, if the event tells of that.
            wait: seconds for which the event waits for another write to take it along, before it gets one of its own.
        """
        if not self._notes.add(by, Said(what, text, time.time(), reason)):
            log.warning("event_not_stored", what=what, text=text, reason="too many are waiting")
            return
        self._attend_to_notes(wait)

    async def confirm(self) -> None:
        """Make sure that :attr:`state` is what is stored, if that is unknown after a failed write.

        Raises:
            StoreError: the store cannot be read.
            LostPlace: another topom has the store.
        """
        if self._unknown:
            await self.change(lambda state, epoch: state)

    async def close(self) -> None:
        """Wait for a change under way, and close the store."""
        self._closed = True
        self._notes_hurry.set()
        async with self._lock:
            await self._store.close()

    def _attend_to_notes(self, wait: float) -> None:
        due = asyncio.get_running_loop().time() + wait
        if due < self._notes_due:
            self._notes_due = due
            self._notes_hurry.set()
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._store_notes())
            self._tasks.add(self._noting)
            self._noting.add_done_callback(self._forget)

    async def _store_notes(self) -> None:
        """Store the notes, and try again while the store fails, also without a note.

        Returns when none is left, or when this topom does not lead.
        """
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        clock = asyncio.get_running_loop().time
        reason = "topom ends"
        while not self._closed:
            if (who := self._notes.first()) is None:
                if self.unstored is None:
                    break
                who = ""
            if (wait := self._notes_due - clock()) > 0:
                self._notes_hurry.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._notes_hurry.wait(), wait)
                continue
            # This sets the name for this task alone. The request that was being served when the task began is not
            # meant.
            actor.set(who)
            try:
                await self._change(self._with_notes)
            except StoreError:
                self._notes_due = clock() + backoff.next()
            except TopomError as error:
                reason = str(error)
                break
        self._notes_due = math.inf
        for note in self._notes.drop():
            log.warning("event_not_stored", what=note.what, text=note.text, reason=reason)

    def _with_notes(self, state: ClusterState, epoch: int) -> ClusterState:
        return replace(state) if self.unstored is not None or self._notes.are_waiting(actor.get()) else state

    def _recorded(self, old: ClusterState | None, new: ClusterState, said: Sequence[Said] = ()) -> ClusterState:
        now = time.time()
        new = new.with_offline_since(old, now)
        return telling.recorded(old, new, self._who(), now, self._events_kept, said, self._url)

    def _who(self) -> str:
        return actor.get() or f"topom {self._writer[:NAMED_BY]}"

    def _forget(self, task: "asyncio.Task[ClusterState] | asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has it, unless the caller was cancelled

    async def _change(self, make: Change, said: Sequence[Said] = ()) -> ClusterState:
        async with self._lock:
            if self.lost.is_set():
                raise LostPlace("another topom has written to the store; this one changes nothing any more")
            # This is asked also for a change that changes nothing, for its caller takes this state for the newest.
            if not self._leads():
                raise NotLeading("this topom does not lead; ask again, and the one that leads will answer")
            if self._unknown:
                await self._find_out()
            old = self.state
            version = old.version + 1
            new = make(old, version)
            if new is old:
                return old
            who = actor.get()
            noted = self._notes.take(who)
            try:
                new = rules.ruled(old, replace(new, version=version))
                new = self._recorded(old, new, [*noted, *said])
                await self._book.write(old.version, version, changed_records.differences(old, new))
            except BaseException as error:
                unknown = isinstance(error, StoreError) and not isinstance(error, StoreConflict)
                (self._notes.doubt if unknown else self._notes.put_back)(who, noted)
                if noted:
                    self._attend_to_notes(FIRST_WAIT_SECONDS)
                if isinstance(error, StoreConflict):
                    self._lose(str(error))
                    raise LostPlace(str(error)) from error
                if unknown:
                    self._unknown = True
                    self.unstored = Reason.of(error, self.unstored.since if self.unstored else None)
                    self._attend_to_notes(FIRST_WAIT_SECONDS)
                    log.error("store_write_failed", reason=str(error), epoch=old.table.epoch)
                raise
            self._adopt(new)
            return new

    async def _find_out(self) -> None:
        """After a write of unknown outcome: take the state that the store has, if this process wrote it.

        It may have written it long ago (**newest-store**). The next to lead finds that out.
        """
        stored = records.decode(await self._book.read())
        if stored is None or stored.writer != self._writer or stored.version < self.state.version:
            lost = "another topom has written to the store, or it was emptied, or put back"
            self._lose(lost)
            raise LostPlace(f"{lost}; this one changes nothing more")
        self._unknown = False
        self._notes.resolve(stored.version != self.state.version)
        if stored.version != self.state.version:
            log.info("store_write_found", version=stored.version)
            self._adopt(stored)

    def _adopt(self, new: ClusterState) -> None:
        old, self._state = self.state, new
        self.unstored = None
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:
                # The stored change holds even if a listener fails, and the other listeners have to hear of it.
                log.exception("listener_failed", listener=getattr(listener, "__qualname__", repr(listener)))

    def _lose(self, reason: str) -> None:
        log.error("store_lost", reason=reason)
        self.lost.set()
