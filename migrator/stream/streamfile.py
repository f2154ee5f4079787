"""The replication stream of a source in files, from which an event loop reads by the source's offsets.

An *offset* is how many bytes of the stream are before a point. So who has all up to ``offset`` reads on at ``offset``.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from migrator.stream.errors import LinkClosed
from migrator.stream.space import NamelessFile, Space
from migrator.stream.waking import Waking

SEGMENT_BYTES = 16 * 1024 * 1024
"""The least size of a file, and what is freed at a time."""
MOST_SEGMENTS = 64
"""How many files a stream has at most, besides the one that is written; a larger spool has larger files."""

ARRIVAL_MS = 200
"""Bytes that come within this time have one time of arrival, that of the last of them."""
MOST_ARRIVALS = 100_000
"""How many times of arrival are kept; bytes older than the oldest count as having come then."""


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class _Arrival(NamedTuple):
    end: int
    began_ms: int
    ended_ms: int


@dataclass
class _Segment:
    start: int
    file: NamelessFile
    size: int = 0


class SpooledStream:
    """Written by one thread; read and released in the thread of an event loop. All files but the last one are full.
    What is released is freed in a thread that writes or looks at the room: to free a large file takes a while, and an
    event loop has no time for it.

    Attributes:
        start: offset of the first byte that can be read; 0 before the link has begun.
        end: offset behind the last one.
    """

    def __init__(self, space: Space, waking: Waking, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._space = space
        self._waking = waking
        self._segments: list[_Segment] = []
        self._segment_bytes = max(SEGMENT_BYTES, space.most // MOST_SEGMENTS)
        self._needed = 0
        self._closed = False
        self.start = 0
        self.end = 0
        self._arrivals: list[_Arrival] = []

    @property
    def file_bytes(self) -> int:
        """What is freed at a time."""
        return self._segment_bytes

    def begin(self, offset: int) -> None:
        """The stream begins at ``offset``."""
        with self._waking.condition:
            self.start = self.end = self._needed = offset

    def append(self, data: memoryview) -> None:
        """What came next. Raises :class:`SpoolFull`, :class:`SpoolUnusable` and :class:`LinkClosed`."""
        self.free()
        while data:
            segment = self._open()
            part = data[: self._segment_bytes - segment.size]
            self._space.write(segment.file, part)
            with self._waking.condition:
                segment.size += len(part)
                self._space.held += len(part)
                self.end += len(part)
                self._note_arrival()
                self._waking.wake()
            data = data[len(part) :]

    def read(self, offset: int, most: int) -> bytes:
        """Bytes from ``offset`` on, ``most`` at most; empty if there are none yet. What came before a failure is given
        before the failure.

        Raises:
            MigrationError: there are none, and the link or the spool has failed.
            ValueError: it was released, or is beyond the end.
        """
        with self._waking.condition:
            if not self._needed <= offset <= self.end:
                raise ValueError(f"offset {offset} is not within {self._needed} and {self.end}, which are held")
            if offset == self.end or not self._segments:
                if self._waking.failure is not None:
                    raise self._waking.failure
                return b""
            segment = self._segments[(offset - self._segments[0].start) // self._segment_bytes]
            position = offset - segment.start
            size = min(most, segment.size - position)
        return segment.file.read(size, position)

    def arrived_ms(self, offset: int) -> int:
        """When the byte before ``offset`` came, in milliseconds since 1970, or up to :data:`ARRIVAL_MS` later. It may
        be asked for what has been read and not released."""
        with self._waking.condition:
            place = bisect_left(self._arrivals, offset, key=attrgetter("end"))
            return self._arrivals[place].ended_ms if place < len(self._arrivals) else self._clock()

    async def more(self, offset: int) -> None:
        """Wait until there are bytes behind ``offset``. Raises the failure if there are none and none come."""
        await self._waking.until(lambda: self.end > offset)

    def release(self, offset: int) -> None:
        """Nobody reads what is before ``offset`` any more. Its files are freed by :meth:`free`, and when more is
        written."""
        with self._waking.condition:
            if offset > self.end:
                raise ValueError(f"offset {offset} is beyond {self.end}, the end of what is held")
            self._needed = max(self._needed, offset)
            del self._arrivals[: bisect_left(self._arrivals, self._needed, key=attrgetter("end"))]

    def free(self) -> None:
        """Free files of what was released. It is not for an event loop's thread."""
        with self._waking.condition:
            count = min((self._needed - self.start) // self._segment_bytes, len(self._segments))
            freed, self._segments = self._segments[:count], self._segments[count:]
            self._space.held -= sum(segment.size for segment in freed)
            self.start += count * self._segment_bytes
        del freed

    def close(self) -> None:
        """Free all of it."""
        with self._waking.condition:
            self._closed = True
            self._space.held -= sum(segment.size for segment in self._segments)
            freed, self._segments = self._segments, []
        del freed  # the system takes a while to free a large file, and nobody waits for it

    def _note_arrival(self) -> None:
        now = self._clock()
        began = now
        if self._arrivals and now - self._arrivals[-1].began_ms < ARRIVAL_MS:
            began = self._arrivals.pop().began_ms
        self._arrivals.append(_Arrival(self.end, began, now))
        del self._arrivals[:-MOST_ARRIVALS]

    def _open(self) -> _Segment:
        """The file that is written."""
        with self._waking.condition:
            if self._segments and self._segments[-1].size < self._segment_bytes:
                return self._segments[-1]
        segment = _Segment(self.end, self._space.file())
        with self._waking.condition:
            if self._closed:
                raise LinkClosed("the spool is closed")
            self._segments.append(segment)
        return segment
