"""The WebSocket of uvicorn, with a short way for frames that need no wait.

A thousand proxies send a heartbeat each second, and all acknowledge a table at the same instant. Over ASGI each frame
wakes a task, for work of microseconds. So the code that serves a stream may take frames as they come, and write its own
at once. Frames that are not taken so go the long way, in order.

**bounded**: a frame that is taken is dealt with before the next one is read. What is written waits in the connection's
buffer; once the buffer is full, nothing may be written before :meth:`Wire.drained` returns.
"""

import struct
from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

EXTENSION = "slotferry.wire"
_TEXT = 0x81
"""The first byte of a text that is one frame."""


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
    """Gets each text that comes; gives whether it has dealt with it. Must not raise."""

    @property
    def is_writable(self) -> bool:
        """Whether a frame may be written now."""
        return self.writable.is_set() and self.conn.state is State.OPEN and not self.transport.is_closing()

    def write(self, frame: bytes) -> None:
        """Write a frame of :func:`framed` at once; only while :attr:`is_writable`."""
        self.transport.write(frame)

    async def drained(self) -> None:
        """Wait until there is room in the buffer again, or the connection is gone."""
        await self.writable.wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            # bounded: nobody answers a head that is refused here, and nothing else would end the connection.
            self.transport.close()

    async def run_asgi(self) -> None:
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[EXTENSION] = self
        await super().run_asgi()

    def send_receive_event_to_app(self) -> None:
        # Frames that wait for the long way go first.
        if (
            self.taker is not None
            and not self.read_paused
            and len(self.frames) == 1
            and self.curr_msg_data_type == "text"
        ):
            try:
                text = self.frames[0].decode()
            except UnicodeDecodeError:
                pass  # the long way refuses it
            else:
                if self.taker(text):
                    self.frames = []
                    return
        super().send_receive_event_to_app()


def wire_of(scope: Scope) -> Wire | None:
    """The wire of a WebSocket; None if another server than topom's own serves it."""
    found = scope.get("extensions", {}).get(EXTENSION)
    return found if isinstance(found, Wire) else None
