"""What all stores have in common that several topoms can share: books for documents and sizes, and elections."""

import asyncio
import json
from abc import abstractmethod

import structlog

from slots.backoff import Backoff
from topom.store import SIZES, STATE, Book, Leader, Store, StoreDamaged, StoreError
from topom.store.books import Cells, CellsBook
from topom.store.lease import Lease

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 1.0
"""Seconds before the store is tried again in a watch or a campaign."""
LOOK_SECONDS = 2.0
"""Seconds between two looks at what a watch should have told."""


class SharedStore(Store):
    """A :class:`~topom.store.Store` over :class:`~topom.store.books.Cells`."""

    shared = True

    def __init__(self, cells: Cells) -> None:
        self._state = CellsBook(cells, STATE)
        self._books = {STATE: self._state, SIZES: CellsBook(cells, SIZES, piecemeal=True)}
        self._leases: set[Lease] = set()

    def book(self, name: str) -> Book:
        return self._books[name]

    async def watch(self, version: int, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        for_nothing: int | None = None  # the mark at which a wait ended at once
        while True:
            mark, stored = await self._state.look()
            if stored != version or loop.time() >= end:
                return stored
            if mark == for_nothing:  # the server that should tell us is gone
                await asyncio.sleep(min(max(0.0, end - loop.time()), backoff.next()))
            began = loop.time()
            # A server that hangs, or is cut off from the others, tells nothing.
            await self._changed(mark, max(0.0, min(end - began, LOOK_SECONDS)))
            for_nothing = mark if loop.time() - began < FIRST_WAIT_SECONDS else None

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Lease:
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        said = ""
        while True:
            try:
                lease = await self._stand(instance, url, lease_seconds)
            except StoreError as error:
                if said != str(error):
                    log.warning("campaign_failed", reason=str(error))
                said = str(error)
                await asyncio.sleep(backoff.next())
            else:
                self._leases = {held for held in self._leases if not held.lost.is_set()} | {lease}
                log.info("elected", term=lease.leader.term, lease_seconds=lease_seconds)
                return lease

    async def close(self) -> None:
        for lease in self._leases:
            await lease.resign()
        await self._disconnect()

    @abstractmethod
    async def _changed(self, mark: int, seconds: float) -> None:
        """Wait until the documents' mark may be another than ``mark``, at most ``seconds``. Never raises."""

    @abstractmethod
    async def _stand(self, instance: str, url: str, lease_seconds: float) -> Lease:
        """Wait until this instance leads. Raises :class:`StoreError`; then the instance is not a candidate."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection to the store. Never raises."""


def announcement(instance: str, url: str) -> bytes:
    """What a leader, or a candidate, puts into the store."""
    return json.dumps({"instance": instance, "url": url}).encode()


def announced(value: bytes, term: int) -> Leader:
    """The leader that an announcement names. Raises :class:`StoreDamaged`."""
    try:
        stored = json.loads(value)
        return Leader(str(stored["instance"]), str(stored["url"]), term)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreDamaged(f"the leader in the store cannot be read ({error!r}); remove that entry") from error
