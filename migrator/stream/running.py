"""A copy from its beginning to its switch: its share of a stream, its target, and the following between them.

One task runs it, from the first :meth:`RunningCopy.nearly_level` of any copy of the stream on. Whoever waits for
something of the copy hears of its end. It ends by itself: no other copy of the stream is concerned
(:mod:`migrator.stream.sourcestream`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

import structlog

from migrator.connection import Connection, Timeouts, checked, pack
from migrator.errors import MigrationError, TargetUnfit
from migrator.facts import Facts
from migrator.pace import Pace
from migrator.pair import COPYING, WRITING, ServerPair, copying_prefix
from migrator.pieces.abilities import read_abilities
from migrator.pieces.deadlines import milliseconds
from migrator.progress import Progress
from migrator.steering import steered
from migrator.stream.applying import Applier, CopyVoid, begin_copy
from migrator.stream.copying import Copy
from migrator.stream.deadlines import MARGIN_MS, Deadlines
from migrator.stream.earlier import end_at_replicas
from migrator.stream.errors import NotNearlyLevel
from migrator.stream.following import Following
from migrator.stream.sourcestream import SourceStream
from migrator.stream.streamfile import now_ms
from migrator.stream.words import words_of
from slots import ranges
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.keyslots import KeySlots
from slots.replies import Info
from slots.reserved import MARKER, SWEPT

log = structlog.get_logger()

NEARLY_BYTES = 256 * 1024
"""Bytes of the stream that may be missing at the target when the slots are locked. It writes them in milliseconds."""
NEARLY_SECONDS = 1.0
"""How long the stream may take to bring what was written at the source, when the slots are locked: half of what topom's
setting ``barrier_seconds`` gives a lock unless it is changed. What is on its way counts as missing nowhere."""
MOST_MARKERS = 3
"""So many are waited for before a lock is tried even so: it says then that it took too long."""
LOOK_SECONDS = 0.02
LEVEL_SECONDS = 600.0
"""How long the copy may take to become nearly level, once the snapshot was written. An operator's pause does not count.
It rests for the sake of a latency goal in the first half of it: what is held back may never become level, and then all
was for nothing."""
LONGEST_MS = 4 * 3_600_000
"""How long a copy may last."""
MARKER_SECONDS = 60
"""The marker's life at the source."""
ENDING_SECONDS = 1.0
"""How long the cause of an error is waited for."""
MOST_AHEAD_MS = MARGIN_MS // 3
"""The target's clock may be so far ahead of this process's."""
NUMBER = 1
"""Of the copy: it marks its slots for itself."""


class NeverLevel(MigrationError):
    """The source is written faster than the target takes it."""

    passing = False


class TargetEvicts(TargetUnfit):
    """The target removes keys by itself when its memory is full, and a copy would not notice."""


class ClockAhead(TargetUnfit):
    """The target would have keys expire before their deadlines are withheld."""


class Patience:
    """The time that a copy has to become nearly level (**bounded**)."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._seconds = asyncio.get_running_loop().time
        self._looked = self._seconds()
        self._spent = 0.0

    def lasts(self, *, counts: bool = True) -> bool:
        """Whether there is time left. What went by since the last call counts, unless there is a pause now."""
        now = self._seconds()
        if counts and not self._pace.paused:
            self._spent += now - self._looked
        self._looked = now
        return self._spent <= LEVEL_SECONDS

    @property
    def half_gone(self) -> bool:
        """Whether half of it has gone by."""
        return self._spent > LEVEL_SECONDS / 2


class RunningCopy:
    """One copy.

    Args:
        stream: the stream that it shares. The run id that it names is the one that :func:`make_ready` gives: by the
            same addresses another machine may reach other servers.
        target: ``host:port`` of the master that the copy goes to.
        slots: those that are copied.
        copy: the id of the copy, for which both were made ready (:func:`make_ready`).
        run_id: of the target, likewise.
        key_slots, pace, progress: as for :func:`migrator.move.migrate`.

    Raises:
        StreamBegun: it comes too late for the stream.
    """

    def __init__(
        self,
        stream: SourceStream,
        target: str,
        slots: Iterable[int],
        copy: str,
        *,
        run_id: str,
        key_slots: KeySlots,
        pace: Pace,
        progress: Progress,
    ) -> None:
        self.target = target
        self._stream = stream
        self._source = stream.source
        self._id = copy
        self._run_id = run_id
        self._key_slots = key_slots
        self._pace = pace
        self._progress = progress
        self._wanted = bytearray(key_slots.number_of_slots)
        for slot in slots:
            self._wanted[slot] = NUMBER
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._pair: ServerPair | None = None
        self._writing: Connection | None = None
        self._asking: Connection | None = None
        self._evicted = 0
        self._following: Following | None = None
        self._copy: Copy | None = None
        stream.join(self)

    @property
    def lag(self) -> int | None:
        """Bytes of the stream that have come and are not applied; None while the snapshot is not."""
        return None if self._following is None else self._following.lag

    async def nearly_level(self) -> None:
        """Return once little is missing at the target. The stream begins, if it has not.

        Raises:
            NeverLevel: that takes too long.
            MigrationError: the copy is void; see the modules of this room.
        """
        self._stream.start()
        await self._unless_ended(self._nearly_level)

    def start(self) -> None:
        """The stream has begun."""
        log.info("copy_began", source=self._source, target=self.target, slots=sum(map(bool, self._wanted)))
        self._task = asyncio.create_task(self._run(), name=f"copy from {self._source} to {self.target}")

    async def settle(self, slots: Collection[int]) -> None:
        """Return once the target has all that the source has of these slots (**level**). They are locked.

        The source does not count as swept from then on: it keeps its keys of the slots, which are not its own after
        the switch.

        Raises :class:`MigrationError`: the copy is void.
        """
        if self._task is None:
            raise NotNearlyLevel(self.target)
        await self._unless_ended(lambda: self._settle(slots))
        log.info("copy_level", source=self._source, target=self.target, slots=ranges.show(slots))

    def keep_only(self, slots: Collection[int]) -> None:
        """Copy no other slots from now on."""
        kept = frozenset(slots)
        for slot, number in enumerate(self._wanted):
            if number and slot not in kept:
                self._wanted[slot] = 0

    async def close(self) -> None:
        """End the copy, and whatever it has under way; the stream, too, if it is the last one. It raises nothing."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task
        self._stream.leave(self)
        await self._stream.ended()

    async def _unless_ended(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this in its turn, unless the copy ends before; then raise what ended it."""
        assert self._task is not None, "the copy was begun"
        task = asyncio.ensure_future(self._in_turn(work))
        try:
            await asyncio.wait((task, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is not None:
            # The end of the copy closes connections; what ended it says more than that.
            await asyncio.wait((self._task,), timeout=ENDING_SECONDS)
        if self._task.done():
            task.cancelled() or task.exception()
            self._task.result()
        task.result()

    async def _in_turn(self, work: Callable[[], Awaitable[None]]) -> None:
        # topom may have broken off an earlier request, and the two would use the same connections.
        async with self._turn:
            await work()

    async def _nearly_level(self) -> None:
        patience = Patience(self._pace)
        await self._catch_up(patience)
        assert self._pair is not None, "it follows"
        assert self._copy is not None, "likewise"
        # Within the lock nothing is to be connected anew, and a server may close what was idle.
        former = self._writing, self._asking
        self._writing, self._asking = await self._pair.connect_source(), await self._pair.connect_target()
        for one in former:
            if one is not None:
                one.close()
        await self._copy.applier.apply(0, b"", 0, "nearly level")
        # A source may hold its stream back for a second behind a snapshot. That is over once a marker has come by. If
        # it takes long, so would the next one, within the lock.
        for _ in range(MOST_MARKERS):
            if await self._marker_seconds(patience) <= NEARLY_SECONDS:
                break
        # An operator may have changed the server that is followed.
        await self._stream.followed.look_again(self._writing)

    async def _catch_up(self, patience: Patience) -> None:
        """Return once little of what has come is missing at the target. Raises NeverLevel."""
        while (lag := self.lag) is None or lag > NEARLY_BYTES:
            if not patience.lasts(counts=lag is not None):
                raise NeverLevel(
                    f"{self._source} is written faster than {self.target} takes it: {lag} bytes are missing there "
                    f"after {LEVEL_SECONDS:g} s",
                    "move fewer slots at a time, or in another way",
                )
            if self._following is not None and patience.half_gone:
                self._following.rest_no_more()
            await asyncio.sleep(LOOK_SECONDS)

    async def _marker_seconds(self, patience: Patience) -> float:
        """How long a marker takes to come by. Raises NeverLevel."""
        seconds = asyncio.get_running_loop().time
        began = seconds()
        passing = asyncio.ensure_future(self._pass_marker(()))
        try:
            while not passing.done():
                if not patience.lasts():
                    raise NeverLevel(
                        f"the stream that is followed is late: what was written at {self._source} has not come by for "
                        f"{seconds() - began:.1f} s, and the copy was not level within {LEVEL_SECONDS:g} s",
                        "see to the network between the migrator and that server, or have a migrator run near it; "
                        "these slots move in another way",
                    )
                await asyncio.wait((passing,), timeout=LOOK_SECONDS)
        finally:
            passing.cancel()
            await asyncio.wait((passing,))
        passing.result()
        return seconds() - began

    async def _settle(self, slots: Collection[int]) -> None:
        if self._writing is None or self._asking is None or self._copy is None:
            raise NotNearlyLevel(self.target)
        source = self._writing
        # owned: a sweep under way has looked for keys of slots that have left by now; it is not to count.
        not_swept = pack("HDEL", SWEPT, "swept", "token")
        # level: no client writes these slots, so all of them that the source will ever have stands before the marker.
        marker = await self._pass_marker(slots, not_swept)
        await self._copy.settle(source, slots, f"marker {marker}")
        if await _evicted_at(self._asking) != self._evicted:
            raise CopyVoid("the target has evicted keys since the copy began")
        await self._copy.applier.end(source)
        self._progress.completed()

    async def _pass_marker(self, slots: Collection[int], *before: bytes) -> str:
        """Write a marker at the source, and return it once it has come by; these slots leave the copy with it.

        ``before`` are packed commands that the source runs right before it, in database 0.
        """
        assert self._writing is not None, "it is nearly level"
        assert self._following is not None, "likewise"
        marker = secrets.token_hex(16)
        with self._following.expect(marker.encode(), slots) as come_by:
            await self._writing.select(0)
            commands = *before, pack("SET", MARKER, marker, "EX", MARKER_SECONDS)
            checked(self._writing, await self._writing.send(b"".join(commands), len(commands)))
            await come_by.wait()
        return marker

    async def _run(self) -> None:
        try:
            await self._follow()
        finally:
            self._stream.leave(self)

    async def _follow(self) -> None:
        stream = self._stream
        async with AsyncExitStack() as stack:
            throttle = await stack.enter_async_context(
                steered(
                    self._pace,
                    self._source,
                    self.target,
                    stream.access,
                    self._progress,
                    stream.instance,
                    stream.timeouts,
                )
            )
            pair = self._pair = ServerPair(
                stack,
                self._source,
                self.target,
                stream.access,
                stream.instance,
                stream.timeouts,
                stream.term,
                (stream.run_id, self._run_id),
                at_source=copying_prefix(stream.id),
            )
            target = await pair.connect_target()
            abilities = await read_abilities(target)
            self._evicted = await _evicted_at(target)
            source = await pair.connect_source()
            words = await words_of(source, target, abilities)
            source.close()
            applier = Applier(pair.connect_target, self._id)
            self._copy = Copy(
                NUMBER,
                self._wanted,
                self._key_slots,
                applier,
                Deadlines(now_ms() + LONGEST_MS),
                self._progress,
                abilities,
                pair.connect_source,
                words=words,
            )
            spool = await stream.reader(self, await target.info())
            self._progress.followed = followed = stream.followed.address
            self._following = Following(
                followed, spool, self._key_slots, self._wanted, self._copy, throttle, stream.folder
            )
            try:
                await self._following.run()
            except MigrationError as error:
                stream.followed.require_no_loss(error)
                raise


async def make_ready(
    source: str,
    target: str,
    copy: str,
    *,
    stream: str,
    replicas: Sequence[str] = (),
    access: ServerAccess,
    instance: str,
    term: int = 0,
    timeouts: Timeouts | None = None,
    run_ids: tuple[str, str] | None = None,
) -> tuple[str, str]:
    """Let a copy begin between these masters. End the connections of whoever moved keys or copied to the target before,
    of whoever moved keys from the source, and of its earlier streams; give the run ids of both.

    **applied-once**: who decides about copies does this, and not the process that makes the copy. That process may be
    paused, cut off and taken for dead, and go on at any time (:mod:`migrator.stream.applying`).

    A source has one stream at a time (:mod:`topom.migrators.gathering`), so only copies of this one have connections to
    keep there. Those of earlier streams are ended, also at replicas (:mod:`migrator.stream.earlier`). They may belong
    to a process that stands still, and it may connect again later. That does no harm: nothing is done at a source by
    copies but this:

    - to read the stream, values and deadlines, and the payload of a trial key, in the step that makes and deletes it;
    - to set :data:`~slots.reserved.MARKER`, which only its writer waits for, by a text that is its own. Others pass it
      over, and it expires;
    - to take away that the source was swept, and a sweep under way. It is swept once more (**owned**);
    - to add to the number of hidden keys, which DBSIZE subtracts. That runs only while the source does not count as
      swept, and the sweep that is due sets the number anew (``hide_left.lua``).

    A topom of a later term ends them all (:mod:`migrator.terms`).

    Args:
        copy: the id of the copy.
        stream: the id of the stream that it shares, or has for itself.
        replicas: of the source; one of them may be followed.
        access, instance, term, timeouts: as for :class:`~migrator.stream.sourcestream.SourceStream`.
        run_ids: those that source and target have to have; by default, whatever they have.

    Raises :class:`MigrationError`.
    """
    async with AsyncExitStack() as stack:
        # Others of this stream may be made ready at the source meanwhile, and do not end this connection there.
        limits, own = timeouts or Timeouts(), copying_prefix(stream)
        pair = ServerPair(stack, source, target, access, instance, limits, term, run_ids, at_source=own)
        at_target = await pair.connect_target()
        await pair.end_earlier(at_target, WRITING)
        at_source = await pair.connect_source()
        await pair.end_earlier(at_source, migrator_prefix())
        await pair.end_earlier(at_source, COPYING, but=own)
        await end_at_replicas(replicas, own, access, instance, limits, lambda: at_source.call("PING"))
        await begin_copy(at_target, copy)
        return pair.run_id_of(source), pair.run_id_of(target)


async def _evicted_at(target: Connection) -> int:
    """How many keys the target has evicted.

    Raises:
        TargetEvicts: it may evict some.
        ClockAhead: deadlines are withheld by this process's clock, and the target's is ahead.
    """
    # Slots may be locked, so all is asked at once.
    questions = pack("INFO", "memory"), pack("INFO", "stats"), pack("TIME")
    memory, stats, told = checked(target, await target.send(b"".join(questions), len(questions)))
    with target.understood("INFO"):
        facts = Facts.from_info(target.address, Info.parse(memory))
        evicted = Info.parse(stats).number("evicted_keys", 0)
    if facts.evicts:
        raise TargetEvicts(
            f"target {target.address} evicts keys ({facts.policy}) when its memory is full, and a copy by the "
            "replication stream would not notice",
            "these slots move key by key",
        )
    with target.understood("TIME"):
        ahead_ms = milliseconds(told) - now_ms()
    if ahead_ms > MOST_AHEAD_MS:
        raise ClockAhead(
            f"the clock of target {target.address} is {ahead_ms / 1000:.1f} s ahead of the migrator's, so keys of a "
            "copy could expire too early",
            "set the clocks right; until then these slots move key by key",
        )
    return evicted
