"""Moves all keys of some slots from a source to a target, and upholds **complete**.

A call makes passes over the source until one finds nothing. Each pass scans the databases that hold keys,
one after the other, and moves what it finds; while a page moves, the next is being found.

All of it goes over one connection to the source, one command at a time. So a client of the source waits for
one SCAN or one MIGRATE at most, and there is a turn of the server's event loop between any two. A second
connection would put a SCAN next to a MIGRATE in one turn: more keys a second, but a client would wait for both.
What does overlap is the source's work with ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count

import structlog

from migrator.batch import BatchCutter, Page
from migrator.connection import Connection, Timeouts
from migrator.errors import KeysRemain, SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.scan import Scanner, occupied_databases
from migrator.transfer import Transfer
from slots.access import ServerAccess
from slots.connections import PREFIX, end_connections, migrator_prefix

log = structlog.get_logger()

MOST_FRUITLESS_PASSES = 3
"""Passes in a row that find keys and move none."""

MOST_PASSES = 100
"""Passes of one call."""

QUIET_SECONDS = 2.0
"""How long a call that fails or is cancelled waits for a MIGRATE under way, which lasts milliseconds."""

READ_BYTES = 16 * 1024
"""What a Redis server reads from a connection in one turn of its event loop."""

_numbers = count(1)


async def migrate(
    source: str,
    target: str,
    slots: Sequence[int],
    *,
    function: str,
    number_of_slots: int,
    access: ServerAccess,
    pace: Pace,
    progress: Progress,
    instance: str,
    timeouts: Timeouts | None = None,
) -> None:
    """Move every key of ``slots`` from ``source`` to ``target``; return once **complete** holds.

    It may be called again after any error, and after a cancellation, here or in another process. There has
    to be one call at a time for a source; a later one ends the connections of those before it.

    Nor should a server be the source of one call and the target of another at the same time. A server that
    waits in a MIGRATE takes no keys meanwhile, so two that send to each other wait until one gives up, for
    ``migrate_seconds`` each time. Nothing is lost by it, but both stand still.

    Args:
        source: ``host:port`` of the server that has the keys.
        target: ``host:port`` of the server that is to have them, as the source reaches it too.
        slots: ids of the slots; their keys are moved in one pass.
        function: the product's slot function, see :mod:`slots.functions`.
        number_of_slots: of the product.
        access: how to get in at both servers, and the source at the target.
        pace: how fast; may be shared between calls.
        progress: is kept up to date; the same object again for a call that is made again.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.

    Raises:
        SourceUnavailable, TargetUnavailable: a server cannot be reached or does not answer in time.
        SourceRefused, TargetRefused: a server answers with an error; ``reason`` says which kind.
        KeysRemain: keys do not go away, pass after pass.
        ValueError: an argument is wrong.
    """
    if source == target:
        raise ValueError(f"source and target are the same server, {source}")
    wanted = bytearray(number_of_slots)
    for slot in slots:
        if not 0 <= slot < number_of_slots:
            raise ValueError(f"slot {slot} is not within 0-{number_of_slots - 1}")
        wanted[slot] = 1
    if not slots:
        progress.completed()
        return
    progress.call_began()
    log.info("migration_began", source=source, target=target, slots=len(slots))
    async with AsyncExitStack() as stack:
        run = await _Run.open(
            stack, source, target, function, bytes(wanted), access, pace, progress, instance, timeouts or Timeouts()
        )
        passes = await run.until_complete()
    progress.completed()
    log.info("migration_complete", source=source, target=target, slots=len(slots), passes=passes)


class _Run:
    """One call: its connections, and what it has learned of the servers' speed."""

    def __init__(
        self,
        source: Connection,
        checking: Connection,
        target: str,
        function: str,
        wanted: bytes,
        access: ServerAccess,
        pace: Pace,
        progress: Progress,
        timeouts: Timeouts,
    ) -> None:
        self._source = source
        self._checking = checking
        self._function = function
        self._wanted = wanted
        self._pace = pace
        self._progress = progress
        self._transfer = Transfer(source, target, access, timeouts, self._settle)
        self._cutter = BatchCutter()

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        source: str,
        target: str,
        function: str,
        wanted: bytes,
        access: ServerAccess,
        pace: Pace,
        progress: Progress,
        instance: str,
        timeouts: Timeouts,
    ) -> _Run:
        """Connect to both servers, once nothing of an earlier call can run any more at the source."""
        connection = await Connection.open(
            source,
            name=f"{migrator_prefix(instance)}{next(_numbers)}",
            access=access,
            unavailable=SourceUnavailable,
            refused=SourceRefused,
            timeouts=timeouts,
        )
        stack.callback(connection.close)
        # A migrator that died or was given up may have left a MIGRATE in the source's socket buffer. It would
        # run at any later time, to the target of that time, even when the slot has long been on its way back:
        # **one-way** would be lost. Closing a socket is no proof; the server itself ends the connections here.
        ended = await end_connections(connection, migrator_prefix(), keep=lambda name: name == connection.name)
        if ended:
            log.info("earlier_migrators_ended", source=source, connections=ended)
        # Not named like that one: this server may be the source of another call, which is not to end it.
        # It needs no ending either, for nothing but PING goes over it. Opening it finds a target that is
        # down, is loading or wants another login before the source has to wait for it.
        checking = await Connection.open(
            target,
            name=f"{PREFIX}.migrator-check.{instance}.{next(_numbers)}",
            access=access,
            unavailable=TargetUnavailable,
            refused=TargetRefused,
            timeouts=timeouts,
        )
        stack.callback(checking.close)
        await checking.call("PING")
        stack.push_async_callback(cls._leave_quietly, connection)
        return cls(connection, checking, target, function, wanted, access, pace, progress, timeouts)

    @staticmethod
    async def _leave_quietly(source: Connection) -> None:
        # Whoever cancels a call may turn the slot round next: no MIGRATE should be under way by then.
        if not await source.quiet(QUIET_SECONDS):
            log.warning("migrate_left_under_way", source=source.address, waited_seconds=QUIET_SECONDS)

    async def until_complete(self) -> int:
        """Make passes until one finds nothing; say how many."""
        fruitless = 0
        for number in range(1, MOST_PASSES + 1):
            moved_before = self._progress.keys_moved
            found = await self._pass()
            moved = self._progress.keys_moved - moved_before
            log.info(
                "migration_pass_ended",
                source=self._source.address,
                number=number,
                found=found,
                moved=moved,
                stale_batches=self._transfer.replaced,
                longest_milliseconds=round(self._transfer.longest_seconds * 1000, 1),
            )
            if not found:
                return number  # complete: a whole scan of every database, begun after this call, found none
            fruitless = 0 if moved else fruitless + 1
            if fruitless == MOST_FRUITLESS_PASSES:
                raise KeysRemain(
                    f"source {self._source.address} still lists {found} keys of these slots after {fruitless} "
                    "passes in which none could be moved; look at them there with SCAN"
                )
        raise KeysRemain(
            f"source {self._source.address} had keys of these slots in each of {MOST_PASSES} passes: "
            "find the client that writes to it directly, not through a proxy"
        )

    async def _pass(self) -> int:
        """Scan every database that holds keys and move what is found; say how much was found."""
        databases = await occupied_databases(self._source)
        self._progress.pass_began(sum(databases.values()))
        found = 0
        for database in sorted(databases):
            found += await self._move_database(database)
        self._progress.pass_ended()
        return found

    async def _move_database(self, database: int) -> int:
        await self._source.call("SELECT", database)
        scanner = Scanner(self._source, self._function, self._wanted, self._pace, self._progress)
        upcoming = asyncio.create_task(scanner.next_page())
        try:
            while (page := await upcoming) is not None:
                upcoming = asyncio.create_task(scanner.next_page())
                await self._move_page(database, page)
        finally:
            upcoming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await upcoming
        return scanner.found

    async def _move_page(self, database: int, page: Page) -> None:
        start = 0
        while start < len(page.keys):
            end = self._cutter.end(
                page,
                start,
                keys=self._pace.batch_keys,
                size=self._pace.batch_bytes,
                seconds=self._pace.settings.batch_milliseconds / 1000,
            )
            size = page.size(start, end)
            await self._pace.admit(end - start, size)
            any_there, seconds = await self._transfer.move(database, page.keys[start:end], size)
            if any_there:
                self._cutter.learn(page.cost(start, end), seconds)
                self._progress.moved(end - start, size)
            else:
                self._progress.vanished(end - start)
            start = end

    async def _settle(self, size: int) -> None:
        """See to it that the target has dealt with what reached it of a batch of so many bytes.

        The source has closed its connection, but the target may not have read all of it. Each PING is a turn of
        its event loop, in which it reads some from every connection; after enough turns nothing is left that
        could run behind the next attempt's back. Raises TargetUnavailable if it does not answer.
        """
        for _ in range(size // READ_BYTES + 4):
            await self._checking.call("PING")
