"""Moves small keys, a batch at a time: *take*, *place* and *drop* (:mod:`migrator.steps`).

Keys that are gone are skipped. Keys that are too big to go in one piece, and keys that another mover is moving, are
reported.

**bounded**: one batch is held at a time by each call of :meth:`Transfer.move`, of ``enough_bytes`` and one key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import hiredis

from migrator.connection import Connection
from migrator.options import MoveOptions
from migrator.steps import Mover, Permit, run
from slots import moving
from slots.moving import PLACE, TAKE, UNBOUNDED, Taken


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome for each key of a call.

    Attributes:
        looked_at: how many of them, from the first on, were looked at; those not named below are absent.
        moved: how many moved.
        bytes: their memory at the source.
        big: places (from 0) of keys that go in pieces.
        busy: places of keys that another mover is moving.
    """

    looked_at: int
    moved: int
    bytes: int
    big: tuple[int, ...]
    busy: tuple[int, ...]


class Transfer(Mover):
    """Moves batches; :meth:`move` may be called again while another call is under way.

    Args:
        source, target, permit, options: see :class:`migrator.steps.Mover`.
        whole_seconds: how long a step with a key of any size may take.
    """

    def __init__(
        self, source: Connection, target: Connection, permit: Permit, options: MoveOptions, whole_seconds: float
    ) -> None:
        super().__init__(source, target, permit, options, secrets.token_hex(8))
        self._whole_seconds = whole_seconds
        self.longest_seconds = 0.0
        """The longest step so far."""

    async def move(
        self, database: int, keys: list[bytes], enough_bytes: int, *, whole: bool = False
    ) -> tuple[Moved, float]:
        """Move keys; give their outcome and the seconds of the longest step.

        Args:
            enough_bytes: once keys of so many bytes have been found, the rest is left for another call.
            whole: whether keys of any size go in one piece.

        Raises:
            TooFewReplicas: the keys are at the source still, and may be at the target as well.
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: see there. Likewise.
        """

        async def steps(permit: str) -> tuple[Taken, float] | None:
            limit = self._whole_seconds if whole else None
            taken = await self._take(permit, database, keys, enough_bytes, whole, limit)
            if taken is None:
                return None
            seconds = self._source.seconds
            if taken.keys:
                placed = await self._place(permit, database, taken, limit)
                if placed is None:
                    return None
                seconds = max(seconds, placed, self._source.seconds)
            return taken, seconds

        taken, seconds = await self.permit.by(steps)
        self.longest_seconds = max(self.longest_seconds, seconds)
        for error in taken.refused.values():
            raise self._source.refusal(hiredis.ReplyError(error.decode(errors="replace")))
        return Moved(taken.looked_at, len(taken.keys), taken.size, taken.big, taken.busy), seconds

    async def _take(
        self, permit: str, database: int, keys: list[bytes], enough_bytes: int, whole: bool, limit: float | None
    ) -> Taken | None:
        """The keys that were taken; None if the permit does not hold."""
        arguments = moving.take_arguments(
            permit,
            database,
            self._name,
            keys,
            # The permit was compared with the run id over connections to these very processes.
            check=False,
            enough_bytes=min(enough_bytes, UNBOUNDED),
            wanted=False,
            whole=whole,
        )
        reply = await run(self._source, TAKE, arguments, limit)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            return Taken.of(reply, keys)

    async def _place(self, permit: str, database: int, taken: Taken, limit: float | None) -> float | None:
        """Place the taken keys, and drop them at the source. Gives the seconds that the target took, None without the
        permit."""
        keeps_target = self.permit.keeps_target(permit)
        arguments = moving.place_arguments(permit, database, taken, check=False, keeps_target=keeps_target)
        # Other steps may wait for these bytes before the reply is here.
        with self._options.confirmation.owing(taken.size):
            reply = await run(self._target, PLACE, arguments, limit)
        if reply is None:
            return None
        seconds = self._target.seconds
        with self._target.understood("EVALSHA"):
            refused = moving.refused(reply, len(taken.keys))
        placed = [key for place, key in enumerate(taken.keys) if place not in refused]
        others = [taken.keys[place] for place in refused]
        if await self._drop(permit, database, placed, others, size=taken.size) is None:
            return None
        for error in refused.values():
            raise self._target.refusal(hiredis.ReplyError(error.decode(errors="replace")))
        return seconds
