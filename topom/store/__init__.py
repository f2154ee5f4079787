"""The store: books of named documents, each under one version, changed only by compare-and-swap.

The interface is what a consistent store of any kind can do in one transaction: compare the version, put some
documents, delete some, set the version. Documents are small (see :mod:`topom.cluster.records`), so that a store
with a limit on the size of a value or of a transaction can hold them.

**epochs**: a write made from another version than the stored one changes nothing, so a topom that lost its
place can do no harm.

A store that several topoms share also says which of them leads: one that holds a *lease* there, renewed all the time.
Whoever leads has to write to the store before it believes in its place: only the version keeps one that was paused from
doing harm (**epochs**), the lease merely keeps two from getting into each other's way.

May import: reasons, errors.

To change

- what a store has to be able to do: this module;
- one kind of store: :mod:`~topom.store.sqlite`, :mod:`~topom.store.etcd` (its API: :mod:`~topom.store.etcd_gateway`),
  :mod:`~topom.store.zookeeper` (its session: :mod:`~topom.store.zookeeper_session`); which one is opened:
  :mod:`topom.term.stores`; which ones the settings allow: :mod:`topom.term.settings`;
- a test that every kind of store has to pass: ``tests/integration/stores``;
- what etcd and ZooKeeper have in common: :mod:`~topom.store.books` (documents), :mod:`~topom.store.shared` (elections),
  :mod:`~topom.store.lease`;
- what one that led may still do: :mod:`~topom.store.leading`;
- what is measured of a store: :mod:`~topom.store.timed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from topom.errors import Unavailable


class StoreError(Unavailable):
    """The store failed. Whether the last write is in it may be unknown until it is read again."""


class StoreConflict(StoreError):
    """The store is at another version than the write was made from: another topom has written to it."""


class StoreDamaged(StoreError):
    """What the store holds cannot be read."""


STATE, SIZES = BOOKS = ("documents", "sizes")
"""The books of a store: of the cluster's state, and of the sizes of slots (:mod:`topom.balance.size_records`)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All documents of a book as of ``version``; version 0 and no documents for one never written to."""

    version: int
    documents: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads. ``instance``: 32 hex digits; ``url``: of its API (``http://host:port``); ``term``: grows with each
    election."""

    instance: str
    url: str
    term: int


class Leadership(Protocol):
    """The place of the leader, held from the election until ``lost`` is set, for good.

    Attributes:
        leader: what was announced.
        lost: set as soon as the lease may have ended (a lease after the last renewal that the store confirmed was
            asked for, by this machine's clock), or is known to be gone.
    """

    leader: Leader
    lost: asyncio.Event

    def valid(self) -> bool:
        """Whether the lease still holds, by the clock as it is now; sets ``lost`` if it does not.

        A process that was paused may run other tasks before the one that sets ``lost``: ask here, which is cheap and
        waits for nothing, directly before what only a leader may do.
        """

    async def resign(self) -> None:
        """Give the place up at once, so that others need not wait for the lease to end. Never raises."""


class Book(Protocol):
    """Documents under a version of their own."""

    async def read(self) -> Stored:
        """Everything, of one version. Raises :class:`StoreError`."""

    async def catch_up(self) -> Stored:
        """The same, for who reads again and again: a store may give what has not changed since from memory."""
        return await self.read()

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        """Put these documents (delete those that are None) and set the version, all or nothing, and durably.

        Of the book of :data:`SIZES`, a store that cannot put so many in one transaction may put them in several, and
        set the version with the last: after a failure some are then newer than others, as each says.

        Raises:
            StoreConflict: nothing was written, for the stored version is not ``expected``.
            StoreError: the outcome is unknown.
        """


class Store(Protocol):
    """What topom needs of a store. No method blocks the event loop; each has a time limit of its own."""

    shared: bool
    """Whether several topoms may use it."""

    async def open(self) -> None:
        """Make ready to read and write. Raises :class:`StoreError`."""

    def book(self, name: str) -> Book:
        """One of the :data:`BOOKS`."""

    async def watch(self, version: int, seconds: float) -> int:
        """The version of the state as soon as it differs from ``version``, or as it is after ``seconds``.

        Raises:
            StoreError: the store cannot be asked.
        """

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Leadership:
        """Wait until this instance leads. Cancelled, it stands for nothing any more.

        While the store fails, it is tried again with growing waits. Another leads at the latest ``2 * lease_seconds``
        after the last renewal of a leader that has died, while the store works.
        """

    async def leader(self) -> Leader | None:
        """Who leads now; None for nobody. Raises :class:`StoreError`."""

    async def close(self) -> None:
        """Let go of what :meth:`open` took. Never raises."""
