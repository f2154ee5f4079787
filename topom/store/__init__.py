"""The store: books of named documents, each under one version, changed only by compare-and-swap.

The interface asks only for what any consistent store can do in one transaction: compare the version, put some
documents, delete some, set the version. Documents are small (see :mod:`topom.cluster.records`), so that a store that
limits the size of a value or of a transaction can hold them.

**epochs**: a write that was made from another version than the stored one changes nothing. So a topom that has lost its
place can do no harm.

A store that several topoms share also says which of them leads: the one that holds a *lease* there, and renews it all
the time. A new leader has to write to the store before it trusts its place. Only the version keeps a topom that was
paused from doing harm (**epochs**). The lease only keeps two topoms out of each other's way.

May import: reasons, errors.

To change

- what a store must be able to do: this module;
- one kind of store: :mod:`~topom.store.sqlite`, :mod:`~topom.store.etcd` (its API: :mod:`~topom.store.etcd_gateway`),
  :mod:`~topom.store.zookeeper` (its session: :mod:`~topom.store.zookeeper_session`); which one is opened:
  :mod:`topom.term.stores`; which ones the settings allow: :mod:`topom.term.settings`;
- a test that every kind of store has to pass: ``tests/integration/stores``;
- what etcd and ZooKeeper have in common: :mod:`~topom.store.books` (documents), :mod:`~topom.store.shared` (elections),
  :mod:`~topom.store.lease`;
- what a former leader may still do: :mod:`~topom.store.leading`;
- what is measured of a store: :mod:`~topom.store.timed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from slots.formats import STORE, WRITER
from slots.kinds import Kind
from topom.errors import Unavailable


class StoreError(Unavailable):
    """The store failed. It may be unknown whether the last write is in it, until it is read again."""


class StoreConflict(StoreError):
    """The store is at another version than the write was made from: another topom has written to it."""


class StoreDamaged(StoreError):
    """What the store holds cannot be read."""


class StoreOfAnotherFormat(StoreError):
    """Another version of topom has written the store, in a format that this one does not read."""

    kind = Kind.OPERATOR


def require_format(found: object) -> None:
    """Each store looks here before it reads or makes anything. Raises :class:`StoreOfAnotherFormat`."""
    if not STORE.reads(found):
        raise StoreOfAnotherFormat(
            STORE.refusal("the store", found), f"{WRITER}, or another data folder or prefix of the store"
        )


STATE, SIZES = BOOKS = ("documents", "sizes")
"""The books of a store: the cluster's state, and the sizes of slots (:mod:`topom.balance.size_records`)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All documents of a book at ``version``; version 0 and no documents for a book that was never written to."""

    version: int
    documents: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leader:
    """The topom that leads. ``instance``: 32 hex digits; ``url``: the URL of its API (``http://host:port``); ``term``:
    grows with each election.
    """

    instance: str
    url: str
    term: int


class Leadership(Protocol):
    """The place of the leader. It is held from the election until ``lost`` is set, which is for good.

    Attributes:
        leader: what it announced.
        lost: set as soon as the lease may have ended, or is known to be gone. It may have ended once its time has
            passed, by this machine's clock, since the process asked for the last renewal that the store confirmed.
    """

    leader: Leader
    lost: asyncio.Event

    def valid(self) -> bool:
        """Whether the lease still holds, by the clock now; sets ``lost`` if it does not.

        A process that was paused may run other tasks before the one that sets ``lost``. So ask here right before
        anything that only a leader may do: the call is cheap and waits for nothing.
        """

    async def resign(self) -> None:
        """Give up the place at once, so that others need not wait until the lease ends. Never raises."""


class Book(Protocol):
    """Documents with a version of their own."""

    async def read(self) -> Stored:
        """All documents, as of one version. Raises :class:`StoreError`."""

    async def catch_up(self) -> Stored:
        """The same, for a caller that reads again and again: what has not changed may come from memory."""
        return await self.read()

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        """Put these documents (delete those that are None) and set the version, all or nothing, and durably.

        In the book :data:`SIZES`, a store that cannot put so many documents in one transaction may use several, and set
        the version with the last. After a failure some documents are then newer than others, and each says how old it
        is.

        Raises:
            StoreConflict: the stored version is not ``expected``; nothing was written.
            StoreError: the outcome is unknown.
        """


class Store(Protocol):
    """What topom needs from a store. No method blocks the event loop; each has a time limit of its own."""

    shared: bool
    """Whether several topoms may use it."""

    async def open(self) -> None:
        """Get ready to read and write. Raises :class:`StoreError`."""

    def book(self, name: str) -> Book:
        """One of the :data:`BOOKS`."""

    async def watch(self, version: int, seconds: float) -> int:
        """The version of the state, as soon as it differs from ``version``, or at the latest after ``seconds``.

        Raises:
            StoreError: the store cannot be asked.
        """

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Leadership:
        """Wait until this instance leads. If this is cancelled, the instance is not a candidate.

        While the store fails, the call tries again with growing waits. If a leader dies and the store works, another
        topom leads at the latest ``2 * lease_seconds`` after the last renewal.
        """

    async def leader(self) -> Leader | None:
        """The leader of now; None if there is none. Raises :class:`StoreError`."""

    async def close(self) -> None:
        """Release what :meth:`open` took. Never raises."""
