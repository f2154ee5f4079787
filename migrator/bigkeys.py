"""Keys that go one at a time: those too big for one step, in pieces, and those that a client waits for, first.

The order that upholds **absent-first** and **one-way** for a key:

1. claim it (:mod:`migrator.claims`): from now on it counts as present at the source, whatever becomes of it there;
2. copy it under a temporary name (:mod:`migrator.pieces`); the source owns it and is read from;
3. look whether the claim is held still: who flushed the source since is about to flush the target, with the copy;
4. make the copy the key, in one step at the target, and have replicas confirm it;
5. delete it at the source and give the claim back, in one step there.

Whoever stops between any two of these leaves a claim and an unfinished copy, or a finished one that the source's
copy will replace. The next call ends his connections, drops the claims and begins anew.

**bounded**: :data:`MOST_WAITING` keys of each kind wait to be moved at a time, then the scan waits, or who hears what
clients ask for (:mod:`migrator.wishes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from migrator.carrying import Carrier
from migrator.claims import Claimed, Claims
from migrator.connection import Connection
from migrator.ends import CHECKING, Ends, temporary_name
from migrator.errors import CannotBeCut, CopyLost, KeyGone
from migrator.manner import UNBOUNDED, Confirmation, Manner
from migrator.pace import Pace
from migrator.pieces.copying import copy
from migrator.pieces.cutter import PieceCutter, PieceSettings
from migrator.pieces.finishing import finish
from migrator.progress import Progress
from migrator.scan import occupied_databases
from migrator.transfer import Transfer
from migrator.wishes import Place, Wishes
from slots.moving import WRITING

log = structlog.get_logger()

MOST_WAITING = 1000
MOST_ATTEMPTS = 5
"""How often in a row a key's copy may get lost."""
SLOW_SECONDS = 0.005
"""A key that goes whole and takes longer than this is logged."""


class BigKeys:
    """Moves the big keys of one call, over two lanes: those that the scan finds, and those that clients ask for.

    Use :meth:`open`.
    """

    def __init__(self, wishes: Wishes, found: Lane, wanted: Lane, under_way: dict[Place, asyncio.Event]) -> None:
        self._wishes = wishes
        self._lanes = found, wanted
        self._found: asyncio.Queue[Place] = asyncio.Queue(MOST_WAITING)
        self._wanted: asyncio.Queue[Place] = asyncio.Queue(MOST_WAITING)
        self._under_way = under_way

    @classmethod
    async def open(
        cls,
        ends: Ends,
        pace: Pace,
        progress: Progress,
        manner: Manner,
        is_ours: Callable[[bytes], bool],
    ) -> BigKeys:
        """Connect. ``is_ours`` says whether a key belongs to the slots that are moved."""
        found = await Lane.open(ends, pace, progress, manner, b"found")
        # What a client waits for is not held back.
        wanted = await Lane.open(ends, Pace(), progress, manner, b"wanted")
        # What is asked for and lost with the connection is asked for again.
        listening = await ends.at_source(leaves_quietly=False)
        source = await ends.at_source()
        carrier = None
        if manner.carried:
            transfer = Transfer(source, await ends.at_target(CHECKING), ends, manner)
            carrier = await Carrier.open(ends, source, transfer, manner, b"asked-for")
        under_way: dict[Place, asyncio.Event] = {}
        return cls(Wishes(listening, source, carrier, is_ours, progress, under_way), found, wanted, under_way)

    async def add(self, database: int, key: bytes) -> None:
        """Have a key moved; waits while too many do."""
        await self._found.put((database, key))

    async def idle(self) -> None:
        """Return once every key that was added has been moved."""
        await self._found.join()

    async def run(self) -> None:
        """Move keys until cancelled. Raises what :func:`migrator.move.migrate` does."""
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                self._serve(self._lanes[0], self._found),
                self._serve(self._lanes[1], self._wanted),
                self._listen(),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, lane: Lane, queue: asyncio.Queue[Place]) -> None:
        while True:
            place = await queue.get()
            under_way = self._under_way.get(place)
            if under_way is not None:
                await under_way.wait()
            else:
                under_way = self._under_way[place] = asyncio.Event()
                try:
                    await lane.move(*place)
                finally:
                    del self._under_way[place]
                    under_way.set()
            queue.task_done()

    async def _listen(self) -> None:
        while True:
            for place in await self._wishes.next_big():
                await self._wanted.put(place)


class Lane:
    """Moves one key at a time."""

    def __init__(
        self,
        source: Connection,
        target: Connection,
        transfer: Transfer,
        carrier: Carrier | None,
        confirmation: Confirmation,
        cutter: PieceCutter,
        pace: Pace,
        progress: Progress,
        temporary: bytes,
    ) -> None:
        self._source = source
        self._target = target
        self._transfer = transfer
        self._carrier = carrier
        self._confirmation = confirmation
        self._claims = Claims(source)
        self._cutter = cutter
        self._pace = pace
        self._progress = progress
        self._temporary = temporary

    @classmethod
    async def open(cls, ends: Ends, pace: Pace, progress: Progress, manner: Manner, name: bytes) -> Lane:
        """Connect to both servers, and drop what a lane of that name left unfinished.

        Left to its expiry, a large copy would be freed at once, and nobody served meanwhile.
        """
        source = await ends.at_source()
        target = await ends.at_target(WRITING)
        temporary = temporary_name(ends.source, name)
        for database in await occupied_databases(target):
            await target.select(database)
            await target.call("UNLINK", temporary)
        transfer = Transfer(source, await ends.at_target(CHECKING), ends, manner)
        carrier = await Carrier.open(ends, source, transfer, manner, name) if manner.carried else None
        cutter = PieceCutter(PieceSettings(piece_milliseconds=manner.bounds.piece_milliseconds))
        return cls(source, target, transfer, carrier, manner.confirmation, cutter, pace, progress, temporary)

    async def move(self, database: int, key: bytes) -> None:
        """Move a key, if it is still there and not on its way already."""
        await self._source.select(database)
        await self._target.select(database)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            claimed = await self._claims.take(database, key, self._transfer.permit)
            while claimed is Claimed.UNSETTLED:
                await self._transfer.settle()
                claimed = await self._claims.take(database, key, self._transfer.permit)
            if claimed is not Claimed.HELD:
                return
            if self._transfer.keeps_target and await self._target.call("EXISTS", key):
                # The source is not the one that the action began with: what it has may be from before.
                await self._claims.release(database, key, delete=True)
                return
            try:
                await self._copy(database, key)
            except KeyGone:
                await self._claims.release(database, key, delete=False)
                self._progress.vanished(1)
            except CannotBeCut as error:
                await self._claims.release(database, key, delete=False)
                await self._move_whole(database, key, str(error))
            except CopyLost as error:
                await self._claims.release(database, key, delete=False)
                log.warning("copy_lost", reason=str(error), attempt=attempt)
                if attempt == MOST_ATTEMPTS:
                    raise
                continue
            return

    async def _copy(self, database: int, key: bytes) -> None:
        began = time.monotonic()
        temporary = self._temporary
        copied = await copy(self._source, self._target, key, temporary, self._cutter, self._pace)
        if not await self._claims.hold(database, key):
            await self._target.call("UNLINK", temporary)
            raise CopyLost(f"the claim on {key!r} has gone from source {self._source.address}: somebody flushed it")
        await finish(self._target, key, temporary, copied)
        await self._confirmation.wait(self._target)
        await self._claims.release(database, key, delete=True)
        self._progress.moved(1, copied.size)
        log.info(
            "big_key_moved",
            source=self._source.address,
            kind=copied.kind.decode(),
            pieces=copied.pieces,
            bytes=copied.size,
            seconds=round(time.monotonic() - began, 3),
            longest_read_milliseconds=round(copied.longest_read_seconds * 1000, 2),
            longest_write_milliseconds=round(copied.longest_write_seconds * 1000, 2),
        )

    async def _move_whole(self, database: int, key: bytes, why: str) -> None:
        await self._pace.admit(1, 0)
        way = self._carrier or self._transfer
        moved, seconds = await way.move(database, [key], UNBOUNDED, whole=True)
        self._progress.moved(moved.moved, moved.bytes)
        self._pace.charge(0, moved.bytes)
        if seconds > SLOW_SECONDS:
            log.warning("key_moved_whole", reason=why, bytes=moved.bytes, seconds=round(seconds, 3))
