"""Writes batches to a target, each of them once (**applied-once**).

With each batch goes its *position*, in one transaction: a text that is unique for the batch, in a reserved key of the
same database. The transaction runs only if the position there is that of the batch before. For this the position is
watched and read before, so whatever changes it, meanwhile or in between, keeps the batch from running.

In the same transaction the batch's keys are counted (:data:`slots.reserved.HIDDEN`), so that DBSIZE leaves them out
(**hidden**).

If no reply comes, the batch may have run, or may still run. Then the position is read again: it says which. A batch
that runs after it was read changes the position, and so keeps the next attempt from running. A transaction runs on
behind a command that is refused, so the position is *in doubt* first. It becomes the batch's own behind the last
command, if the server counts as many error replies as before the first one. If it stays in doubt, and nobody has seen
the replies, the copy is void.

A server is the target of one copy at a time. A copy begins with its position in database 0 (:func:`begin_copy`), and
each first batch in another database needs that as well. So whoever takes the positions away (:func:`end_copies`), that
of database 0 first, ends the copy: whatever an older process has sent, or sends later, runs no more.

Only whoever decides about copies begins one. The process that makes a copy goes on from the position that it finds. So
it may be paused at any point, for any time, also before its first command: it cannot take the place of a later copy,
nor write at a target that has become the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeGuard

import hiredis

from migrator.connection import Connection, checked, pack
from migrator.errors import MigrationError, TargetUnavailable
from migrator.scan import occupied_databases
from slots.kinds import Kind
from slots.reserved import HIDDEN, PIECE, POSITION, SWEPT
from slots.scripts import load

DOUBT = b" in doubt"
"""Behind the position of a batch of which the position does not say that no command was refused. If the server counts
its error replies, their number is behind it."""
ATTEMPTS = 5
"""How often a batch is sent, or its outcome asked for."""
ATTEMPT_SECONDS = 1.0
"""Between two of them."""
PAYLOAD_VERSION = "DUMP payload version"
"""In a server's refusal of a value that a newer server has written."""
MULTI, EXEC = pack("MULTI"), pack("EXEC")
COUNT, HIDE = load("count_copied"), load("hide_left")


class CopyVoid(MigrationError):
    """What the target has of a copy is not what it ought to be. It is deleted, and the copy begins anew."""

    kind = Kind.DATA


class PayloadRefused(CopyVoid):
    """The target is of an older version than the source, and does not read its values."""

    passing = False


class Applier:
    """Writes the batches of one copy.

    Args:
        connect: opens a connection to the target. It raises unless it leads to the process that the copy began with.
        copy: the id of the copy; part of its positions.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], copy: str) -> None:
        self._connect = connect
        self.copy = copy
        self._connection: Connection | None = None
        self._positions = {0: _begun(copy)}
        self._watched: int | None = None
        self._serial = 0
        self._ended = False
        self._turn = asyncio.Lock()

    async def apply(self, database: int, commands: bytes, count: int, at: str) -> list[Any]:
        """Run so many packed commands in a database, once; give their replies.

        If the outcome had to be asked for, there are no replies, and the list is empty. No command was refused then.

        Args:
            at: where in the source's data the batch ends, for whoever looks at the position.

        Raises:
            CopyVoid: the target refused a command or may have done so, or its position is not the one that it has to
                be.
            TargetUnavailable: the target does not answer, time and again. Whether the batch ran is not known.
            MigrationError: what ``connect`` raises.
        """
        async with self._turn:
            self._require_open()
            self._serial += 1
            position = f"{self.copy} {self._serial} {at}".encode()
            for attempt in range(ATTEMPTS):
                if attempt:
                    await asyncio.sleep(ATTEMPT_SECONDS)
                try:
                    found = await self._position(database)
                    if attempt and _has_run(found, position):
                        if found != position:
                            raise CopyVoid(
                                "the replies to a batch of the copy are lost, and the target may have refused a "
                                f"command of it: the position in database {database} is {_shown(found)}"
                            )
                        self._positions[database] = position
                        replies: list[Any] | None = []
                    else:
                        self._require(database, found)
                        replies = await self._run(database, commands, count, position)
                except TargetUnavailable:
                    self._lose()
                    if attempt == ATTEMPTS - 1:
                        raise
                    continue
                if replies is not None:
                    return replies
            raise CopyVoid(f"the position of the copy at {self.copy} changes again and again")

    async def send(self, database: int, parts: AsyncIterator[bytes]) -> None:
        """Run one long command that is about a name of this copy only, and does the same however often it runs. It may
        run late, when the copy has ended, so what it makes has to go by itself.

        Raises:
            CopyVoid: the target refused it, or its position is not the one that it has to be.
            MigrationError: as :meth:`apply`; the command is not sent again.
        """
        async with self._turn:
            self._require_open()
            self._watched = None
            connection = await self._connected()
            self._require(0, await self._watch(connection, 0))
            await connection.call("UNWATCH")
            await connection.select(database)
            reply = await connection.stream(parts)
            if isinstance(reply, hiredis.ReplyError):
                raise _refusal("a value", reply)

    async def end(self, source: Connection) -> None:
        """Return once all positions were what they have to be, and are gone: no batch of this copy runs any more.

        The count of hidden keys goes to the source: whoever holds the lock makes the target the owner next.

        Raises as :meth:`apply`.
        """
        async with self._turn:
            self._require_open()
            # The first is that of database 0, without which no batch is the first in another database.
            for database in sorted(self._positions):
                self._watched = None
                connection = await self._connected()
                await connection.select(database)
                # Slots are locked meanwhile: what need not wait for a reply goes with what comes before it.
                asked = pack("UNWATCH"), pack("WATCH", POSITION), pack("GET", POSITION), pack("HGETALL", HIDDEN)
                *found, hidden = await connection.send(b"".join(asked), len(asked))
                self._require(database, self._read(found))
                if database == 0:
                    await self._hand_count_over(connection, hidden, source)
                names = (POSITION, HIDDEN) if database == 0 else (POSITION,)
                *_, ran = await connection.send(b"".join((MULTI, pack("UNLINK", *names), EXEC)), 3)
                if not isinstance(ran, list):
                    raise CopyVoid(f"somebody else has changed the position of the copy in database {database}")
            self._ended = True

    async def _hand_count_over(self, target: Connection, said: Any, source: Connection) -> None:
        checked(target, [said])
        with target.understood("HGETALL"):
            found = [int(part) for part in said]
            counts = [pair for pair in zip(found[::2], found[1::2], strict=True) if pair[1] > 0]
        hide = [pack("EVAL", HIDE.text, 2, HIDDEN, SWEPT, *pair) for pair in counts]
        await source.select(0)
        checked(source, await source.send(b"".join(hide), len(hide)) if hide else [])

    def close(self) -> None:
        """Close the connection."""
        self._lose()

    async def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _position(self, database: int) -> bytes | None:
        """The position as the target has it, which is watched from then on."""
        if self._watched == database:
            return self._positions[database]
        connection = await self._connected()
        self._watched = None
        await connection.call("UNWATCH")
        if database not in self._positions:
            self._require(0, await self._watch(connection, 0))
        return await self._watch(connection, database)

    async def _watch(self, connection: Connection, database: int) -> bytes | None:
        await connection.select(database)
        return self._read(await connection.send(pack("WATCH", POSITION) + pack("GET", POSITION), 2))

    def _read(self, replies: list[Any]) -> bytes | None:
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise CopyVoid(f'the target does not tell the position of the copy (it said "{reply}")')
        found = replies[-1]
        if found is not None and not isinstance(found, bytes):
            raise CopyVoid(f"the target gives {found!r:.50} as the position of the copy")
        return found

    def _require_open(self) -> None:
        if self._ended:
            raise CopyVoid("the copy has ended")

    def _require(self, database: int, found: bytes | None) -> None:
        expected = self._positions.get(database)
        if found != expected:
            raise CopyVoid(
                f"the position of the copy in database {database} of the target is {_shown(found)} and has to be "
                f"{_shown(expected)}: the target was restarted or emptied, or somebody else writes there"
            )

    async def _run(self, database: int, commands: bytes, count: int, position: bytes) -> list[Any] | None:
        """The replies of a transaction; None if it did not run because the position had changed."""
        connection = await self._connected()
        self._watched = None
        mark = pack("SET", POSITION, position + DOUBT)
        before, behind = (self._counting(database, when, position) for when in ("before", "behind"))
        after = pack("WATCH", POSITION) + pack("GET", POSITION)
        *queued, ran, watching, found = await connection.send(
            b"".join((MULTI, mark, before, commands, behind, EXEC, after)), count + 7
        )
        if ran is None:
            return None
        replies = ran if isinstance(ran, list) else [*queued, ran]
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise _refusal("a command", reply)
        if len(replies) != count + 3:
            raise CopyVoid(f"the target gave {len(replies)} replies to {count + 3} commands of the copy")
        self._positions[database] = position
        found = self._read([watching, found])
        if _has_run(found, position):
            # Nothing was refused: the replies are here. So a server that does not count errors may leave it in doubt.
            self._positions[database] = found
            self._watched = database
        return replies[2:-1]

    def _counting(self, database: int, when: str, position: bytes) -> bytes:
        """The request that counts the database's keys, without one that is not whole yet, and the errors."""
        names = HIDDEN, temporary_name(self.copy), POSITION
        return pack("EVAL", COUNT.text, len(names), *names, database, when, position, DOUBT)

    def _lose(self) -> None:
        self._watched = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def temporary_name(copy: str) -> bytes:
    """The name of a value of a copy that is not whole yet."""
    return PIECE + copy.encode()


async def begin_copy(target: Connection, copy: str) -> None:
    """Let a copy begin at a server, which ends any other. The server does not count as swept from then on
    (:mod:`migrator.sweep`). Raises as its connection."""
    await end_copies(target)
    await target.select(0)
    await target.call("UNLINK", HIDDEN)
    # owned: what is left of the copy is swept, whatever becomes of this process.
    await target.call("HDEL", SWEPT, "swept", "token")
    await target.call("SET", POSITION, _begun(copy))


async def end_copies(target: Connection) -> None:
    """Return once no batch of a copy that began before can run at a server, and what batches have made of unfinished
    values is gone. Raises as its connection.

    A long command of a paused process may still run (:meth:`Applier.send`). What it makes goes by itself.
    """
    # From its end in database 0 on no batch is the first in its database, so none comes behind the look.
    await _end_copies(target, 0)
    for database in sorted(await occupied_databases(target)):
        await _end_copies(target, database)


async def _end_copies(target: Connection, database: int) -> None:
    await target.select(database)
    # The database's own position names the copy: that of database 0 may have been flushed.
    position = await target.call("GET", POSITION)
    if isinstance(position, bytes):
        # A server before Redis 4 has no UNLINK. Nor has it a copy: none begins there.
        copy = position.partition(b" ")[0].decode("ascii", "replace")
        await target.call("UNLINK", POSITION, temporary_name(copy))


def _begun(copy: str) -> bytes:
    return f"{copy} begun".encode()


def _has_run(found: bytes | None, position: bytes) -> TypeGuard[bytes]:
    """Whether a position that was read is that of a batch, be it in doubt."""
    return found is not None and (found == position or found.startswith(position + DOUBT))


def _refusal(what: str, reply: hiredis.ReplyError) -> CopyVoid:
    if PAYLOAD_VERSION in str(reply):
        return PayloadRefused(
            f'the target does not read values as the source writes them (it said "{reply}")',
            "these slots move in another way; a target of the source's version takes a copy",
        )
    return CopyVoid(f'the target refused {what} of the copy (it said "{reply}")')


def _shown(position: bytes | None) -> str:
    return "missing" if position is None else f"'{position.decode(errors='replace')}'"
