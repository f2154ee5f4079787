"""Moves small keys, a batch at a time: *take* at the source, *place* at the target, *drop* at the source.

docs/moving-keys.md says how that upholds **absent-first** and **one-way**. Keys that are no longer there it passes
over; those that are too big to go in one piece it names, and those that somebody else is moving.

A connection that is lost ends the call of the migrator (:mod:`migrator.move`), and the next one renews the permit
before it does anything else. So what became of a step is always known here, or no longer matters.

**bounded**: one batch is held at a time by each call of :meth:`Transfer.move`, of ``enough_bytes`` and one key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import hiredis

from migrator.connection import Connection, pack
from migrator.ends import Ends
from migrator.errors import NotApart, TargetUnavailable
from migrator.manner import UNBOUNDED, WHOLE, Bounds, Manner
from slots import moving, permits
from slots.moving import DROP, PLACE, TAKE, UNSETTLED, Script, Taken

MOST_SETTLINGS = 20
"""How often in a row a batch may find that its permit does not hold, because others renew it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of keys.

    Attributes:
        looked_at: how many of them, from the first on, were looked at; those not named below are absent.
        moved: how many moved.
        bytes: their memory at the source.
        big: places (from 0) of those that go in pieces.
        busy: places of those that somebody else is moving.
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
        ends: of both.
        manner: its bounds say what goes in one piece, and who has to have it first.
    """

    def __init__(self, source: Connection, target: Connection, ends: Ends, manner: Manner) -> None:
        self._source = source
        self._target = target
        self._address = ends.target
        self._manner = manner
        self._whole_seconds = ends.timeouts.whole_seconds
        self._mover = secrets.token_hex(8)
        self._renewing = asyncio.Lock()
        self.permit = ""
        """What it believes to be the permit."""
        self.longest_seconds = 0.0
        """The longest step so far."""

    @property
    def keeps_target(self) -> bool:
        """Whether of a key on both servers the target's copy counts."""
        return self._manner.beginning.keeps_target(*permits.processes_of(self.permit))

    async def move(
        self, database: int, keys: list[bytes], enough_bytes: int, *, whole: bool = False
    ) -> tuple[Moved, float]:
        """Move keys; give what was done with them and the seconds that the longest step took.

        Args:
            enough_bytes: once keys of so many bytes have been found, the rest is left for another call.
            whole: whether keys go in one piece, however big they are.

        Raises:
            TooFewReplicas: the keys are at the source still, and may be at the target as well.
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: see there. Likewise.
        """
        bounds = WHOLE if whole else self._manner.bounds
        limit = self._whole_seconds if whole else None
        for _ in range(MOST_SETTLINGS):
            permit = self.permit
            taken = await self._take(permit, database, keys, enough_bytes, bounds, limit)
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
        """The error of who has renewed the permit :data:`MOST_SETTLINGS` times in a row."""
        return TargetUnavailable(
            f"the permit to move keys from {self._source.address} to {self._address} did not last in "
            f"{MOST_SETTLINGS} attempts: others renew it all the time"
        )

    async def _take(
        self, permit: str, database: int, keys: list[bytes], enough_bytes: int, bounds: Bounds, limit: float | None
    ) -> Taken | None:
        """What was taken; None if the permit does not hold."""
        arguments = moving.take_arguments(
            permit,
            database,
            self._mover,
            keys,
            # The permit was compared with the run id over connections to these very processes.
            check=False,
            most_elements=bounds.elements,
            most_bytes=bounds.bytes,
            enough_bytes=min(enough_bytes, UNBOUNDED),
            wanted=False,
        )
        reply = await _run(self._source, TAKE, arguments, limit)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            return Taken.of(reply, keys)

    async def _place(self, permit: str, database: int, taken: Taken, limit: float | None) -> float | None:
        """Place what was taken, and drop it at the source; the seconds of the longest step, None without the permit."""
        keeps_target = self._manner.beginning.keeps_target(*permits.processes_of(permit))
        arguments = moving.place_arguments(permit, database, taken, check=False, keeps_target=keeps_target)
        reply = await _run(self._target, PLACE, arguments, limit)
        if reply is None:
            return None
        seconds = self._target.seconds
        with self._target.understood("EVALSHA"):
            refused = moving.refused(reply, len(taken.keys))
        moved = [key for place, key in enumerate(taken.keys) if place not in refused]
        if moved:
            # What is not confirmed is not given back either: the next call renews the permit.
            await self._manner.confirmation.wait(self._target)
        keys = [*moved, *(taken.keys[place] for place in refused)]
        arguments = moving.drop_arguments(permit, database, self._mover, keys, check=False, deletes=len(moved))
        # By now the target may have another master, which does not know of what was placed. The source may keep the
        # other batch waiting for long.
        reply = await _run(self._source, DROP, arguments, require=self._manner.require)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            moving.dropped(reply, len(taken.keys))
        for error in refused.values():
            raise self._target.refusal(hiredis.ReplyError(error.decode(errors="replace")))
        return seconds

    async def renew(self, doubted: str | None = None, *, anew: bool = False) -> None:
        """Get the permit that holds, another one than ``doubted``; nothing of before can do anything after that.

        Args:
            doubted: by default :attr:`permit`. Who found that it does not hold says which one he had: another batch
                may have a new one already.
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
            except permits.NotSettled as error:
                raise TargetUnavailable(f"target {self._address}: {error}") from error

    async def withdraw(self) -> None:
        """Once the source was seen to have no key left: nothing can arrive any more, and no flush is under way.

        Raises as :meth:`renew` does.
        """
        try:
            # Keys may be gone from the source by a flush that has not come to the target yet (slots/flushes.py).
            await permits.flushes_over(self._source, self._target)
        except permits.NotSettled as error:
            raise TargetUnavailable(f"target {self._address}: {error}") from error
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
        if str(reply).startswith(UNSETTLED):
            return None
        raise server.refusal(reply)
    return reply
