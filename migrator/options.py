"""How the keys of one call go: whose copy counts, and which replicas have to have them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.connection import Connection
from migrator.errors import TooFewReplicas
from slots.beginning import Beginning
from slots.replies import integer

CONFIRM_SECONDS = 2.0
"""How long replicas may take to have the keys of one step: far longer than one that follows its master needs. Meanwhile
no other keys go, and clients wait for these."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How many of a target's replicas have to have a key before it is deleted at its source."""

    replicas: int = 0

    async def wait(self, target: Connection) -> None:
        """Return once they have all writes of this connection. Raises :class:`TooFewReplicas`."""
        if not self.replicas:
            return
        limit = CONFIRM_SECONDS + target.reply_seconds
        said = await target.call("WAIT", self.replicas, int(CONFIRM_SECONDS * 1000), limit=limit)
        with target.understood("WAIT"):
            have = integer(said)
        if have < self.replicas:
            raise TooFewReplicas(
                f"target {target.address} has {have} replicas that took the last keys within {CONFIRM_SECONDS:g} s, "
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
