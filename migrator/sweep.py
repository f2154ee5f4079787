"""Deletes a server's keys of slots that the server does not own, and upholds **owned**.

A server may get older data back. It is started from an RDB file from before slots left it, or another server with such
data takes its place. Its keys of these slots are visible to nobody until one of the slots comes back. Then keys that
were deleted long ago would be alive again. So a server is *swept*: every database is scanned for such keys, and they
are deleted.

The server itself records in the hash :data:`slots.reserved.SWEPT` that it was swept, and in which *life*. A life is the
run id of its process and its replication id, which changes once the server has followed another one. During that life,
slots that leave the server leave no keys (**complete**), so it stays swept. A restart, older data, or another master
all show: the life differs from the recorded one, or there is no record.

Each deleting script checks in the same step that the hash still has the token of its sweep. A script may lie in the
socket of a server that stands still, and run at any later time. So before a slot comes to a server, every sweep of it
has ended, or its token was removed; a late script then deletes nothing. A copy by the replication stream
(:mod:`migrator.stream`) takes the server's record away, and a sweep ends the copies that began before it.

The caller decides at the first key which keys may be deleted (:class:`Warrant`). The hash also has the id that the
group's data was given when it was last known to have no foreign keys. Data without that id came from somewhere else,
and it is unknown what it is for.

**bounded**: a script deletes at most :data:`SCRIPT_KEYS` keys, which takes less than a millisecond, because the server
frees large ones in the background (not before Redis 4). The pace is that of moving keys.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import KeysRemain, Refused, ServerUnavailable, SweepOvertaken
from migrator.pace import Throttle
from migrator.progress import Progress
from migrator.scan import Scanner, occupied_databases
from migrator.stream.applying import end_copies
from migrator.terms import MIGRATORS, take
from slots.access import ServerAccess
from slots.connections import RedisClient
from slots.keyslots import KeySlots
from slots.reserved import SWEPT
from slots.scripts import load

log = structlog.get_logger()

SCRIPT_KEYS = 200
MOST_PASSES = 10
"""The most passes that find keys. One is enough, unless a client writes to the server directly."""

_numbers = count(1)

LOOK = load("sweep_look")
BEGIN = load("sweep_begin")
DELETE = load("sweep_delete")
END = load("sweep_end")
STOP = load("sweep_stop")


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A server's record: its life, the life in which it was swept, and the id of its data."""

    life: str
    swept_in: str
    data: str

    def is_swept(self, data: str) -> bool:
        """Whether it has this data, and no key of a slot that it has not owned since it was swept."""
        return bool(self.life and data) and (self.swept_in, self.data) == (self.life, data)


@dataclass(frozen=True, slots=True)
class Swept:
    """A server that is swept, for its present life, and how many keys were deleted."""

    removed: int


class Warrant(Protocol):
    """The caller's knowledge of which keys are foreign. It is asked again each time it matters, because slots go on
    moving."""

    def foreign(self) -> bytes:
        """A byte for each slot, not 0 if its keys certainly belong to another server."""

    async def begin(self, keys: int, known: bool) -> bytes:
        """Say again which keys are foreign, before the first of about ``keys`` is deleted; or refuse, by raising.

        ``known``: whether the server has the data that the group is known to have.
        """

    def hold(self, removed: int) -> None:
        """Raise if the answer of :meth:`begin` no longer holds; ``removed`` keys were deleted by now."""


async def look(client: RedisClient) -> SweepRecord:
    """The record of a server. Errors are those of ``client``."""
    said = await client.execute_command("EVAL", LOOK.text, 1, SWEPT)
    return SweepRecord(*(_text(part) for part in said))


async def sweep(
    address: str,
    data: str,
    warrant: Warrant,
    *,
    key_slots: KeySlots,
    access: ServerAccess,
    pace: Throttle,
    instance: str,
    timeouts: Timeouts | None = None,
    term: int = 0,
) -> Swept:
    """Return once a server is swept; at once if it is.

    Args:
        address: ``host:port`` of a master.
        data: the id of its group's data.
        warrant: says which keys are foreign.
        key_slots: which slot each key of the product has.
        access: how to log in.
        pace: how fast.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.
        term: the term of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        Superseded: a topom of a later term has been there.
        SweepOvertaken: another sweep has begun there, or this one's token was taken away.
        KeysRemain: keys do not go away, pass after pass.
        ServerUnavailable, Refused: as moving keys would.
        The errors of ``warrant``.
    """
    connection = await _open(address, access, instance, timeouts or Timeouts(), term)
    try:
        token = secrets.token_hex(16)
        said = await connection.call("EVAL", BEGIN.text, 1, SWEPT, token, data)
        record = SweepRecord(*(_text(part) for part in said))
        if record.is_swept(data):
            return Swept(0)
        # A sweep that may not be, because slots are being copied there, does not end their copy.
        warrant.foreign()
        # hidden: what is left of a copy by the replication stream is foreign, and nothing may come after the scan.
        await end_copies(connection)
        run = _Run(connection, token, key_slots, pace)
        found = await run.count(warrant.foreign())
        if found:
            foreign = await warrant.begin(found, bool(data) and record.data == data)
            await run.until_gone(foreign, warrant)
        # owned: the recorded process has seen all of the scan, and no part of its data was replaced meanwhile.
        if not await connection.call("EVAL", END.text, 1, SWEPT, token, record.life, data):
            raise SweepOvertaken(_overtaken(address))
        log.info("server_swept", server=address, removed=run.removed)
        return Swept(run.removed)
    finally:
        connection.close()


async def stop(
    address: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None, term: int = 0
) -> None:
    """Return once no earlier sweep can delete anything at a server any more. Raises as :func:`sweep`."""
    connection = await _open(address, access, instance, timeouts or Timeouts(), term)
    try:
        await connection.call("EVAL", STOP.text, 1, SWEPT)
    finally:
        connection.close()


async def _open(address: str, access: ServerAccess, instance: str, timeouts: Timeouts, term: int) -> Connection:
    connection = await Connection.open(
        address,
        name=f"{MIGRATORS}-sweep.{instance}.{next(_numbers)}",
        access=access,
        unavailable=ServerUnavailable,
        refused=Refused,
        timeouts=timeouts,
    )
    try:
        await take(connection, term, instance)
    except BaseException:
        connection.close()
        raise
    return connection


class _Run:
    """One sweep under its token."""

    def __init__(self, connection: Connection, token: str, key_slots: KeySlots, pace: Throttle) -> None:
        self._connection = connection
        self._token = token
        self._key_slots = key_slots
        self._pace = pace
        self.removed = 0

    async def count(self, foreign: bytes) -> int:
        """Count the server's keys of these slots; nothing is deleted."""
        found = 0
        for database in sorted(await occupied_databases(self._connection)):
            scanner = await self._scanner(database, foreign)
            while await scanner.next_page() is not None:
                pass
            found += scanner.found
        return found

    async def until_gone(self, foreign: bytes, warrant: Warrant) -> None:
        """Delete keys of these slots until a pass over all databases finds none."""
        for _ in range(MOST_PASSES):
            found = 0
            for database in sorted(await occupied_databases(self._connection)):
                scanner = await self._scanner(database, foreign)
                while (page := await scanner.next_page()) is not None:
                    await self._delete(database, page, warrant)
                found += scanner.found
            if not found:
                warrant.hold(self.removed)
                return
        raise KeysRemain(
            f"server {self._connection.address} had keys of slots that it does not own in each of {MOST_PASSES} passes",
            "find the client that writes to it directly, not through a proxy",
        )

    async def _scanner(self, database: int, foreign: bytes) -> Scanner:
        await self._connection.select(database)
        return Scanner(self._connection, self._key_slots, database, foreign, self._pace, Progress())

    async def _delete(self, database: int, keys: list[bytes], warrant: Warrant) -> None:
        most = min(SCRIPT_KEYS, self._pace.batch.keys)
        for start in range(0, len(keys), most):
            batch = keys[start : start + most]
            await self._pace.admit(len(batch), 0)
            warrant.hold(self.removed)
            # owned: the deleting step itself checks the token.
            gone = await self._connection.call(
                "EVAL", DELETE.text, 1 + len(batch), SWEPT, *batch, self._token, database
            )
            if gone < 0:
                raise SweepOvertaken(_overtaken(self._connection.address))
            self.removed += gone


def _overtaken(address: str) -> str:
    return f"the sweep of {address} was overtaken by another one, or by a slot that came there; it starts again"


def _text(part: object) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part or "")
