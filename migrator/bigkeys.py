"""Moves the keys that go one at a time: keys too big for one step go in pieces, and keys that clients wait for go
first.

The steps for one key are those of every key (:mod:`migrator.steps`), in the order that upholds **absent-first** and
**one-way**:

1. Take: claim it (:mod:`migrator.claims`). From now on it counts as present at the source, even if it is gone there.
   Then copy it under a temporary name (:mod:`migrator.pieces`). The source owns the key and serves reads.
2. Place: check that the claim is still held. If the source was flushed meanwhile, the target is about to be flushed,
   and the copy with it. Then make the copy the key, in one step at the target, by the permit that held at that check.
3. Drop: have replicas confirm it; they have confirmed most of the copy while it was written. Then delete it at the
   source and give the claim back, in one step there.

A process that stops between two of these steps leaves a claim and a copy. The copy is unfinished, or the source's key
will replace it. The next call renews the permit, which removes the claims, and begins again. Where a server refuses a
piece, the claim is given back first.

**bounded**: at most :data:`MOST_WAITING` keys of each kind wait to be moved. Beyond that the scan waits, or the
listener for keys that clients want does (:mod:`migrator.wanted`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from migrator.claims import Claimed, claim, claimant, is_held
from migrator.connection import Connection
from migrator.errors import CannotBeCut, CopyLost, KeyGone, Refused, TooFewReplicas
from migrator.options import CONFIRM_BYTES, MoveOptions
from migrator.pace import Pace, Throttle, Urgeable
from migrator.pair import ServerPair, temporary_name
from migrator.pieces.copying import Copied, copy
from migrator.pieces.cutter import PieceCutter
from migrator.pieces.finishing import finish
from migrator.progress import Progress
from migrator.scan import occupied_databases
from migrator.steps import Mover, Permit
from migrator.transfer import Transfer
from migrator.wanted import Place, WantedList
from slots.moving import UNBOUNDED

log = structlog.get_logger()

MOST_WAITING = 1000
MOST_ATTEMPTS = 5
"""How many times in a row the copy of one key may get lost."""
SLOW_SECONDS = 0.005
"""A key that goes whole and takes longer than this is logged."""


class BigKeys:
    """Moves the big keys of one call by two movers: one for keys that the scan finds, one for keys that clients ask
    for.

    Use :meth:`open`.
    """

    def __init__(self, wanted_list: WantedList, found: KeyMover, wanted: KeyMover, pace: Urgeable) -> None:
        self._wanted_list = wanted_list
        self._pace = pace
        self._movers = found, wanted
        self._found: asyncio.Queue[Place] = asyncio.Queue(MOST_WAITING)
        self._wanted: asyncio.Queue[Place] = asyncio.Queue(MOST_WAITING)
        self._under_way: dict[Place, asyncio.Event] = {}

    @classmethod
    async def open(
        cls,
        pair: ServerPair,
        permit: Permit,
        pace: Throttle,
        progress: Progress,
        options: MoveOptions,
        is_ours: Callable[[int, bytes], bool],
    ) -> BigKeys:
        """Connect. ``is_ours`` says whether a key of a database belongs to the slots that are moved."""
        urgeable = Urgeable(pace)
        found = await KeyMover.open(pair, permit, urgeable, progress, options, b"found")
        # The pace does not hold back a key that a client waits for.
        wanted = await KeyMover.open(pair, permit, Pace(), progress, options, b"wanted")
        # An entry that is lost with the connection will be sent again.
        listening = await pair.connect_source(leaves_quietly=False)
        return cls(WantedList(listening, is_ours), found, wanted, urgeable)

    async def add(self, database: int, key: bytes) -> None:
        """Have a key moved; wait while too many keys wait."""
        await self._found.put((database, key))

    async def idle(self) -> None:
        """Return once every key that was added has been moved."""
        await self._found.join()

    def is_moving(self, database: int, key: bytes) -> bool:
        """Whether a key is being moved here."""
        return (database, key) in self._under_way

    async def run(self) -> None:
        """Move keys until cancelled. Raises what :func:`migrator.move.migrate` does."""
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                self._serve(self._movers[0], self._found),
                self._serve(self._movers[1], self._wanted, self._pace.urge),
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

    async def _serve(
        self, mover: KeyMover, queue: asyncio.Queue[Place], urge: Callable[[], None] | None = None
    ) -> None:
        """Move the keys of one queue. A key that the other mover moves is waited for, or urged on, since a client wants
        it."""
        while True:
            place = await queue.get()
            under_way = self._under_way.get(place)
            if under_way is None:
                under_way = self._under_way[place] = asyncio.Event()
                try:
                    await mover.move(*place)
                finally:
                    del self._under_way[place]
                    under_way.set()
                    if urge is None:
                        self._pace.relax()
            elif urge is not None:
                urge()
            else:
                await under_way.wait()
            queue.task_done()

    async def _listen(self) -> None:
        while True:
            for place in await self._wanted_list.next():
                await self._wanted.put(place)


class KeyMover(Mover):
    """Moves one key at a time."""

    def __init__(
        self,
        source: Connection,
        target: Connection,
        permit: Permit,
        options: MoveOptions,
        whole: Transfer,
        pace: Throttle,
        progress: Progress,
        temporary: bytes,
    ) -> None:
        super().__init__(source, target, permit, options, claimant())
        self._whole = whole
        self._cutter = PieceCutter()
        self._pace = pace
        self._progress = progress
        self._temporary = temporary

    @classmethod
    async def open(
        cls, pair: ServerPair, permit: Permit, pace: Throttle, progress: Progress, options: MoveOptions, name: bytes
    ) -> KeyMover:
        """Connect to both servers, and drop the unfinished copy that a mover of that name left.

        If a large copy expired by itself, the server would free it in one step and serve nobody meanwhile.
        """
        source = await pair.connect_source()
        target = await pair.connect_target()
        temporary = temporary_name(pair.source, name)
        for database in await occupied_databases(target):
            await target.select(database)
            await target.call("UNLINK", temporary)
        whole = Transfer(source, target, permit, options, pair.timeouts.whole_seconds)
        return cls(source, target, permit, options, whole, pace, progress, temporary)

    async def move(self, database: int, key: bytes) -> None:
        """Move a key, if it is still there and not on its way already."""
        await self._source.select(database)
        await self._target.select(database)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            claimed = await self.permit.by(lambda permit: claim(self._source, permit, database, key, self._name))
            if claimed is not Claimed.HELD:
                return
            if self.permit.keeps_target(self.permit.held) and await self._target.call("EXISTS", key):
                # The source is not the process that the action began with: its data may be from before.
                await self._end(database, key, placed=True)
                return
            try:
                await self._move_in_pieces(database, key)
            except KeyGone:
                await self._end(database, key, placed=False)
                self._progress.vanished(1)
            except CannotBeCut as error:
                await self._end(database, key, placed=False)
                await self._move_whole(database, key, str(error))
            except CopyLost as error:
                await self._end(database, key, placed=False)
                log.warning("copy_lost", reason=str(error), attempt=attempt)
                if attempt == MOST_ATTEMPTS:
                    raise
                continue
            return

    async def _move_in_pieces(self, database: int, key: bytes) -> None:
        began = time.monotonic()
        confirmation = self._options.confirmation
        try:
            copied = await copy(
                self._source, self._target, key, self._temporary, self._cutter, self._pace, confirmation
            )
        except (Refused, TooFewReplicas):
            # The call ends. A client that wants to delete the key need not wait for the next call, as at a full target.
            await self._end(database, key, placed=False)
            raise
        await self.permit.by(lambda permit: self._place(permit, database, key, copied))
        await self._end(database, key, placed=True, size=min(copied.size, CONFIRM_BYTES))
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

    async def _place(self, permit: str, database: int, key: bytes, copied: Copied) -> bool | None:
        held = await is_held(self._source, permit, database, key, self._name)
        if held is None:
            return None
        if not held:
            await self._target.call("UNLINK", self._temporary)
            raise CopyLost(f"the claim on {key!r} has gone from source {self._source.address}: the source was flushed")
        keeps_target = self.permit.keeps_target(permit)
        return await finish(self._target, permit, database, key, self._temporary, copied, keeps_target=keeps_target)

    async def _end(self, database: int, key: bytes, *, placed: bool, size: int = 0) -> None:
        """Give the claim back, and delete the key at the source if it was placed."""
        moved, others = ([key], []) if placed else ([], [key])
        await self.permit.by(lambda permit: self._drop(permit, database, moved, others, size=size))

    async def _move_whole(self, database: int, key: bytes, why: str) -> None:
        await self._pace.admit(1, 0)
        moved, seconds = await self._whole.move(database, [key], UNBOUNDED, whole=True)
        self._progress.moved(moved.moved, moved.bytes)
        self._pace.charge(0, moved.bytes)
        if seconds > SLOW_SECONDS:
            log.warning("key_moved_whole", reason=why, bytes=moved.bytes, seconds=round(seconds, 3))
