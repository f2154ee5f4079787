"""Takes away keys of slots that a server has and does not own, and upholds **owned**.

A server may get older data back: it is started from an RDB file of before slots left it, or another server with such
data takes its place. What it has of these slots is seen by nobody, until one of them comes back: then keys that were
deleted long ago would be alive again. So a server is *swept*: every database is scanned for such keys, and what is
found is deleted.

That a server was swept stands at the server itself, in the hash :data:`slots.moving.SWEPT`, with the *life* in which
that was done: the run id of its process, and its replication id, which is another one once it has followed another
server. For that life, slots that leave it leave nothing (**complete**), so it stays swept. A restart, older data,
another master: each shows, for the life is another one than the mark says, or there is no mark.

Whatever deletes looks in the same step for the token that its sweep has put into that hash. A script may lie in the
socket of a server that stands still, and run at any later time. So before a slot comes to a server, a sweep of it has
come to its end, or its token was taken away; what is late then deletes nothing.

Whose keys may be deleted is decided by who calls (:class:`Warrant`), at the first key: the hash also has the id that
the group's data was given when it was last known to be without keys of others. Data without that id came from
somewhere else, and nobody knows what it is for.

**bounded**: a script deletes :data:`SCRIPT_KEYS` keys at most, which takes less than a millisecond: the server frees
large ones in its own time (not before Redis 4). The pace is that of moving keys.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import KeysRemain, Refused, ServerUnavailable, SweepOvertaken
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.scan import Scanner, occupied_databases
from migrator.terms import MIGRATORS, take
from slots.access import ServerAccess
from slots.connections import BY_EFFECTS, RedisClient
from slots.moving import SWEPT, UNLINK

log = structlog.get_logger()

SCRIPT_KEYS = 200
MOST_PASSES = 10
"""Passes that find keys; one is enough, unless somebody writes there directly."""

_numbers = count(1)

_SELECT = BY_EFFECTS + "redis.call('SELECT', '0')\n"
_STANDING = """
local life = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. '.' ..
  (string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or '')
local function field(name)
  return redis.call('HGET', KEYS[1], name) or ''
end
"""

LOOK = _SELECT + _STANDING + "return {life, field('swept'), field('data')}"

# A write that is let through at maxmemory comes first; after it a script may write anything.
BEGIN = (
    _SELECT
    + _STANDING
    + """
local data = field('data')
if field('swept') == life and data == ARGV[2] then return {life, life, data} end
redis.call('HDEL', KEYS[1], 'swept')
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {life, '', data}
"""
)
"""Puts the token ARGV[1] in place of any other, unless the server is swept and has the data ARGV[2]."""

DELETE = (
    _SELECT
    + UNLINK
    + """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return -1 end
redis.call('SELECT', ARGV[2])
local gone = 0
for place = 2, #KEYS do
  gone = gone + redis.call('EXISTS', KEYS[place])
  unlink(KEYS[place])
end
return gone
"""
)
"""Deletes the keys after the first in database ARGV[2]; says how many there were, or -1 without the token."""

END = (
    _SELECT
    + _STANDING
    + """
if field('token') ~= ARGV[1] or life ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'token')
redis.call('HSET', KEYS[1], 'swept', ARGV[2])
redis.call('HSET', KEYS[1], 'data', ARGV[3])
return 1
"""
)
STOP = _SELECT + "return redis.call('HDEL', KEYS[1], 'token')"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands at a server: its life, that in which it was swept, and whose data it has."""

    life: str
    swept_in: str
    data: str

    def is_swept(self, data: str) -> bool:
        """Whether it has this data, and no key of a slot that it did not own when it was swept, or since."""
        return bool(self.life and data) and (self.swept_in, self.data) == (self.life, data)


@dataclass(frozen=True, slots=True)
class Swept:
    """A server that is swept, for the life that it has now: how many keys were deleted."""

    removed: int


class Warrant(Protocol):
    """What who has a server swept knows of it. Each is asked again whenever it matters: slots go on moving."""

    def foreign(self) -> bytes:
        """A byte for each slot, not 0 if its keys are another server's, beyond doubt."""

    async def begin(self, keys: int, known: bool) -> bytes:
        """Say once more whose keys are foreign, before the first of about so many is deleted; or refuse, by raising.

        ``known``: whether the server has the data that the group is known to have.
        """

    def hold(self, removed: int) -> None:
        """Raise if what :meth:`begin` said holds no longer; so many keys were deleted by now."""


async def look(client: RedisClient) -> Standing:
    """How a server stands. Errors are those of ``client``."""
    said = await client.execute_command("EVAL", LOOK, 1, SWEPT)
    return Standing(*(_text(part) for part in said))


async def sweep(
    address: str,
    data: str,
    warrant: Warrant,
    *,
    function: str,
    number_of_slots: int,
    access: ServerAccess,
    pace: Pace,
    instance: str,
    timeouts: Timeouts | None = None,
    term: int = 0,
) -> Swept:
    """Return once a server is swept; at once if it is.

    Args:
        address: ``host:port`` of a master.
        data: id of the data that its group has.
        warrant: whose keys are deleted.
        function: the product's slot function, see :mod:`slots.functions`.
        number_of_slots: of the product.
        access: how to get in.
        pace: how fast.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.
        term: of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        Superseded: a topom of a later term has been there.
        SweepOvertaken: another sweep has begun there, or this one's token was taken away.
        KeysRemain: keys do not go away, pass after pass.
        ServerUnavailable, Refused: as moving keys would.
        What ``warrant`` raises.
    """
    connection = await _open(address, access, instance, timeouts or Timeouts(), term)
    try:
        token = secrets.token_hex(16)
        said = await connection.call("EVAL", BEGIN, 1, SWEPT, token, data)
        standing = Standing(*(_text(part) for part in said))
        if standing.is_swept(data):
            return Swept(0)
        run = _Run(connection, token, function, number_of_slots, pace)
        found = await run.count(warrant.foreign())
        if found:
            foreign = await warrant.begin(found, bool(data) and standing.data == data)
            await run.until_gone(foreign, warrant)
        # owned: all of it was seen by the process that is marked, and none of it was replaced meanwhile.
        if not await connection.call("EVAL", END, 1, SWEPT, token, standing.life, data):
            raise SweepOvertaken(_overtaken(address))
        log.info("server_swept", server=address, removed=run.removed)
        return Swept(run.removed)
    finally:
        connection.close()


async def stop(
    address: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None, term: int = 0
) -> None:
    """Return once no sweep of before deletes anything at a server any more. Raises as :func:`sweep`."""
    connection = await _open(address, access, instance, timeouts or Timeouts(), term)
    try:
        await connection.call("EVAL", STOP, 1, SWEPT)
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

    def __init__(self, connection: Connection, token: str, function: str, number_of_slots: int, pace: Pace) -> None:
        self._connection = connection
        self._token = token
        self._function = function
        self._number_of_slots = number_of_slots
        self._pace = pace
        self.removed = 0

    async def count(self, foreign: bytes) -> int:
        """How many keys of these slots the server has; nothing is deleted."""
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
            f"server {self._connection.address} had keys of slots that it does not own in each of {MOST_PASSES} "
            "passes: find the client that writes to it directly, not through a proxy"
        )

    async def _scanner(self, database: int, foreign: bytes) -> Scanner:
        await self._connection.select(database)
        return Scanner(self._connection, self._function, foreign, self._pace, Progress())

    async def _delete(self, database: int, keys: list[bytes], warrant: Warrant) -> None:
        most = min(SCRIPT_KEYS, self._pace.batch_keys)
        for start in range(0, len(keys), most):
            batch = keys[start : start + most]
            await self._pace.admit(len(batch), 0)
            await self._pace.ready()
            warrant.hold(self.removed)
            # owned: by the same mark, in the step that deletes.
            gone = await self._connection.call("EVAL", DELETE, 1 + len(batch), SWEPT, *batch, self._token, database)
            if gone < 0:
                raise SweepOvertaken(_overtaken(self._connection.address))
            self.removed += gone


def _overtaken(address: str) -> str:
    return f"the sweep of {address} was overtaken by another one, or by a slot that came there; it begins anew"


def _text(part: object) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part or "")
