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

import structlog

from migrator.batch import BatchCutter
from migrator.bigkeys import BigKeys
from migrator.carrying import Carrier
from migrator.claims import drop_claims
from migrator.connection import Connection, Timeouts
from migrator.ends import CHECKING, Ends
from migrator.errors import KeysRemain, TargetUnavailable
from migrator.manner import Manner
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.scan import Scanner, occupied_databases
from migrator.steering import steered
from migrator.transfer import Transfer
from slots import functions, moving
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.moving import WRITING

log = structlog.get_logger()

MOST_FRUITLESS_PASSES = 3
"""Passes in a row that find keys and move none."""

MOST_PASSES = 100
"""Passes of one call."""


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
    manner: Manner | None = None,
    term: int = 0,
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
        manner: how keys go.
        term: of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        Superseded: a topom of a later term has been at one of the servers.
        NotApart: source and target are one server.
        CopyLost: a copy that was written here does not last at the target.
        TooFewReplicas: replicas of the target do not confirm keys in time.
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
        pace = await stack.enter_async_context(steered(pace, source, target, access, progress, instance, timeouts))
        ends = Ends(stack, source, target, access, instance, timeouts or Timeouts(), term)
        run = await _Run.open(ends, function, bytes(wanted), pace, progress, manner or Manner())
        passes = await run.until_complete()
    progress.completed()
    log.info("migration_complete", source=source, target=target, slots=len(slots), passes=passes)


class _Run:
    """One call: its connections, and what it has learned of the servers' speed."""

    def __init__(
        self,
        source: Connection,
        transfer: Transfer,
        way: Transfer | Carrier,
        big_keys: BigKeys,
        function: str,
        wanted: bytes,
        pace: Pace,
        progress: Progress,
    ) -> None:
        self._source = source
        self._transfer = transfer
        self._way = way
        self._big_keys = big_keys
        self._function = function
        self._wanted = wanted
        self._pace = pace
        self._progress = progress
        self._cutter = BatchCutter()

    @classmethod
    async def open(
        cls, ends: Ends, function: str, wanted: bytes, pace: Pace, progress: Progress, manner: Manner
    ) -> _Run:
        """Connect to both servers, once nothing of an earlier call can run any more at either."""
        source = await ends.at_source()
        await ends.end_earlier(source, migrator_prefix())
        # Finds a target that is down, is loading or wants another login before the source has to wait for it.
        checking = await ends.at_target(CHECKING)
        await ends.end_earlier(checking, WRITING)
        await drop_claims(source)
        transfer = Transfer(source, checking, ends, manner)
        # Not later: it ends the connections over which big keys are written. A source that evicts the permit at once
        # does so because it keeps nothing, and then there may be nothing to move.
        with suppress(TargetUnavailable):
            await transfer.settle()
        big_keys = await BigKeys.open(
            ends,
            pace,
            progress,
            manner,
            lambda key: bool(functions.select(function, len(wanted), [key], wanted)),
        )
        way: Transfer | Carrier = transfer
        if manner.carried:
            way = await Carrier.open(ends, source, transfer, manner, b"scanned")
        return cls(source, transfer, way, big_keys, function, wanted, pace, progress)

    async def until_complete(self) -> int:
        """Make passes until one finds nothing, and move big keys meanwhile; say how many."""
        passes = asyncio.ensure_future(self._passes())
        big_keys = asyncio.ensure_future(self._big_keys.run())
        try:
            await asyncio.wait((passes, big_keys), return_when=asyncio.FIRST_COMPLETED)
            if big_keys.done():
                await big_keys
            return await passes
        finally:
            for task in (passes, big_keys):
                task.cancel()
            await asyncio.gather(passes, big_keys, return_exceptions=True)

    async def _passes(self) -> int:
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
                longest_milliseconds=round(self._way.longest_seconds * 1000, 1),
            )
            if not found:
                # complete: a whole scan of every database, begun after this call, found none; and none can arrive
                # that had been on its way when it went from the source by itself.
                await self._transfer.end_under_way()
                return number
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
        await self._big_keys.idle()
        self._progress.pass_ended()
        return found

    async def _move_database(self, database: int) -> int:
        await self._source.select(database)
        scanner = Scanner(self._source, self._function, self._wanted, self._pace, self._progress)
        upcoming = asyncio.create_task(scanner.next_page())
        try:
            while (page := await upcoming) is not None:
                upcoming = asyncio.create_task(scanner.next_page())
                await self._move_page(database, page)
        finally:
            upcoming.cancel()
            # Who is cancelled here, while an error is on its way, ends all the same.
            await asyncio.gather(upcoming, return_exceptions=True)
        return scanner.found

    async def _move_page(self, database: int, keys: list[bytes]) -> None:
        start = 0
        while start < len(keys):
            count = self._cutter.count(self._pace.batch_milliseconds / 1000, self._pace.batch_keys)
            batch = keys[start : start + count]
            expected = round(len(batch) * self._cutter.bytes_per_key)
            await self._pace.admit(len(batch), expected)
            moved, seconds = await self._way.move(database, batch, self._pace.batch_bytes)
            if moved.moved:
                self._cutter.learn(moved.moved, moved.bytes, seconds)
                self._progress.moved(moved.moved, moved.bytes)
            self._pace.charge(moved.moved - len(batch), moved.bytes - expected)
            self._progress.vanished(moved.looked_at - moved.moved - len(moved.big))
            for place in moved.big:
                await self._big_keys.add(database, batch[place])
            start += moved.looked_at


async def clear(
    source: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None, term: int = 0
) -> None:
    """Take away what moving has left at a source, once no mover sends anything from there any more.

    one-way: with the permit goes what a lost connection's script could still move, when the slot is back here.

    Raises:
        SourceUnavailable, SourceRefused, Superseded: see there.
    """
    async with AsyncExitStack() as stack:
        ends = Ends(stack, source, "", access, instance, timeouts or Timeouts(), term)
        await moving.clear_source(await ends.at_source())
