"""Times and counts the calls of a store, for ``/metrics``."""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric

from topom.store import BOOKS, STATE, Book, Leader, Leadership, Store, StoreConflict, Stored, StoreError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram, in seconds."""
Result = TypeVar("Result")


class StoreTimes:
    """How long one process's calls of its store took, and how many failed."""

    def __init__(self) -> None:
        self._seconds = Histogram(
            "slotferry_topom_store_seconds",
            "How long calls of the store took, also those that failed.",
            ["operation"],
            registry=None,
            buckets=BUCKETS,
        )
        self._errors = Counter(
            "slotferry_topom_store_errors",
            "Calls of the store that failed; `conflict`: somebody else had written.",
            ["operation", "kind"],
            registry=None,
        )

    async def timed(self, operation: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Do ``work``, and time it."""
        with self._seconds.labels(operation).time():
            try:
                return await work
            except StoreConflict:
                self._errors.labels(operation, "conflict").inc()
                raise
            except StoreError:
                self._errors.labels(operation, "failed").inc()
                raise

    def collect(self) -> Iterable[Metric]:
        """The metrics for Prometheus."""
        return [*self._seconds.collect(), *self._errors.collect()]


class _TimedBook(Book):
    def __init__(self, book: Book, times: StoreTimes, name: str) -> None:
        self._book = book
        self._times = times
        self._of = "" if name == STATE else f"_{name}"

    async def read(self) -> Stored:
        return await self._times.timed(f"read{self._of}", self._book.read())

    async def catch_up(self) -> Stored:
        return await self._times.timed(f"read{self._of}", self._book.catch_up())

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        await self._times.timed(f"write{self._of}", self._book.write(expected, version, documents))


class TimedStore(Store):
    """A store as one process uses it. Calls that wait for others (``watch``, ``campaign``) are not timed."""

    def __init__(self, store: Store, times: StoreTimes) -> None:
        self.shared = store.shared
        self._store = store
        self._times = times
        self._books = {name: _TimedBook(store.book(name), times, name) for name in BOOKS}

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    def book(self, name: str) -> Book:
        return self._books[name]

    async def watch(self, version: int, seconds: float) -> int:
        return await self._store.watch(version, seconds)

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Leadership:
        return await self._store.campaign(instance, url, lease_seconds)

    async def leader(self) -> Leader | None:
        return await self._times.timed("leader", self._store.leader())
