"""How the keys of one call go: whose copy counts, and which replicas have to have them first."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from migrator.connection import Connection
from migrator.errors import TooFewReplicas
from slots.beginning import Beginning
from slots.replies import integer
from slots.reserved import MARKER

CONFIRM_SECONDS = 2.0
"""How long replicas may take to have the keys of one small step: far longer than one that follows its master needs.
Meanwhile no other keys go, and clients wait for these."""

MARKER_SECONDS = 60
"""The life of the marker that is written to be waited for."""

MOST_LAG_BYTES = 256 * 1024 * 1024
"""A replica that is farther behind is not waited for longer: by default, its server drops it. One that has just come
is behind by all that its server ever wrote, as it seems."""

CONFIRM_BYTES = 1024 * 1024
"""Replicas confirm a key that goes in pieces each time so many of its bytes were written: as much as two batches of
small keys. So they bound the pace of the move, and :data:`CONFIRM_SECONDS` holds for the last of these bytes."""

LEAST_BYTES_PER_SECOND = 4 * 1024 * 1024
"""How fast a replica takes what cannot be confirmed as it goes, such as a large string, at least. A server drops a
replica that is much slower: by default, one that is more than 64 MB behind for 60 s, or 256 MB at any moment."""


class Confirmation:
    """How many of a target's replicas have to have a key before it is deleted at its source. One is for one call.

    A target sends its replicas all writes in one stream, so each wait is also for what other steps wrote before.

    Attributes:
        replicas: how many; 0 for none.
    """

    def __init__(self, replicas: int = 0) -> None:
        self.replicas = replicas
        self._owed = 0  # bytes that steps have written, and wait for

    def seconds(self, size: int) -> float:
        """How long a wait for ``size`` bytes that are written now may take; 0 if no replicas are waited for."""
        return CONFIRM_SECONDS + (self._owed + size) / LEAST_BYTES_PER_SECOND if self.replicas else 0.0

    @contextmanager
    def owing(self, size: int) -> Iterator[None]:
        """Waits in this block allow for ``size`` bytes more."""
        self._owed += size
        try:
            yield
        finally:
            self._owed -= size

    async def caught_up(self, target: Connection) -> None:
        """Return once they have what others wrote, which :attr:`_owed` knows nothing of.

        Raises :class:`TooFewReplicas`.
        """
        if not self.replicas:
            return
        # A server from Redis 7.2 on, and each Valkey, waits for what the connection itself has written, and for nothing
        # if that is nothing.
        await target.select(0)
        await target.call("SET", MARKER, secrets.token_hex(16), "EX", MARKER_SECONDS)
        said = await target.info("replication")
        with target.understood("INFO"):
            offset = said.number("master_repl_offset")
            lags = sorted(
                max(0, offset - one.number("offset")) for one in said.replicas if one.get("state") == "online"
            )
        lag = lags[self.replicas - 1] if len(lags) >= self.replicas else 0
        await self.wait(target, min(lag, MOST_LAG_BYTES))

    async def wait(self, target: Connection, size: int) -> None:
        """Return once they have all writes of this connection, the last ``size`` bytes of which they have not
        confirmed yet.

        Raises :class:`TooFewReplicas`.
        """
        if not self.replicas:
            return
        seconds = self.seconds(size)
        with self.owing(size):
            said = await target.call("WAIT", self.replicas, int(seconds * 1000), limit=seconds + target.reply_seconds)
        with target.understood("WAIT"):
            have = integer(said)
        if have < self.replicas:
            raise TooFewReplicas(
                f"target {target.address} has {have} replicas that took the last keys within {seconds:.1f} s, "
                f"and migration_min_replicas is {self.replicas}; the source still has the keys",
                "check the replicas, or set another number with 'slotferry migration set --min-replicas'",
            )


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How the keys of one call go.

    Attributes:
        beginning: the run ids that the action began with; they decide whose copy of a key on both servers counts.
        confirmation: by replicas of the target, before a key is dropped at the source.
        require: called right before keys are dropped at the source. It raises if source or target is no longer the same
            process: a replaced target may have acknowledged keys that its successor does not have.
    """

    beginning: Beginning = field(default_factory=Beginning)
    confirmation: Confirmation = field(default_factory=Confirmation)
    require: Callable[[], None] = lambda: None
