"""Moves one batch of keys with MIGRATE.

MIGRATE restores the keys at the target and deletes from the source those that arrived, with their TTLs,
and nothing else runs at the source meanwhile: no client sees a key on both servers or on neither. Keys
that are no longer there it passes over.

It goes without REPLACE first. If the target has a key of that name (BUSYKEY), it is left from an attempt
whose outcome the source did not learn, or from before the slot lived at the source. Clients cannot have
made it: **absent-first** keeps them from the target as long as the source has the key, and by **one-way**
a key that has left the source does not come back. So the source's copy is the truth, and the batch goes
again with REPLACE; what had arrived at the first try is not at the source any more and is not touched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
import structlog

from migrator.connection import Connection, Timeouts, pack, split_address
from migrator.errors import MigrationError, SourceRefused, TargetRefused, TargetUnavailable
from slots.access import ServerAccess

log = structlog.get_logger()

FROM_TARGET = "ERR Target instance replied with error: "
"""What Redis puts before the target's words."""


class Transfer:
    """Moves batches over a connection to the source.

    Args:
        connection: to the source, with the right database selected.
        target: ``host:port``, as the source reaches it.
        access: how the source gets in at the target.
        settle: called with the bytes of a batch whose outcome is unknown; returns once the target has dealt
            with all of it that reached it, and raises if the target does not answer.
    """

    def __init__(
        self,
        connection: Connection,
        target: str,
        access: ServerAccess,
        timeouts: Timeouts,
        settle: Callable[[int], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._target = target
        host, port = split_address(target)
        self._where: tuple[str | int, ...] = (host, port, "")
        self._credentials = access.migrate_login
        # MIGRATE goes by that setting, in a cluster or not.
        self._hint = "; with TLS, every server needs tls-cluster yes" if access.tls is not None else ""
        self._timeouts = timeouts
        self._settle = settle
        self.replaced = 0
        """Batches in which the target had a stale copy."""
        self.longest_seconds = 0.0
        """The longest MIGRATE so far."""

    async def move(self, database: int, keys: list[bytes], size: int) -> tuple[bool, float]:
        """Move keys; say whether any was there, and the seconds the last MIGRATE took.

        Args:
            size: bytes the keys take at the source, which set how long the target may take.

        Raises:
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: see there. Some of the keys
                may have moved; the others are at the source, and may be at the target as well.
        """
        seconds = self._timeouts.migrate_seconds + size / self._timeouts.migrate_bytes_per_second
        most = self._timeouts.migrate_most_seconds
        replace = False
        while True:
            seconds = min(seconds, most)
            reply = await self._migrate(database, keys, seconds, replace)
            took = self._connection.seconds
            self.longest_seconds = max(self.longest_seconds, took)
            if not isinstance(reply, hiredis.ReplyError):
                return reply != b"NOKEY", took
            text = str(reply)
            if not replace and text.startswith(FROM_TARGET + "BUSYKEY"):
                replace = True  # one-way, absent-first: see above
                self.replaced += 1
            elif text.startswith("IOERR") and "connecting" not in text and seconds < most:
                # The target may have all, some or none of the keys, and the source still has those whose
                # reply it did not get. It did not answer in time or broke off; if it is well, more time helps.
                log.warning(
                    "migrate_outcome_unknown",
                    source=self._connection.address,
                    target=self._target,
                    keys=len(keys),
                    bytes=size,
                    waited_seconds=seconds,
                    reply=text,
                )
                await self._settle(size)
                seconds *= 2
            else:
                raise self._failure(text, seconds)

    async def _migrate(self, database: int, keys: list[bytes], seconds: float, replace: bool) -> Any:
        command = pack(
            "MIGRATE",
            *self._where,
            database,
            int(seconds * 1000),
            *(("REPLACE",) if replace else ()),
            *self._credentials,
            "KEYS",
            *keys,
        )
        # The source waits so long for a step, of which a batch has several; the rest is for its other clients.
        limit = 3 * seconds + self._timeouts.reply_seconds
        (reply,) = await self._connection.send(command, 1, limit)
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
