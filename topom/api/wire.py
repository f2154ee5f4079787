"""What uvicorn makes of a WebSocket, with a short way for frames that need no waiting.

A thousand proxies send a heartbeat each second, and all acknowledge a table at the same instant. Over ASGI each frame
wakes a task for what is done in microseconds. So who serves a stream may take its frames as they come, and write its
own at once; whatever is not taken so goes the long way, in order.

**bounded**: what is taken is done with before the next frame is read; what is written waits in the connection's buffer,
and beyond that one's limit nothing is to be written before :meth:`Wire.drained`.
"""

import struct
from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

EXTENSION = "slotferry.wire"
_TEXT = 0x81
"""The first byte of a text of one frame."""


def framed(text: str) -> bytes:
    """A text as a server sends it."""
    data = text.encode()
    length = len(data)
    if length < 126:
        return bytes((_TEXT, length)) + data
    if length < 1 << 16:
        return struct.pack(">BBH", _TEXT, 126, length) + data
    return struct.pack(">BBQ", _TEXT, 127, length) + data


class Wire(WebSocketsSansIOProtocol):
    """One WebSocket. The ASGI scope has it under :data:`EXTENSION`."""

    taker: Callable[[str], bool] | None = None
    """Is given each text that comes, and says whether it has done all that is to be done. Must not raise."""

    @property
    def is_writable(self) -> bool:
        """Whether something may be written now."""
        return self.writable.is_set() and self.conn.state is State.OPEN and not self.transport.is_closing()

    def write(self, frame: bytes) -> None:
        """Write what :func:`framed` gave, at once; only while :attr:`is_writable`."""
        self.transport.write(frame)

    async def drained(self) -> None:
        """Wait until what was written before has been taken, or the connection is gone."""
        await self.writable.wait()

    async def run_asgi(self) -> None:
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[EXTENSION] = self
        await super().run_asgi()

    def send_receive_event_to_app(self) -> None:
        # What waits for the long way comes first.
        if (
            self.taker is not None
            and not self.read_paused
            and len(self.frames) == 1
            and self.curr_msg_data_type == "text"
        ):
            try:
                text = self.frames[0].decode()
            except UnicodeDecodeError:
                pass  # refused there
            else:
                if self.taker(text):
                    self.frames = []
                    return
        super().send_receive_event_to_app()


def wire_of(scope: Scope) -> Wire | None:
    """The wire of a WebSocket; None where another server than topom's own serves it."""
    found = scope.get("extensions", {}).get(EXTENSION)
    return found if isinstance(found, Wire) else None
