"""The stream of events: server-sent events over one long answer, each as soon as it is stored.

**bounded**: :data:`MOST_STREAMS` at a time. Nothing is kept for a client but the id of what it was sent last; one that
takes nothing for :data:`SEND_SECONDS` is cut off. A comment goes out every :data:`QUIET_SECONDS` without an event, so
that either side finds out that the other is gone.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from topom.cluster.state import ClusterState
from topom.errors import TopomError, Unavailable
from topom.term.service import Topom

MOST_STREAMS = 64
SEND_SECONDS = 30.0
QUIET_SECONDS = 15.0
EVENTS_A_PART = 100


class TooManyStreams(Unavailable):
    """As many clients follow the events as may."""


class EventStreams:
    """The streams of one topom.

    Args:
        serving: what answers now: another one whenever this process begins to lead, or ceases to.
    """

    def __init__(self, serving: Callable[[], Topom]) -> None:
        self._serving = serving
        self.open = 0

    def begin(self, since: int | None) -> "EventStream":
        """A stream of the events after ``since``, or of those from now on.

        Raises:
            TooManyStreams: there are too many.
            NotLeading: nothing is known yet.
        """
        if self.open >= MOST_STREAMS:
            raise TooManyStreams(f"{MOST_STREAMS} clients follow the events already; ask with since now and then")
        events = self._serving().ledger.state.events
        newest = events[-1].id if events else 0
        return EventStream(self, self._parts(newest if since is None else since))

    async def _parts(self, last: int) -> AsyncIterator[str]:
        yield ": events of topom\n\n"
        while True:
            try:
                topom = self._serving()
                news = await topom.waiters.until(partial(_has_newer, last), QUIET_SECONDS)
            except TopomError:
                return
            if not news:
                if topom.waiters.released and topom is self._serving():
                    return
                yield ": nothing new\n\n"
                continue
            events = topom.ledger.state.events
            if events[0].id > last + 1:
                yield f"event: missed\ndata: {json.dumps({'since': last, 'oldest': events[0].id})}\n\n"
                last = events[0].id - 1
            place = last + 1 - events[0].id  # ids have no gaps
            for event in events[place : place + EVENTS_A_PART]:
                last = event.id
                yield f"id: {event.id}\ndata: {json.dumps(asdict(event))}\n\n"


def _has_newer(last: int, state: ClusterState) -> bool:
    return bool(state.events) and state.events[-1].id > last


class EventStream(StreamingResponse):
    """One of them, which counts while it is sent."""

    def __init__(self, streams: EventStreams, parts: AsyncIterator[str]) -> None:
        super().__init__(parts, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def limited(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        self._streams.open += 1
        try:
            # The connection ends with it; the client asks again from where it was.
            with suppress(TimeoutError):
                await super().__call__(scope, receive, limited)
        finally:
            self._streams.open -= 1
