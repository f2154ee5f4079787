"""Follows one source for one copy: first the snapshot, then the stream, without an end.

The source's data comes in its order, and goes to the copy in that order (:mod:`migrator.stream.copying`). What the
target takes sets the pace here; the link goes on filling the spool meanwhile (:mod:`migrator.stream.spool`).

**level**: while slots are locked, whoever switches them writes a marker at the source. Once the marker has come by in
the stream, the copy has what was written before it: :meth:`Following.expect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.pace import BATCH_BYTES, BATCH_KEYS, BATCH_SECONDS, Throttle
from migrator.stream.batches import Batch
from migrator.stream.changes import CannotFollow
from migrator.stream.copying import Copy
from migrator.stream.deadlines import PLACEHOLDER_MS
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from migrator.stream.spool import SpoolReader
from migrator.stream.streamfile import now_ms
from migrator.stream.values.keeping import Kept
from slots.keyslots import KeySlots
from slots.requests.reading import NotRequests
from slots.requests.wanted import MIXED, UNKNOWN, WantedRequests
from slots.reserved import MARKER

BUILDING_MS = 15_000
"""Values of the snapshot are mostly written within this time after they were read from it."""
BIG_BYTES = 64 * 1024
"""A value with more bytes in the snapshot goes in pieces."""
WORK_A_SECOND = 4_000_000
"""Work that a target does in a second at least, as :mod:`migrator.stream.snapshotfilter` counts it."""
BIG_WORK = 4_000
"""A value that is more work goes in pieces, too: 4,000 elements, or 512 KB that a few compressed bytes become."""
AHEAD = 4
"""Batches of the snapshot that are made while the target is at the ones before."""
READ_TWICE = ("string", "stream")
"""Types of values whose elements are read more than once."""
MOST_KEPT = 4 << 30
"""Bytes of a value that is read more than once."""
READ_BYTES = 256 * 1024
HURRY_BYTES = 64 << 20
"""Bytes of the stream that may be missing at the target while a latency goal holds it back. The target will have that
load anyway, and a copy that does not keep up comes to nothing."""
WITHHOLD_SECONDS = 0.5
"""Between two looks at deadlines that are near. It is far below :data:`migrator.stream.deadlines.MARGIN_MS`."""


class Following:
    """Follows one source.

    Args:
        source: ``host:port``, for messages.
        spool: what the link brings; it has begun.
        key_slots: of the product.
        wanted: the number of the copy for each of its slots, else 0. Others may change it.
        copy: the one that is made.
        pace: how fast keys go to the target.
        folder: for values that are read more than once.
        clock: milliseconds since 1970.
    """

    def __init__(
        self,
        source: str,
        spool: SpoolReader,
        key_slots: KeySlots,
        wanted: bytearray,
        copy: Copy,
        pace: Throttle,
        folder: Path,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._source = source
        self._spool = spool
        self._key_slots = key_slots
        self._wanted = wanted
        self._copy = copy
        self._pace = pace
        self._folder = folder
        self._clock = clock
        self._turn = asyncio.Lock()
        self._offset = spool.offset
        self._streaming = asyncio.Event()
        self._hurry = asyncio.Event()
        self._rests = True
        self._seconds = asyncio.get_running_loop().time
        self._markers: dict[bytes, tuple[asyncio.Event, frozenset[int]]] = {}

    @property
    def lag(self) -> int | None:
        """Bytes of the stream that have come and are not applied; None while the snapshot is not."""
        return self._spool.end - self._offset if self._streaming.is_set() else None

    async def run(self) -> None:
        """Follow the source until this is cancelled.

        Raises:
            CannotFollow: the stream has something that cannot be followed.
            MigrationError: the copy is void: see :mod:`migrator.stream.copying`, the link and the spool.
        """
        tasks = [asyncio.create_task(self._withhold()), asyncio.create_task(self._follow())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def streaming(self) -> None:
        """Return once the snapshot was written. It is for whoever also waits for :meth:`run`."""
        await self._streaming.wait()

    @contextmanager
    def expect(self, marker: bytes, slots: Iterable[int]) -> Iterator[asyncio.Event]:
        """An event that is set once this value of :data:`slots.reserved.MARKER` has come by, and all before it was
        written. What comes after it does not concern the copy as far as it is about these slots. A marker that comes by
        after the block does nothing."""
        event = asyncio.Event()
        self._markers[marker] = event, frozenset(slots)
        self._hurry.set()
        try:
            yield event
        finally:
            self._markers.pop(marker, None)

    def rest_no_more(self) -> None:
        """Take the stream as fast as the target does from now on, whatever the latency goal is."""
        self._rests = False
        self._hurry.set()

    async def _follow(self) -> None:
        database = await self._restore_snapshot()
        self._streaming.set()
        await self._follow_stream(database)

    async def _restore_snapshot(self) -> int:
        """Write the snapshot to the copy; give the database that the stream begins in."""
        copy = self._copy
        words = None if copy.words is None or copy.words.payloads else copy.words
        found = SnapshotFilter(
            self._spool,
            f"snapshot of {self._source}",
            self._key_slots,
            self._wanted,
            most_bytes=BATCH_BYTES,
            most_keys=BATCH_KEYS,
            big_bytes=BIG_BYTES,
            most_work=int(BATCH_SECONDS * WORK_A_SECOND),
            big_work=BIG_WORK,
            placeholder_ms=PLACEHOLDER_MS,
            words=words,
        )
        at = f"snapshot of {self._offset}"
        await self._pace.ready()
        ahead = self._some_of(found)
        try:
            while some := await ahead:
                for number, one in enumerate(some):
                    if isinstance(one, BigKey):
                        # It is the last one, and its elements are read before anything else.
                        await self._make(one, found, at)
                    else:
                        await self._pace.admit(one.keys, len(one.commands))
                    if number == len(some) - 1:
                        ahead = self._some_of(found)
                    if isinstance(one, Batch):
                        async with self._turn:
                            await self._copy.restore(one, at)
        finally:
            ahead.cancel()  # its thread ends with the reader
        self._spool.leave_snapshot()
        return max(0, found.stream_database)

    def _some_of(self, found: SnapshotFilter) -> asyncio.Task[list[Batch | BigKey]]:
        """The next items, made in a thread; a big value is the last of them. None are left if there are none.

        Nothing else may be done with the filter meanwhile.
        """
        limits = self._pace.batch
        found.most_keys = limits.keys
        found.most_work = max(1, int(limits.seconds * WORK_A_SECOND))
        found.withheld_until_ms = self._clock() + BUILDING_MS
        found.noted_until_ms = self._copy.deadlines.noted_until_ms
        task = asyncio.create_task(asyncio.to_thread(_some, found, self._spool))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _make(self, big: BigKey, found: SnapshotFilter, at: str) -> None:
        """Write a big value. The stream waits, so nothing else is written to the copy meanwhile but deadlines."""
        if big.fields_expire:
            await asyncio.to_thread(lambda: [None for _ in found.elements()])
            self._copy.become_late(big.database, big.name)
            return
        await self._pace.admit(1, 0)
        if big.type not in READ_TWICE:
            await self._copy.make(big, found.elements, at, self._pace)
            return
        with await asyncio.to_thread(Kept, found.elements(), self._folder, MOST_KEPT) as kept:
            await self._copy.make(big, kept, at, self._pace)

    async def _follow_stream(self, database: int) -> None:
        requests = WantedRequests(self._key_slots, self._wanted, self._offset)
        requests.database = database
        while True:
            have = requests.offset + requests.pending
            await self._spool.more(have)
            began = self._seconds()
            data = self._spool.read(have, READ_BYTES)
            requests.feed(data)
            async with self._turn:
                try:
                    for argv, end, copies in requests:
                        await self._take(requests, argv, end, copies)
                except NotRequests as error:
                    raise CannotFollow(f"the stream of {self._source} cannot be read: {error}") from error
                await self._write(requests.offset)
            await self._rest(self._seconds() - began)

    async def _rest(self, work: float) -> None:
        """Rest for so many seconds of work as far as the latency goal requires, unless somebody waits for a marker."""
        seconds = self._pace.rest(work) if self._rests else 0.0
        if seconds and not self._markers and self._spool.end - self._offset <= HURRY_BYTES:
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()

    async def _take(self, requests: WantedRequests, argv: list[bytes], end: int, copies: int) -> None:
        name = argv[0].upper()
        if name == b"SELECT":
            requests.database = _database(argv)
        elif name in (b"MULTI", b"EXEC"):
            pass  # nobody sees a copy before it is level, and that is never within a transaction
        elif name == b"SET" and argv[1:2] == [MARKER]:
            await self._write(end)
            event, slots = self._markers.pop(argv[2], (None, frozenset()))
            if event is not None:
                # level: from here on the source's expiry and cleaning are not the target's.
                for slot in slots:
                    self._wanted[slot] = 0
                event.set()
        else:
            copy, whole = self._copy, copies not in (MIXED, UNKNOWN)
            if copy.full or copy.ends_batch(requests.database, name):
                await copy.write(str(end))
            copy.follow(requests.database, argv, lambda: self._spool.arrived_ms(end), whole=whole)

    async def _write(self, offset: int) -> None:
        """Write the open batch; all before the offset is applied then."""
        await self._copy.write(str(offset))
        await self._copy.correct(str(offset))
        self._offset = offset
        self._spool.release(offset)

    async def _withhold(self) -> None:
        while True:
            await asyncio.sleep(WITHHOLD_SECONDS)
            async with self._turn:
                await self._copy.withhold_due(str(self._offset))


def _some(found: SnapshotFilter, spool: SpoolReader) -> list[Batch | BigKey]:
    some: list[Batch | BigKey] = []
    with spool.parsing():
        for one in found:
            some.append(one)
            if len(some) == AHEAD or isinstance(one, BigKey):
                break
    return some


def _database(argv: list[bytes]) -> int:
    if len(argv) != 2 or not argv[1].isdigit():
        raise CannotFollow(f"the stream selects the database {argv[1:]!r:.50}")
    return int(argv[1])
