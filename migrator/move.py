"""Moves all keys of some slots from a source to a target, and upholds **complete**.

A call makes passes over the source until one finds nothing. Each pass scans the databases that hold keys, one after the
other, and moves the keys that it finds. While one page of keys moves, the next page is found.

All commands use one connection to the source, one at a time. So a client of the source waits for one SCAN or one step
of a batch at most, and the server's event loop turns between any two. The source's work does overlap with the target's
and with ours: two batches are under way at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog

from migrator.batch import BatchCutter
from migrator.bigkeys import BigKeys
from migrator.connection import Connection, Timeouts
from migrator.errors import KeysRemain, Refused
from migrator.options import MoveOptions
from migrator.pace import Pace, Throttle
from migrator.pair import WRITING, ServerPair
from migrator.progress import Progress
from migrator.scan import Scanner, occupied_databases
from migrator.steering import steered
from migrator.steps import Permit
from migrator.transfer import Transfer
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.keyslots import KeySlots

log = structlog.get_logger()

MOST_FRUITLESS_PASSES = 3
"""The most passes in a row that find keys and move none."""

MOST_PASSES = 100
"""The most passes of one call."""

LOOK_SECONDS = 0.02
"""Seconds before keys that another mover is moving are looked for again."""

BUSY_SECONDS = 2.0
"""Seconds after which another mover that is moving a key is taken for dead."""

ENDING_SECONDS = 2.0
"""Seconds for the other batch to end when one is refused; the pace may hold it back."""


async def migrate(
    source: str,
    target: str,
    slots: Sequence[int],
    *,
    key_slots: KeySlots,
    access: ServerAccess,
    pace: Pace,
    progress: Progress,
    instance: str,
    timeouts: Timeouts | None = None,
    options: MoveOptions | None = None,
    term: int = 0,
) -> None:
    """Move every key of ``slots`` from ``source`` to ``target``; return once **complete** holds.

    It may be called again after any error, and after a cancellation, here or in another process. A source may have only
    one call at a time; a later call ends the connections of earlier ones.

    A server should not be the target of two calls at the same time. It accepts keys by one permit, and each call would
    renew the permit of the other. Nothing would be lost, but both would stand still.

    Args:
        source: ``host:port`` of the server that has the keys.
        target: ``host:port`` of the server that gets them.
        slots: ids of the slots; their keys are moved in one pass.
        key_slots: which slot each key of the product has.
        access: how to log in at both servers.
        pace: how fast; may be shared between calls.
        progress: is kept up to date. Pass the same object when the call is made again.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.
        options: how keys go.
        term: the term of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        Superseded: a topom of a later term has been at one of the servers.
        NotApart: source and target are one server.
        CopyLost: a copy that was written here gets lost at the target.
        TooFewReplicas: replicas of the target do not confirm keys in time.
        SourceUnavailable, TargetUnavailable: a server cannot be reached or does not answer in time.
        SourceRefused, TargetRefused: a server answers with an error; ``reason`` says which kind.
        KeysRemain: keys do not go away, pass after pass.
        ValueError: an argument is wrong.
    """
    if source == target:
        raise ValueError(f"source and target are the same server, {source}")
    wanted = bytearray(key_slots.number_of_slots)
    for slot in slots:
        if not 0 <= slot < len(wanted):
            raise ValueError(f"slot {slot} is not within 0-{len(wanted) - 1}")
        wanted[slot] = 1
    if not slots:
        progress.completed()
        return
    progress.call_began()
    log.info("migration_began", source=source, target=target, slots=len(slots))
    async with AsyncExitStack() as stack:
        limits = timeouts or Timeouts()
        throttle = await stack.enter_async_context(steered(pace, source, target, access, progress, instance, limits))
        pair = ServerPair(stack, source, target, access, instance, limits, term)
        run = await _Run.open(pair, key_slots, bytes(wanted), throttle, progress, options or MoveOptions())
        passes = await run.until_complete()
    progress.completed()
    log.info("migration_complete", source=source, target=target, slots=len(slots), passes=passes)


class _Run:
    """One call, with its connections and the learned speed of the servers."""

    def __init__(
        self,
        source: Connection,
        transfer: Transfer,
        big_keys: BigKeys,
        key_slots: KeySlots,
        wanted: bytes,
        pace: Throttle,
        progress: Progress,
    ) -> None:
        self._source = source
        self._transfer = transfer
        self._big_keys = big_keys
        self._key_slots = key_slots
        self._wanted = wanted
        self._pace = pace
        self._progress = progress
        self._cutter = BatchCutter()

    @classmethod
    async def open(
        cls,
        pair: ServerPair,
        key_slots: KeySlots,
        wanted: bytes,
        pace: Throttle,
        progress: Progress,
        options: MoveOptions,
    ) -> _Run:
        """Connect to both servers, and make sure that nothing of an earlier call can run any more at either."""
        source = await pair.connect_source()
        await pair.end_earlier(source, migrator_prefix())
        target = await pair.connect_target()
        await pair.end_earlier(target, WRITING)
        # A renewal must not stand behind a step that waits for replicas.
        permit = Permit(await pair.connect_source(), await pair.connect_target(), pair.target, options.beginning)
        # one-way: from here on, nothing that an earlier call has sent has an effect.
        await permit.renew(permit.held, anew=True)
        progress.tell_servers(pair.run_id_of(pair.source), pair.run_id_of(pair.target))
        await options.confirmation.caught_up(target)
        transfer = Transfer(source, target, permit, options, pair.timeouts.whole_seconds)
        big_keys = await BigKeys.open(
            pair,
            permit,
            pace,
            progress,
            options,
            lambda database, key: bool(key_slots.select(database, [key], wanted)),
        )
        return cls(source, transfer, big_keys, key_slots, wanted, pace, progress)

    async def until_complete(self) -> int:
        """Make passes until one finds nothing, and move big keys meanwhile; give the number of passes."""
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
                longest_milliseconds=round(self._transfer.longest_seconds * 1000, 1),
            )
            if not found:
                # complete: a whole scan of every database, begun after this call, found no key. The permit is
                # withdrawn, so that no key can still arrive that was on its way when its source lost it.
                await self._transfer.permit.withdraw()
                return number
            fruitless = 0 if moved else fruitless + 1
            if fruitless == MOST_FRUITLESS_PASSES:
                raise KeysRemain(
                    f"source {self._source.address} still lists {found} keys of these slots after {fruitless} "
                    "passes in which none could be moved",
                    "look at them there with SCAN",
                )
        raise KeysRemain(
            f"source {self._source.address} had keys of these slots in each of {MOST_PASSES} passes",
            "find the client that writes to it directly, not through a proxy",
        )

    async def _pass(self) -> int:
        """Scan every database that holds keys and move the keys found; give their number."""
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
        scanner = Scanner(self._source, self._key_slots, database, self._wanted, self._pace, self._progress)
        upcoming = asyncio.create_task(scanner.next_page())
        try:
            busy: dict[bytes, float] = {}
            while (page := await upcoming) is not None:
                upcoming = asyncio.create_task(scanner.next_page())
                await self._move_page(database, page, busy)
            while busy:
                await asyncio.sleep(LOOK_SECONDS)
                await self._move_page(database, [], busy)
        finally:
            upcoming.cancel()
            # A task that is cancelled here, while an error is on its way, still ends.
            await asyncio.gather(upcoming, return_exceptions=True)
        return scanner.found

    async def _move_page(self, database: int, keys: list[bytes], busy: dict[bytes, float]) -> None:
        """Move keys, and try again those that others were moving. ``busy`` has these, with the time since when."""
        left = await self._move_once(database, list(dict.fromkeys([*busy, *keys])))
        now = time.monotonic()
        before = dict(busy)
        busy.clear()
        busy.update((key, before.get(key, now)) for key in left)
        # This call knows that its own movers live, however long replicas take to confirm a key that goes whole.
        others = [since for key, since in busy.items() if not self._big_keys.is_moving(database, key)]
        if others and now - min(others) > BUSY_SECONDS:
            # A mover that died in the middle has left a claim, which goes with the permit.
            permit = self._transfer.permit
            await permit.renew(permit.held)
            busy.update(dict.fromkeys(busy, time.monotonic()))

    async def _move_once(self, database: int, keys: list[bytes]) -> list[bytes]:
        """Move keys; give the keys that others are moving."""
        busy: list[bytes] = []
        start = 0
        under_way: asyncio.Task[int] | None = None
        try:
            while start < len(keys):
                limits = self._pace.batch
                count = self._cutter.count(limits.seconds, limits.keys)
                batch = keys[start : start + count]
                start += len(batch)
                before, under_way = under_way, asyncio.create_task(self._move_batch(database, batch, busy))
                # bounded: keys left out of a batch for their bytes go before any others.
                if before is not None:
                    await before
            if under_way is not None:
                await under_way
        except Refused:
            # Both servers answer, so the other batch ends by itself. It leaves no claims for a target that is full.
            if under_way is not None:
                await asyncio.wait((under_way,), timeout=ENDING_SECONDS)
            raise
        finally:
            if under_way is not None:
                under_way.cancel()
                await asyncio.gather(under_way, return_exceptions=True)
        return busy

    async def _move_batch(self, database: int, batch: list[bytes], busy: list[bytes]) -> int:
        start = 0
        while start < len(batch):
            some = batch[start:]
            expected = round(len(some) * self._cutter.bytes_per_key)
            await self._pace.admit(len(some), expected)
            moved, seconds = await self._transfer.move(database, some, self._pace.batch.bytes)
            if moved.moved:
                self._cutter.learn(moved.moved, moved.bytes, seconds)
                self._progress.moved(moved.moved, moved.bytes)
            self._pace.charge(moved.moved - len(some), moved.bytes - expected)
            self._progress.vanished(moved.looked_at - moved.moved - len(moved.big) - len(moved.busy))
            busy += [some[place] for place in moved.busy]
            for place in moved.big:
                await self._big_keys.add(database, some[place])
            start += moved.looked_at
        return start
