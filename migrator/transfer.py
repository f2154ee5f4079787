"""Moves small keys, a batch at a time: *take* at the source, *place* at the target, *drop* at the source.

docs/moving-keys.md says how that upholds **absent-first** and **one-way**. Keys that are gone are skipped. Keys that
are too big to go in one piece, and keys that another mover is moving, are reported.

A lost connection ends the call of the migrator (:mod:`migrator.move`), and the next call renews the permit before
anything else. So the outcome of a step is always known here, or no longer matters.

**bounded**: one batch is held at a time by each call of :meth:`Transfer.move`, of ``enough_bytes`` and one key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import hiredis

from migrator.connection import Connection, pack
from migrator.errors import NotApart, TargetUnavailable
from migrator.options import MoveOptions
from migrator.pair import ServerPair
from slots import moving, permits
from slots.kinds import Kind
from slots.moving import DROP, PLACE, TAKE, UNBOUNDED, Taken
from slots.scripts import NOT_PERMITTED, Script

MOST_RENEWALS = 20
"""How many times in a row a batch may find that its permit does not hold, because others renew it."""


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


class Transfer:
    """Moves batches; :meth:`move` may be called again while another call is under way.

    Args:
        source: a connection to it.
        target: a connection to it.
        pair: of both.
        options: they say whose copy counts, and how many replicas have to have the keys first.
    """

    def __init__(self, source: Connection, target: Connection, pair: ServerPair, options: MoveOptions) -> None:
        self._source = source
        self._target = target
        self._address = pair.target
        self._options = options
        self._whole_seconds = pair.timeouts.whole_seconds
        self._mover = secrets.token_hex(8)
        self._renewing = asyncio.Lock()
        self.permit = ""
        """The permit that is believed to hold."""
        self.longest_seconds = 0.0
        """The longest step so far."""

    @property
    def keeps_target(self) -> bool:
        """Whether the target's copy of a key on both servers counts."""
        return self._options.beginning.keeps_target(*permits.processes_of(self.permit))

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
        limit = self._whole_seconds if whole else None
        for _ in range(MOST_RENEWALS):
            permit = self.permit
            taken = await self._take(permit, database, keys, enough_bytes, whole, limit)
            seconds = self._source.seconds
            if taken is None:
                await self.renew(permit)
                continue
            if taken.keys:
                done = await self._place(permit, database, taken, limit)
                if done is None:
                    await self.renew(permit)
                    continue
                seconds = max(seconds, done, self._source.seconds)
            self.longest_seconds = max(self.longest_seconds, seconds)
            for error in taken.refused.values():
                raise self._source.refusal(hiredis.ReplyError(error.decode(errors="replace")))
            return Moved(taken.looked_at, len(taken.keys), taken.size, taken.big, taken.busy), seconds
        raise self.without_permit()

    def without_permit(self) -> TargetUnavailable:
        """The error after :data:`MOST_RENEWALS` renewals of the permit in a row."""
        return TargetUnavailable(
            f"the permit to move keys from {self._source.address} to {self._address} did not last in "
            f"{MOST_RENEWALS} attempts: others renew it all the time"
        )

    async def _take(
        self, permit: str, database: int, keys: list[bytes], enough_bytes: int, whole: bool, limit: float | None
    ) -> Taken | None:
        """The keys that were taken; None if the permit does not hold."""
        arguments = moving.take_arguments(
            permit,
            database,
            self._mover,
            keys,
            # The permit was compared with the run id over connections to these very processes.
            check=False,
            enough_bytes=min(enough_bytes, UNBOUNDED),
            wanted=False,
            whole=whole,
        )
        reply = await _run(self._source, TAKE, arguments, limit)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            return Taken.of(reply, keys)

    async def _place(self, permit: str, database: int, taken: Taken, limit: float | None) -> float | None:
        """Place the taken keys, and drop them at the source. Gives the seconds of the longest step, None without the
        permit."""
        keeps_target = self._options.beginning.keeps_target(*permits.processes_of(permit))
        arguments = moving.place_arguments(permit, database, taken, check=False, keeps_target=keeps_target)
        reply = await _run(self._target, PLACE, arguments, limit)
        if reply is None:
            return None
        seconds = self._target.seconds
        with self._target.understood("EVALSHA"):
            refused = moving.refused(reply, len(taken.keys))
        moved = [key for place, key in enumerate(taken.keys) if place not in refused]
        if moved:
            # A claim that is not confirmed is not given back either: the next call renews the permit.
            await self._options.confirmation.wait(self._target, taken.size)
        keys = [*moved, *(taken.keys[place] for place in refused)]
        arguments = moving.drop_arguments(permit, database, self._mover, keys, check=False, deletes=len(moved))
        # By now the target may have another master, which does not have the placed keys. The source may let the other
        # batch wait for long.
        reply = await _run(self._source, DROP, arguments, require=self._options.require)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            moving.dropped(reply, len(taken.keys))
        for error in refused.values():
            raise self._target.refusal(hiredis.ReplyError(error.decode(errors="replace")))
        return seconds

    async def renew(self, doubted: str | None = None, *, anew: bool = False) -> None:
        """Get the permit that holds, other than ``doubted``; after that, steps with an earlier permit have no effect.

        Args:
            doubted: by default :attr:`permit`. A batch that found its permit not to hold passes that permit: another
                batch may have a new one already.
            anew: for the first of a call, see :func:`slots.permits.renew`.

        Raises:
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused, NotApart: see there.
        """
        if doubted is None:
            doubted = self.permit
        async with self._renewing:
            if self.permit != doubted:
                return
            try:
                self.permit = await permits.renew(self._source, self._target, self._address, doubted, anew=anew)
            except permits.SameProcess as error:
                raise NotApart(str(error)) from error
            except permits.NoPermit as error:
                raise TargetUnavailable(f"target {self._address}: {error}", kind=Kind.BUSY) from error

    async def withdraw(self) -> None:
        """Withdraw the permit once the source has no key left: then nothing can arrive any more, and no flush is under
        way.

        Raises as :meth:`renew` does.
        """
        try:
            # A flush that has not reached the target yet may have removed keys from the source (slots/flushes.py).
            await permits.flushes_over(self._source, self._target)
        except permits.NoPermit as error:
            raise TargetUnavailable(f"target {self._address}: {error}", kind=Kind.BUSY) from error
        await permits.withdraw(self._source, self._target)


async def _run(
    server: Connection,
    script: Script,
    arguments: tuple[str | bytes | int, ...],
    limit: float | None = None,
    require: Callable[[], None] = lambda: None,
) -> object:
    """The reply of a script; None if its permit does not hold. Raises what :meth:`Connection.call` does."""
    (reply,) = await server.send(pack("EVALSHA", script.digest, *arguments), 1, limit, require)
    if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
        (reply,) = await server.send(pack("EVAL", script.text, *arguments), 1, limit, require)
    if isinstance(reply, hiredis.ReplyError):
        if str(reply).startswith(NOT_PERMITTED):
            return None
        raise server.refusal(reply)
    return reply
