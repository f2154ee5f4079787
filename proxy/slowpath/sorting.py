"""SORT and SORT_RO whose BY and GET patterns name keys (:mod:`slots.sorting`).

At rest they are sent as any other command. While the slot migrates, **absent-first** asks for the named keys too, and
these follow from what is in the list. So the list is watched at the target on a connection of the session's own and
read, the keys that it names are moved, and the SORT is run as a transaction: if the list was changed meanwhile nothing
has run, and all begins anew. A SORT that has run has found each of its keys where it was looked for.

**bounded**: in keys by :data:`MOST_KEYS`, in attempts by :data:`ATTEMPTS`, each step as any move and any reply.
**drained**: the slot counts as in use until the last step is over, whatever becomes of the client. **in-order**: it
waits until everything owed to the session is answered.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import hiredis

from proxy.engine.backend import command
from proxy.engine.router import MIGRATING
from proxy.engine.session import AFTER_OWED, AGAIN, Cleared, Session, Waiting
from proxy.ownconnections import OwnConnection, OwnConnectionError
from proxy.slowpath import replies
from proxy.slowpath.family import Family, Handler, Outcome
from proxy.slowpath.services import Services
from slots import commands, sorting
from slots.sorting import Pattern

MOST_KEYS = 10_000
"""Keys that one SORT may name by its patterns while its slot migrates."""
ATTEMPTS = 5

UNWATCH = command(("UNWATCH",))
QUEUED = b"+QUEUED\r\n"
RAN = b"*1\r\n"
CHANGED = (b"*-1\r\n", b"_\r\n")
TOO_MANY = (
    b"-TRYAGAIN the patterns of SORT name more than %d keys, too many to look for while their slot moves to another "
    b"server; nothing was run\r\n" % MOST_KEYS
)
ALWAYS_CHANGED = (
    b"-TRYAGAIN the key was changed during each of %d attempts to sort it while its slot moves to another server; "
    b"nothing was run\r\n" % ATTEMPTS
)


@dataclass(frozen=True, slots=True)
class Sort:
    """A request, and where it is to run."""

    argv: list[bytes]
    patterns: list[Pattern]
    database: int
    protocol: int
    slot: int
    address: str
    migration: int


class SortCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._own = services.own
        self._running: set[asyncio.Task[Any]] = set()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"SORT": self.sort, "SORT_RO": self.sort}

    def sort(self, session: Session, argv: list[bytes]) -> Outcome:
        """SORT key [BY pattern] [GET pattern ...] [STORE destination] ..., and SORT_RO."""
        keys = commands.keys_of(commands.find(argv), argv)
        patterns = sorting.patterns(argv)
        slot = self._router.slot_of_key(argv[1])
        for option, pattern in patterns:
            if self._router.slot_of_key(pattern) != slot:
                return replies.error(sorting.denial(option))
        if not patterns or self._router.route(slot)[0] != MIGRATING:
            return keys
        if session.owed:
            return AFTER_OWED
        return Cleared(keys, partial(self._begin, argv, patterns))

    def _begin(self, argv: list[bytes], patterns: list[Pattern], session: Session, slot: int, address: str) -> Outcome:
        migration = self._router.route(slot)[2]
        sort = Sort(argv, patterns, session.database, session.protocol, slot, address, migration)
        # A task of its own: what was sent is waited for, whether or not the client stays.
        self._router.loop.hold_slot(slot)
        task = asyncio.get_running_loop().create_task(self._run(sort))
        self._running.add(task)
        task.add_done_callback(partial(self._over, slot))
        return Waiting(_result(task))

    def _over(self, slot: int, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        self._router.loop.release_slot(slot)

    # -- while the slot migrates ---------------------------------------------------------------------------

    async def _run(self, sort: Sort) -> Any:
        """The reply, or AGAIN where the slot's keys come from or go to another server by now."""
        try:
            connection = await self._own.take(sort.address, sort.database, sort.protocol)
        except OwnConnectionError as error:
            return error.reply
        watched = True
        try:
            for _ in range(ATTEMPTS):
                watched = True
                obstacle = await self._prepare(sort, connection)
                if obstacle is not None:
                    return obstacle
                watched = False
                reply = await _execute(sort, connection)
                if reply not in CHANGED:
                    return reply
            return ALWAYS_CHANGED
        finally:
            if watched:
                await connection.ask(UNWATCH)
            self._own.give_back(connection)

    async def _prepare(self, sort: Sort, connection: OwnConnection) -> Any:
        """Watch what is to be sorted, and move the keys that it names; None once they are at the target."""
        key = sort.argv[1]
        watching, kind = await _ask(connection, ("WATCH", key), ("TYPE", key))
        for reply in (watching, kind):
            if reply.startswith(b"-"):
                return reply
        most = MOST_KEYS // len(sort.patterns)
        elements: list[bytes] = []
        # One more than there may be.
        requests: dict[bytes, tuple[bytes | str | int, ...]] = {
            b"+list\r\n": ("LRANGE", key, 0, most),
            b"+zset\r\n": ("ZRANGE", key, 0, most),
            b"+set\r\n": ("SRANDMEMBER", key, most + 1),
        }
        if kind in requests:
            (reply,) = await _ask(connection, requests[kind])
            if reply.startswith(b"-"):
                return reply
            elements = _elements(reply)
            if len(elements) > most:
                return TOO_MANY
        return await self._move(sort, sorting.keys_of(sort.patterns, elements))

    async def _move(self, sort: Sort, keys: Collection[bytes]) -> Any:
        if self._elsewhere(sort):
            return AGAIN
        if self._router.route(sort.slot)[0] != MIGRATING:
            # complete: all that the slot has is where the list is.
            return None
        absent = self._router.absent
        places = [(sort.database, key) for key in keys]
        missing = [place for place in places if not absent.remembers(sort.migration, *place)]
        error = await self._router.mover.move(sort.slot, missing)
        if error is not None:
            return error
        return AGAIN if self._elsewhere(sort) else None

    def _elsewhere(self, sort: Sort) -> bool:
        """Whether the slot has another owner by now, or its keys come from another server."""
        state, address, migration = self._router.route(sort.slot)
        return address != sort.address or (state == MIGRATING and migration != sort.migration)


async def _execute(sort: Sort, connection: OwnConnection) -> bytes:
    _, queued, executed = await _ask(connection, ("MULTI",), tuple(sort.argv), ("EXEC",))
    if queued != QUEUED:
        return queued
    return executed.removeprefix(RAN)


async def _ask(connection: OwnConnection, *requests: tuple[bytes | str | int, ...]) -> list[bytes]:
    """The replies to requests that are sent in one piece."""
    return await asyncio.gather(*(connection.ask(command(request)) for request in requests))


def _elements(reply: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(reply)
    return list(reader.gets())


async def _result(task: "asyncio.Task[Any]") -> Any:
    return await asyncio.shield(task)
