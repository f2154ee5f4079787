"""How the keys of one call go: which in one step and which in pieces, and who has to have them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.connection import Connection
from migrator.errors import TooFewReplicas
from slots.beginning import Beginning
from slots.replies import integer

UNBOUNDED = 1 << 52
"""More than any key has; scripts count in doubles."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How big a key may be that goes in one step, by a look that takes a server no time.

    Attributes:
        elements: of a hash, list, set, sorted set or stream.
        bytes: memory at the source; estimated from a few of a key's elements.
        piece_milliseconds: how long one piece of a bigger one should hold up either server.
    """

    elements: int = 512
    bytes: int = 64 * 1024
    piece_milliseconds: float = 1.0


WHOLE = Bounds(UNBOUNDED, UNBOUNDED)
"""Every key goes in one step."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How many of a target's replicas have to have a key before it is deleted at its source, and how long they have."""

    replicas: int = 0
    seconds: float = 2.0

    async def wait(self, target: Connection) -> None:
        """Return once they have all that was written over this connection. Raises :class:`TooFewReplicas`."""
        if not self.replicas:
            return
        limit = self.seconds + target.reply_seconds
        said = await target.call("WAIT", self.replicas, max(1, int(self.seconds * 1000)), limit=limit)
        with target.understood("WAIT"):
            have = integer(said)
        if have < self.replicas:
            raise TooFewReplicas(
                f"target {target.address} has {have} replicas that took the last keys within {self.seconds:g} s, and "
                f"migration_min_replicas is {self.replicas}; the source has the keys still. See to the replicas, or "
                "set another number with 'slotferry migration set --min-replicas'"
            )


@dataclass(frozen=True, slots=True)
class Manner:
    """How keys go.

    Attributes:
        bounds: of a key that goes in one step; others go in pieces.
        beginning: what the action began with; it tells whose copy counts of a key on both servers.
        confirmation: by replicas of the target, before a key is dropped at the source.
        require: called right before keys are dropped at the source; raises if source or target is not what it was.
            A target that has been replaced may have acknowledged what its successor does not have.
    """

    bounds: Bounds = field(default_factory=Bounds)
    beginning: Beginning = field(default_factory=Beginning)
    confirmation: Confirmation = field(default_factory=Confirmation)
    require: Callable[[], None] = lambda: None
