"""Keeps the sizes of slots, also over restarts.

They are apart from the cluster's state: they are larger, nothing on which proxies agree depends on them, and if they
are lost, a new measurement is all it takes. A slot's size says when it was taken, so what the store holds is always
true for that time.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from topom.balance import size_records
from topom.balance.sizes import Freshness, KnownSizes, SlotSize, Taking, fresh, freshness, with_measurement
from topom.cluster.state import ClusterState
from topom.store import SIZES, Store, StoreDamaged, StoreError

log = structlog.get_logger(__name__)


class SizeBook:
    """The sizes of one product's slots. Call :meth:`start` first.

    Args:
        store: where they are kept.
        number_of_slots: the product's number of slots.
        stale_seconds: how old the size of a slot may be without a warning in a plan.
        clock: seconds since 1970.
    """

    def __init__(
        self, store: Store, number_of_slots: int, stale_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._book = store.book(SIZES)
        self._number_of_slots = number_of_slots
        self._lock = asyncio.Lock()
        self._version = 0
        self._unsure = False  # a write failed, and it is unknown whether it is in the store
        self._known = KnownSizes()
        self._stale_seconds = stale_seconds
        self.clock = clock

    @property
    def known(self) -> KnownSizes:
        """The stored sizes; the object is replaced, never changed."""
        return self._known

    def fresh(self) -> KnownSizes:
        """The stored sizes that are not stale."""
        return fresh(self._known, self.clock(), self._stale_seconds)

    def freshness(self, state: ClusterState) -> Freshness:
        """How far the sizes can be trusted now, for the slots of this state."""
        return freshness(self._known, state.table, state.moved, self.clock(), self._stale_seconds)

    async def start(self) -> None:
        """Read the store. Sizes that cannot be read count as not measured. Raises :class:`~topom.store.StoreError`."""
        stored = await self._book.read()
        self._version = stored.version
        try:
            self._known = await asyncio.to_thread(size_records.decode, stored)
        except StoreDamaged as error:
            log.warning("sizes_lost", reason=str(error))
            self._known = KnownSizes()
        self._unsure = False

    async def record(self, taking: Taking, sizes: Mapping[int, SlotSize]) -> KnownSizes:
        """Store a measurement; gives what is known then (:func:`topom.balance.sizes.with_measurement`).

        Raises:
            InvalidSizes: it is refused; nothing has changed.
            StoreError: it could not be stored, and does not count.
        """
        async with self._lock:
            if self._unsure:
                await self.start()
            old = self._known
            new = with_measurement(old, taking, sizes, self._number_of_slots, self.clock())
            documents = await asyncio.to_thread(size_records.differences, old, new)
            # This holds until the write is known to be done, also if this task is cancelled meanwhile.
            self._unsure = True
            try:
                await self._book.write(self._version, self._version + 1, documents)
            except StoreError as error:
                log.error("sizes_not_stored", reason=str(error))
                raise
            self._unsure = False
            self._version += 1
            self._known = new
        log.info(
            "sizes_taken",
            slots=len(sizes),
            keys=sum(size.keys for size in sizes.values()),
            bytes=sum(size.bytes for size in sizes.values()),
            complete=taking.complete,
            missing=sorted(taking.missing),
            sampled=taking.sampled,
        )
        return new
