"""Who looks at the live picture. One writer in the process makes each message once, for all of them.

Whoever comes gets the whole picture, then what changes, at most each :data:`LEAST_SECONDS`. When another topom begins
to lead, all get the message ``leader`` and the end of their stream: they ask again, and reach the new leader.

**bounded**: :data:`MOST_VIEWERS` at a time. Messages for a viewer wait up to :data:`MOST_WAITING_BYTES`, beside one
whole picture; a viewer that takes nothing for :data:`SEND_SECONDS`, or falls behind by more, is cut off. The writer
rests :data:`REST` times as long as a picture takes, and looks only while somebody watches. The load is written beside
that, on a thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from topom.api.live.picture import Picture, changes, message, whole
from topom.api.live.taking import Taking
from topom.cluster.events import Event
from topom.errors import NotLeading, TopomError, Unavailable
from topom.reasons import Kind
from topom.term.node import Node
from topom.term.service import Topom

log = structlog.get_logger(__name__)

MOST_VIEWERS = 64
MOST_WAITING_BYTES = 4 * 1024 * 1024
SEND_SECONDS = 30.0
QUIET_SECONDS = 10.0
"""After so long without a message a comment goes out, so that either side notices if the other is gone."""
LEAST_SECONDS = 0.5
"""Between two messages."""
MOST_SECONDS = 5.0
REST = 32
"""The rest after a look, in multiples of the time that it took: looking takes at most 3% of a core."""
BEAT = b": nothing new\n\n"


class TooManyViewers(Unavailable):
    """As many look at the live picture as are allowed."""

    kind = Kind.BUSY


class Viewers:
    """The viewers of one process: a :class:`~topom.cluster.event_sinks.EventSink`, to hear when the process ends.

    Args:
        node: the process, if topom is one of several.
        serving: gives the topom that answers now.
    """

    def __init__(self, node: Node | None, serving: Callable[[], Topom]) -> None:
        self._node = node
        self._serving = serving
        self._viewers: set[Viewer] = set()
        self._writing: asyncio.Task[None] | None = None
        self._picture: Picture | None = None
        self._whole = b""
        """The message with the whole picture; empty if it has to be made."""
        self._closed = False

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._viewers)

    def join(self, expires: float | None = None) -> "Viewer":
        """One viewer more.

        Args:
            expires: when its session ends, and so its stream, in seconds since 1970; None for never.

        Raises:
            TooManyViewers: there are too many.
            NotLeading: nothing is known yet.
        """
        if len(self._viewers) >= MOST_VIEWERS:
            raise TooManyViewers(
                f"{MOST_VIEWERS} pages look at this cluster already, and each costs topom something",
                "close one, or use `slotferry status`",
            )
        if self._closed:
            raise NotLeading("this topom is about to end")
        self._serving()
        return Viewer(self, expires)

    def stored(self, events: Sequence[Event]) -> None:
        """Nothing to do: the writer looks by itself."""

    def close(self) -> None:
        """Let every stream end."""
        self._closed = True
        self._dismiss(b"")

    def enter(self, viewer: "Viewer") -> None:
        """Send to a viewer from now on."""
        self._viewers.add(viewer)
        if self._picture is not None:
            viewer.give(self._whole_message(self._picture))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="live picture")

    def leave(self, viewer: "Viewer") -> None:
        """Send no more to a viewer."""
        self._viewers.discard(viewer)

    async def _write(self) -> None:
        try:
            while self._viewers:
                topom = self._serving()
                await self._write_of(topom)
        except TopomError as error:
            log.info("live_picture_ends", reason=str(error))
        except Exception:
            log.exception("live_picture_failed")
        finally:
            self._picture = None
            # Whoever is left asks again, and finds out why.
            self._dismiss(b"")

    async def _write_of(self, topom: Topom) -> None:
        """Write what one topom knows, while somebody watches and the same topom leads."""
        taking = Taking(self._node, topom)
        standing = self._standing()
        try:
            picture = await taking.first()
            self._show(picture, message("picture", whole(picture)))
            self._whole = b""
            while self._viewers:
                began = time.perf_counter()
                if self._standing() != standing:
                    self._dismiss(message("leader", self._leader()))
                    return
                picture = taking.take()
                assert self._picture is not None
                changed = changes(self._picture, picture)
                if changed:
                    self._show(picture, message("changes", changed))
                took = time.perf_counter() - began
                await asyncio.sleep(min(MOST_SECONDS, max(LEAST_SECONDS, REST * took)))
        finally:
            self._picture = None
            await taking.close()

    def _show(self, picture: Picture, frame: bytes) -> None:
        self._picture, self._whole = picture, b""
        for viewer in self._viewers:
            viewer.give(frame)

    def _whole_message(self, picture: Picture) -> bytes:
        if not self._whole:
            self._whole = message("picture", whole(picture))
        return self._whole

    def _dismiss(self, last: bytes) -> None:
        viewers, self._viewers = self._viewers, set()
        for viewer in viewers:
            if last:
                viewer.give(last)
            viewer.end()

    def _standing(self) -> tuple[int, int | None]:
        """Another value when another topom leads, or this process begins or ceases to lead."""
        with suppress(NotLeading):
            leader = None if self._node is None else self._node.leader
            return id(self._serving()), None if leader is None else leader.term
        return 0, None

    def _leader(self) -> dict[str, str | None]:
        leader = None if self._node is None else self._node.leader
        return {"url": None if leader is None else leader.url}


class Viewer(StreamingResponse):
    """One stream, which is open while it is sent."""

    def __init__(self, viewers: Viewers, expires: float | None) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._parts(), media_type="text/event-stream", headers=headers)
        self._viewers = viewers
        self._expires = expires
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        self._ended = False

    def give(self, frame: bytes) -> None:
        """Send a message soon; cut the viewer off if too much waits. A stream that is about to end takes none."""
        if self._ended:
            return
        if self._waiting and self._bytes + len(frame) > MOST_WAITING_BYTES:
            self._cut_off()
            return
        self._waiting.append(frame)
        self._bytes += len(frame)
        self._woken.set()

    def end(self) -> None:
        """Let the stream end once what waits is sent."""
        self._ended = True
        self._woken.set()

    def _cut_off(self) -> None:
        """Let the stream end with the message that is under way."""
        self._waiting.clear()
        self.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def limited(sent: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(sent)

        self._viewers.enter(self)
        over = None
        if self._expires is not None:
            seconds = max(0.0, self._expires - time.time())
            over = asyncio.get_running_loop().call_later(seconds, self._cut_off)
        try:
            with suppress(TimeoutError):
                await super().__call__(scope, receive, limited)
        finally:
            if over is not None:
                over.cancel()
            self._viewers.leave(self)

    async def _parts(self) -> AsyncIterator[bytes]:
        yield b": the live picture\n\n"
        while True:
            self._woken.clear()
            while self._waiting:
                frame = self._waiting.popleft()
                self._bytes -= len(frame)
                yield frame
            if self._ended:
                return
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                yield BEAT
