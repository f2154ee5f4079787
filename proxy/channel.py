"""The channel between a proxy's supervisor and one of its workers: JSON lines over a socket pair.

Both ends use :class:`Channel`. The messages:

supervisor -> worker

- ``start``: ``settings`` (:meth:`proxy.settings.ProxySettings.to_wire`; the ports of ``listen`` and ``tls_listen`` are
  never 0), ``index``, ``incarnation``, ``instance``, ``product``, ``number_of_slots``, ``slot_function``,
  ``databases``, ``allowance`` (as below), ``listen_fds``. These are descriptors of inherited, bound sockets, by the
  setting that names the place. The worker calls ``listen`` on them. ``unix_socket``, which all workers share, is always
  among them. Where SO_REUSEPORT spreads connections (Linux) ``listen`` and ``tls_listen`` are not among them, and the
  worker binds those itself with SO_REUSEPORT and SO_REUSEADDR. A worker listens once it has its first table.
- ``table``: a whole slot table, or the changes since one (``since``), as :mod:`slots.table` writes them.
- ``allowance``: ``instance``, ``all``, ``groups``: until when servers may be used (:mod:`proxy.servers.allowances`).
- ``identity``: ``instance``, ``incarnation``, ``allowance`` and ``table`` (whole). The proxy was fenced, or removed:
  every backend is closed, and opened again under the new name **by the table that comes along**. Both happen in one
  step: by the old table, the new name could send a slot's commands where they no longer belong (**one-owner**).
- ``proxies``: ``own`` and ``nodes``, see :mod:`proxy.clusterview`. In cluster mode only, before the first table.
- ``ask``: ``id``, ``what`` and the other fields of the asking worker; answered by ``answer``.
- ``answer``: ``id``, ``answers``: a list, by worker index, of what the workers answered within a second.
- ``drain``: stop listening, have the clients leave within ``drain_seconds`` and ``drain_last_seconds``, exit: with
  status 0 if no server can still run anything the worker sent, else with another, and its connections are ended at
  the servers.

worker -> supervisor

- ``ready``: ``address``. It listens.
- ``ack``: ``epoch``, ``instance``. It has applied the table, and **drained** holds for it.
- ``nack``: ``epoch``, ``instance``, ``reason``. Draining took too long, and the worker has unlocked again.
- ``resync``: it cannot apply the changes it got; answered by a whole ``table``.
- ``counters``: ``counters``, a flat mapping of names to numbers, and ``commands``, of command names to calls, errors,
  microseconds and a histogram (:mod:`proxy.engine.statistics`), each second. A worker that sends nothing for several
  seconds is taken for hung, and ended.
- ``limited``: it holds an ``allowance`` that has a limit.
- ``fenced``: ``server``, ``instance``. It found the fence of ``instance`` at a server.
- ``ask``: ``id`` (counted by the worker), ``what`` and more; ``answer``: ``id``, ``answer``.

A message with an ``instance`` that is no longer the worker's is ignored: it was sent before the ``identity`` came.

A worker ends when its channel ends: without its supervisor it would get no new tables.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any, Self

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest message. A table of 16,384 slots that all move takes 1.6 MB."""
UNSENT_LIMIT_BYTES = 2 * LINE_LIMIT_BYTES
"""The most bytes that may wait for a peer that does not read, before the channel is given up."""

Message = dict[str, Any]


class ChannelError(Exception):
    """The peer, or a message, breaks the rules of the channel."""


class MessageTooLong(ChannelError):
    """A message is longer than :data:`LINE_LIMIT_BYTES`. Nothing was sent; the channel still works."""


class Channel:
    """One end of the channel. Not for use from more than one thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, endpoint: socket.socket) -> Self:
        """A channel over one socket of a connected pair; the channel owns the socket from now on."""
        endpoint.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=endpoint, limit=LINE_LIMIT_BYTES))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message without waiting for the peer. Once the channel has ended, this does nothing.

        Raises:
            MessageTooLong: see there.
            ChannelError: the peer does not read; the channel is closed. bounded: no more than
                :data:`UNSENT_LIMIT_BYTES` wait for it.
        """
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > LINE_LIMIT_BYTES:
            raise MessageTooLong(
                f"a {message.get('type')} message of {len(line)} bytes; {LINE_LIMIT_BYTES} are allowed"
            )
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > UNSENT_LIMIT_BYTES:
            transport.abort()
            raise ChannelError(f"the peer has not read {UNSENT_LIMIT_BYTES} bytes of messages; its channel is closed")
        self._writer.write(line)

    async def receive(self) -> Message | None:
        """The next message; None once the peer has closed its end or died.

        Raises:
            ChannelError: the received bytes are not a message.
        """
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise ChannelError(f"a line of more than {LINE_LIMIT_BYTES} bytes came") from error
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ChannelError(f"a line that is not JSON came: {line[:80]!r}") from error
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise ChannelError(f"a line that is not a message came: {line[:80]!r}")
        return message

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
