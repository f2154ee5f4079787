"""Moves one batch of keys with the script that every mover runs at a source, see :mod:`slots.moving`.

The script restores the keys at the target and deletes those that arrived, with their TTLs, and nothing else runs at
the source meanwhile: no client sees a key on both servers or on neither. Keys that are no longer there it passes
over; those that are too big to go in one piece it names.
"""

from __future__ import annotations

import asyncio
import random

import hiredis
import structlog

from migrator.connection import Connection, pack, split_address
from migrator.ends import Ends
from migrator.errors import MigrationError, NotApart, SourceRefused, TargetRefused, TargetUnavailable
from migrator.manner import WHOLE, Manner
from slots import moving
from slots.moving import MOVE_SCRIPT, Moved

log = structlog.get_logger()

FROM_TARGET = "ERR Target instance replied with error: "
"""What Redis puts before the target's words."""

MOST_SETTLINGS = 20
"""How often in a row a batch may find its permit gone, because others have attempts of unknown outcome."""


MOST_REST_SECONDS = 0.25
"""How long a batch rests at most after an attempt of unknown outcome."""


class Transfer:
    """Moves batches over a connection to the source.

    Args:
        connection: to the source, with the right database selected.
        checking: to the target, for settling.
        ends: whose target the source reaches by the address there, and gets in at by the access.
        manner: its bounds say what goes in one piece.
    """

    def __init__(
        self,
        connection: Connection,
        checking: Connection,
        ends: Ends,
        manner: Manner,
    ) -> None:
        self._connection = connection
        self._checking = checking
        self._target = ends.target
        self._where = split_address(ends.target)
        self._login = ends.access.migrate_login
        # MIGRATE goes by that setting, in a cluster or not.
        self._hint = "; with TLS, every server needs tls-cluster yes" if ends.access.tls is not None else ""
        self._timeouts = ends.timeouts
        self._manner = manner
        self.permit = ""
        """What it believes to be the permit."""
        self.longest_seconds = 0.0
        """The longest call so far."""

    async def move(
        self, database: int, keys: list[bytes], enough_bytes: int, *, whole: bool = False
    ) -> tuple[Moved, float]:
        """Move keys; give what was done with them and the seconds that the last call took.

        Args:
            enough_bytes: once keys of so many bytes have been found, the rest is left for another call.
            whole: whether keys go in one piece, however big they are.

        Raises:
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: see there. Some of the keys
                may have moved; the others are at the source, and may be at the target as well.
        """
        seconds = self._timeouts.migrate_seconds
        most = self._timeouts.migrate_most_seconds
        if whole:
            seconds = most
        settlings = 0
        while True:
            seconds = min(seconds, most)
            reply = await self._run(database, keys, enough_bytes, seconds, whole)
            took = self._connection.seconds
            self.longest_seconds = max(self.longest_seconds, took)
            if not isinstance(reply, hiredis.ReplyError):
                with self._connection.understood("EVALSHA"):
                    return Moved.of(reply, len(keys)), took
            text = str(reply)
            if text.startswith(moving.UNSETTLED) and settlings < MOST_SETTLINGS:
                settlings += 1
                await self.settle()
            elif text.startswith("IOERR") and "connecting" not in text and seconds < most:
                # The target may have all, some or none of the keys, and the source still has those whose
                # reply it did not get. It did not answer in time or broke off; if it is well, more time helps.
                log.warning(
                    "migrate_outcome_unknown",
                    source=self._connection.address,
                    target=self._target,
                    keys=len(keys),
                    waited_seconds=seconds,
                    reply=text,
                )
                await self.settle()
                # Two servers that send to each other would give up, and begin anew, at the same time for ever.
                await asyncio.sleep(random.uniform(0, min(seconds, MOST_REST_SECONDS)))
                seconds *= 2
            else:
                raise self._failure(text, seconds)

    @property
    def keeps_target(self) -> bool:
        """Whether of a key on both servers the target's copy counts."""
        return self._manner.beginning.keeps_target(*moving.processes_of(self.permit))

    async def end_under_way(self) -> None:
        """See to it that no attempt of unknown outcome, by anybody, can arrive at the target any more, and no flush.

        It does not need the permit: a source that evicts everything evicts that, too.

        Raises as :meth:`move` does.
        """
        reply = await self._run(0, [], 1, self._timeouts.migrate_seconds, False)
        if not isinstance(reply, hiredis.ReplyError):
            return
        if not str(reply).startswith(moving.UNSETTLED):
            raise self._failure(str(reply), self._timeouts.migrate_seconds)
        try:
            # Keys may be gone from the source by a flush that has not come to the target yet (slots/flushes.py).
            await moving.flushes_over(self._connection, self._checking)
            await moving.end_migrations(self._checking)
        except moving.NotSettled as error:
            raise TargetUnavailable(f"target {self._target}: {error}") from error

    async def settle(self) -> None:
        """See to it that nothing of an earlier attempt can arrive any more, and get the permit that holds."""
        try:
            self.permit = await moving.settle(self._connection, self._checking, self._target)
        except moving.SameProcess as error:
            raise NotApart(str(error)) from error
        except moving.NotSettled as error:
            raise TargetUnavailable(f"target {self._target}: {error}") from error

    async def _run(self, database: int, keys: list[bytes], enough_bytes: int, seconds: float, whole: bool) -> object:
        bounds = WHOLE if whole else self._manner.bounds
        arguments = (
            len(keys),
            *keys,
            *moving.move_arguments(
                self.permit,
                self._where,
                database,
                int(seconds * 1000),
                # The permit was compared with the run id over this very connection.
                check=False,
                most_elements=bounds.elements,
                most_bytes=bounds.bytes,
                enough_bytes=enough_bytes,
                wanted=False,
                keeps_target=self.keeps_target,
                login=self._login,
            ),
        )
        # The source waits so long for a step, of which a batch has several; the rest is for its other clients.
        limit = 3 * seconds + self._timeouts.reply_seconds
        (reply,) = await self._connection.send(pack("EVALSHA", MOVE_SCRIPT.digest, *arguments), 1, limit)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            (reply,) = await self._connection.send(pack("EVAL", MOVE_SCRIPT.text, *arguments), 1, limit)
        return reply

    def _failure(self, text: str, seconds: float) -> MigrationError:
        source = self._connection.address
        if text.startswith(FROM_TARGET):
            return TargetRefused(self._target, text.removeprefix(FROM_TARGET))
        if text.startswith("IOERR") and "connecting" in text:
            return TargetUnavailable(
                f"source {source} cannot connect to target {self._target}; "
                f"both have to reach each other by the addresses in the group's list of servers{self._hint} ({text})"
            )
        if text.startswith("IOERR"):
            return TargetUnavailable(
                f"target {self._target} does not take keys within {seconds:g} s{self._hint} ({text})"
            )
        return SourceRefused(source, text)
