"""The copies that a migrator has, and what topom asks of them.

They last as long as one stream to topom. Each request that waits is a task of its own, and gives one answer. Copies
with one stream id share one replication stream (:mod:`migrator.stream.sourcestream`).

**bounded**: the number of copies (:data:`slots.messages.copies.MOST_COPIES`), and of requests under way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import ValidationError

from migrator.errors import MigrationError
from migrator.followable import disk_of
from migrator.pace import Pace, PaceSettings
from migrator.progress import Progress, ServerLatency
from migrator.stream.errors import StreamBegun
from migrator.stream.running import RunningCopy
from migrator.stream.sourcestream import SourceStream
from slots.access import ServerAccess
from slots.kinds import Kind
from slots.messages.copies import (
    MOST_COPIES,
    BeginCopy,
    CloseCopy,
    CopyRequest,
    CopyState,
    Done,
    Failed,
    Held,
    KeepOnly,
    Latency,
    MigratorMessage,
    NearlyLevel,
    Report,
    SetPace,
    Settle,
)
from slots.messages.message import explained, sentence

MOST_REQUESTS = 4 * MOST_COPIES
"""Requests under way, but for those to end a copy. A request that topom has broken off goes on until its copy ends."""

WARN_SECONDS = 60.0
"""Between two warnings of copies that cannot be reported."""

log = structlog.get_logger()


class NoSuchCopy(MigrationError):
    """topom asks for a copy that this process does not have."""


class TooManyCopies(MigrationError):
    """topom asks for more than a migrator does at a time."""

    kind = Kind.BUSY


class _Broke(MigrationError):
    """A request ended by an error that nobody expects."""

    kind = Kind.FAULT

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}", "the migrator's log says more")
        # A full disk may have room later. Whatever else it is, another snapshot would end the same way.
        self.passing = isinstance(error, OSError)


@dataclass(frozen=True, slots=True)
class _Held:
    copy: RunningCopy
    progress: Progress
    stream_id: str


class Copies:
    """The copies of one stream to topom.

    Args:
        access: how to log in at the servers.
        folder: for spools.
        say: sends a message to topom.
    """

    def __init__(self, access: ServerAccess, folder: Path, say: Callable[[MigratorMessage], None]) -> None:
        self._access = access
        self._folder = folder
        self._say = say
        self._pace = Pace()
        self._copies: dict[str, _Held] = {}
        self._streams: dict[str, SourceStream] = {}
        self._refused: dict[str, MigrationError] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._warned_at = -math.inf

    def take(self, message: CopyRequest) -> None:
        """Do what topom asks for, now or in a task that answers."""
        match message:
            case BeginCopy():
                self._begin(message)
            case KeepOnly():
                if message.copy_id in self._copies:
                    self._copies[message.copy_id].copy.keep_only(message.slots)
            case NearlyLevel() | Settle() if len(self._requests) >= MOST_REQUESTS:
                self._answer(message.number, _refuse())
            case NearlyLevel():
                self._answer(message.number, self._nearly_level(message.copy_id))
            case Settle():
                self._answer(message.number, self._settle(message.copy_id, message.slots))
            case CloseCopy():
                # It is never refused: it ends what waits for the copy.
                self._answer(message.number, self._close(message.copy_id))

    def set_pace(self, message: SetPace) -> None:
        """Let this pace hold for all copies together."""
        self._pace.change(
            PaceSettings(message.keys_per_second, message.bytes_per_second, message.latency_goal_milliseconds)
        )
        if message.paused:
            self._pace.pause()
        else:
            self._pace.resume()

    async def report(self) -> Report:
        """How far all copies are, without those that have a figure which no report has: it is worth no copy."""
        disk = await asyncio.to_thread(disk_of, self._folder)
        states = [self._state_of(id, held.copy, held.progress) for id, held in self._copies.items()]
        return Report(copies=[state for state in states if state is not None], disk=disk)

    def _state_of(self, id: str, copy: RunningCopy, progress: Progress) -> CopyState | None:
        try:
            return _state(id, copy, progress)
        except ValidationError as error:
            now = asyncio.get_running_loop().time()
            if now - self._warned_at >= WARN_SECONDS:
                self._warned_at = now
                log.warning("copy_not_reported", copy=id, reason=str(explained(error)))
            return None

    async def close(self) -> None:
        """End all copies, and whatever they have under way."""
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        await asyncio.gather(*(held.copy.close() for held in self._copies.values()))
        self._copies.clear()
        self._streams.clear()

    def _begin(self, message: BeginCopy) -> None:
        # What does not begin is not here when topom asks for it.
        if message.copy_id in self._copies or len(self._copies) + len(self._refused) >= MOST_COPIES:
            return
        progress = Progress()
        try:
            copy = RunningCopy(
                self._stream_of(message),
                message.target,
                message.slots,
                message.copy_id,
                run_id=message.target_run_id,
                key_slots=message.key_slots,
                pace=self._pace,
                progress=progress,
            )
        except StreamBegun as error:
            self._refused[message.copy_id] = error
        else:
            self._copies[message.copy_id] = _Held(copy, progress, message.stream_id)

    def _stream_of(self, message: BeginCopy) -> SourceStream:
        """The stream that a copy names, which is made by the first one. Raises StreamBegun if it is of another
        source."""
        stream = self._streams.get(message.stream_id)
        if stream is None:
            stream = self._streams[message.stream_id] = SourceStream(
                message.source,
                message.source_run_id,
                id=message.stream_id,
                folder=self._folder,
                access=self._access,
                instance=message.instance,
                term=message.term,
                replicas=message.replicas,
            )
        if (stream.source, stream.run_id) != (message.source, message.source_run_id):
            raise StreamBegun(
                f"the stream that was to be of {message.source} is of {stream.source}, or of another process"
            )
        return stream

    async def _nearly_level(self, id: str) -> None:
        await self._of(id).nearly_level()

    async def _settle(self, id: str, slots: list[int]) -> None:
        await self._of(id).settle(slots)

    async def _close(self, id: str) -> None:
        self._refused.pop(id, None)
        held = self._copies.pop(id, None)
        if held is not None:
            if not any(other.stream_id == held.stream_id for other in self._copies.values()):
                del self._streams[held.stream_id]
            await held.copy.close()

    def _of(self, id: str) -> RunningCopy:
        if id in self._refused:
            raise self._refused[id]
        if id not in self._copies:
            raise NoSuchCopy(f"the migrator has no copy {id}, or too many copies; it begins anew")
        return self._copies[id].copy

    def _answer(self, number: int, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._answered(number, work))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answered(self, number: int, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            return
        except MigrationError as error:
            # topom has the next copy follow another server, so it first hears which one this was.
            self._say(await self.report())
            self._say(_failed(number, error))
        except Exception as error:
            log.exception("copy_broke")
            self._say(_failed(number, _Broke(error)))
        else:
            self._say(Done(number=number))


async def _refuse() -> None:
    raise TooManyCopies("topom asks for more copies than a migrator makes at a time")


def _failed(number: int, error: MigrationError) -> Failed:
    return Failed(
        number=number,
        kind=error.kind,
        what=sentence(error.what),
        to_do=sentence(error.to_do),
        passing=error.passing,
        of_followed=error.of_followed,
    )


def _state(id: str, copy: RunningCopy, progress: Progress) -> CopyState:
    pacing = progress.pacing()
    held = (
        None
        if pacing is None
        else Held(
            speed=pacing.speed,
            source=_latency(pacing.source),
            target=_latency(pacing.target),
            held_back=sentence(pacing.held_back),
            since=pacing.since,
        )
    )
    return CopyState(
        copy_id=id,
        keys=progress.keys_moved,
        size=progress.bytes_moved,
        lag=copy.lag,
        held=held,
        followed=progress.followed or None,
    )


def _latency(of: ServerLatency) -> Latency:
    return Latency(p99=of.p99, quiet=of.quiet, allowed=of.allowed)
