"""The stream of events: server-sent events in one long answer, each sent as soon as it is stored.

**bounded**: :data:`MOST_STREAMS` at a time. topom keeps for each client only the id of the last event that it was sent.
A client that takes nothing for :data:`SEND_SECONDS` is cut off. After each :data:`QUIET_SECONDS` without an event a
comment goes out, so that either side notices if the other is gone. A stream ends with the session that asked for it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from topom.cluster.event_sinks import newest_event
from topom.cluster.events import Event
from topom.errors import TopomError, Unavailable
from topom.reasons import Kind
from topom.term.service import Topom

MOST_STREAMS = 64
SEND_SECONDS = 30.0
QUIET_SECONDS = 15.0
EVENTS_A_PART = 100


class TooManyStreams(Unavailable):
    """As many clients follow the events as are allowed."""

    kind = Kind.BUSY


class EventStreams:
    """The streams of one topom: a :class:`~topom.cluster.event_sinks.EventSink` that wakes them.

    The streams take what they send from the state. So a stream can begin in the past, and a slow one keeps nothing in
    memory.

    Args:
        serving: gives the topom that answers now; it changes each time this process begins or ceases to lead.
    """

    def __init__(self, serving: Callable[[], Topom]) -> None:
        self.serving = serving
        self.open: set[EventStream] = set()
        self.closed = False

    def stored(self, events: Sequence[Event]) -> None:
        """Wake all streams: there is news."""
        for stream in self.open:
            stream.woken.set()

    def close(self) -> None:
        """Let every stream end once it has sent all events."""
        self.closed = True
        self.stored(())

    def begin(self, since: int | None, expires: float | None) -> "EventStream":
        """A stream of the events after ``since``; None for events from now on.

        Args:
            expires: when its session ends, and so the stream, in seconds since 1970; None for never.

        Raises:
            TooManyStreams: there are too many.
            NotLeading: nothing is known yet.
        """
        if len(self.open) >= MOST_STREAMS:
            raise TooManyStreams(f"{MOST_STREAMS} clients follow the events already; ask with since now and then")
        newest = newest_event(self.serving().ledger.state)
        return EventStream(self, newest if since is None else since, expires)


class EventStream(StreamingResponse):
    """One stream, which is open while it is sent. It begins after the event ``last``."""

    def __init__(self, streams: EventStreams, last: int, expires: float | None) -> None:
        super().__init__(self._parts(last), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self.woken = asyncio.Event()
        self._streams = streams
        self._expires = expires
        self._expired = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def limited(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        self._streams.open.add(self)
        over = None
        if self._expires is not None:
            seconds = max(0.0, self._expires - time.time())
            over = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            # The connection ends with the answer; the client asks again from where it was.
            with suppress(TimeoutError):
                await super().__call__(scope, receive, limited)
        finally:
            if over is not None:
                over.cancel()
            self._streams.open.discard(self)

    def _expire(self) -> None:
        self._expired = True
        self.woken.set()

    async def _parts(self, last: int) -> AsyncIterator[str]:
        yield ": events of topom\n\n"
        while not self._expired:
            self.woken.clear()
            try:
                state = self._streams.serving().ledger.state
            except TopomError:
                return
            if newest_event(state) <= last:
                if self._streams.closed:
                    return
                if not await self._news():
                    yield ": nothing new\n\n"
                continue
            events = state.events
            if events[0].id > last + 1:
                yield f"event: missed\ndata: {json.dumps({'since': last, 'oldest': events[0].id})}\n\n"
                last = events[0].id - 1
            place = last + 1 - events[0].id  # ids have no gaps
            for event in events[place : place + EVENTS_A_PART]:
                last = event.id
                yield f"id: {event.id}\ndata: {json.dumps(asdict(event))}\n\n"

    async def _news(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                return await self.woken.wait()
        return False
