"""The channel between a proxy's supervisor and one of its workers: JSON lines over a socket pair.

Both ends use :class:`Channel`. The messages are those of :mod:`slots.messages.channel`.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from slots.messages.message import Message, MessageError, encode

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest message. A table of 16,384 slots that all move takes 1.6 MB."""
UNSENT_LIMIT_BYTES = 2 * LINE_LIMIT_BYTES
"""The most bytes that may wait for a peer that does not read, before the channel is given up."""

Received = TypeVar("Received", bound=Message)


class ChannelError(Exception):
    """The peer, or a message, breaks the rules of the channel."""


class MessageTooLong(ChannelError):
    """A message is longer than :data:`LINE_LIMIT_BYTES`. Nothing was sent; the channel still works."""


class Channel(Generic[Received]):
    """One end of the channel. Not for use from more than one thread.

    Args:
        parse: reads a line of the peer's; raises :class:`~slots.messages.message.MessageError`.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parse: Callable[[bytes], Received]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._parse = parse

    @classmethod
    async def open(cls, endpoint: socket.socket, parse: Callable[[bytes], Received]) -> Self:
        """A channel over one socket of a connected pair; the channel owns the socket from now on."""
        endpoint.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=endpoint, limit=LINE_LIMIT_BYTES), parse)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send a message without waiting for the peer. Once the channel has ended, this does nothing.

        Raises:
            MessageTooLong: see there.
            ChannelError: the peer does not read; the channel is closed. bounded: no more than
                :data:`UNSENT_LIMIT_BYTES` wait for it.
        """
        line = encode(message).encode() + b"\n"
        if len(line) > LINE_LIMIT_BYTES:
            raise MessageTooLong(f"a message {message.type!r} of {len(line)} bytes; {LINE_LIMIT_BYTES} are allowed")
        transport = self._writer.transport
        if transport.is_closing():
            return
        if self.unsent > UNSENT_LIMIT_BYTES:
            transport.abort()
            raise ChannelError(f"the peer has not read {UNSENT_LIMIT_BYTES} bytes of messages; its channel is closed")
        self._writer.write(line)

    async def receive(self) -> Received | None:
        """The next message; None once the peer has closed its end or died.

        Raises:
            ChannelError: what came is not a message; it says which field is wrong.
        """
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise ChannelError(f"a line of more than {LINE_LIMIT_BYTES} bytes came") from error
        try:
            return self._parse(line)
        except MessageError as error:
            raise ChannelError(f"a message came that cannot be used: {error}") from error

    async def flush(self) -> None:
        """Wait until the kernel has taken everything sent. Once the channel has ended, this does nothing."""
        transport = self._writer.transport
        high_water = transport.get_write_buffer_limits()[1]
        try:
            transport.set_write_buffer_limits(0)
            await self._writer.drain()
        except ConnectionError:
            return
        finally:
            transport.set_write_buffer_limits(high_water)

    def close(self) -> None:
        """Close this end; the peer reads the end of the stream."""
        self._writer.close()
