"""A connection to a source that blocks its thread: lines and replies at first, then bytes as fast as they come.

**bounded**: each wait has a limit, and so have a line and a reply.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress

from migrator.connection import pack, split_address
from migrator.errors import SourceUnavailable
from migrator.stream.errors import FollowRefused
from slots.access import ServerAccess
from slots.replies import MOST_INFO_BYTES

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 10.0
TICK_SECONDS = 1.0
"""How long a wait for bytes lasts before its thread looks at what else there is to do."""
MOST_LINE_BYTES = 64 * 1024
_AHEAD_BYTES = 64 * 1024


class SourceConnection:
    """For one thread; only :meth:`shut` may be called by others.

    Args:
        address: ``host:port``.
        access: whether it is encrypted.

    Raises:
        SourceUnavailable: no server answers there.
    """

    def __init__(self, address: str, access: ServerAccess) -> None:
        self.address = address
        self._ahead = memoryview(b"")  # received, and not yet taken
        host, port = split_address(address)
        try:
            self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if (tls := access.tls) is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=host)
                self._socket.settimeout(TICK_SECONDS)
            except BaseException:
                self._socket.close()
                raise
        except TimeoutError:
            what = f"source {address} does not accept a connection within {CONNECT_SECONDS:g} s"
            raise SourceUnavailable(what) from None
        except (OSError, ssl.CertificateError) as error:
            raise SourceUnavailable(f"source {address} cannot be connected to: {error}") from error

    def send(self, *arguments: str | bytes | int) -> None:
        """Send a command, and wait for no reply. Raises OSError."""
        self._socket.sendall(pack(*arguments))

    def call(self, *arguments: str | bytes | int) -> bytes:
        """Send a command and give its reply, a simple or a bulk string.

        Raises:
            FollowRefused: the reply is an error.
            SourceUnavailable: there is none, or another kind of reply.
        """
        step = " ".join(str(argument) for argument in arguments[: 1 if arguments[0] == "AUTH" else 2])
        try:
            self.send(*arguments)
        except OSError as error:
            raise self.lost(error) from error
        line = self.line(step, REPLY_SECONDS, REPLY_SECONDS)
        if line.startswith(b"$"):
            return self._bulk(line, step)
        if not line.startswith(b"+"):
            raise self.not_understood(step, line)
        return line[1:]

    def line(self, step: str, seconds: float, silence: float) -> bytes:
        """The next line that is not empty, without its end. An empty one is a sign of life.

        Args:
            step: the command that is answered.
            seconds: the limit for the line.
            silence: the limit for a sign of life.

        Raises:
            FollowRefused: it is an error.
            SourceUnavailable: it does not come in time.
        """
        until = time.monotonic() + seconds
        while True:
            line = self._any_line(step, min(until, time.monotonic() + silence))
            if line.startswith(b"-"):
                raise FollowRefused(self.address, line[1:].decode(errors="replace"), step)
            if line:
                return line

    def receive_into(self, buffer: memoryview) -> int:
        """Fill as much of a buffer as there is; 0 once the source has closed the connection.

        Raises:
            TimeoutError: nothing came within :data:`TICK_SECONDS`.
            OSError: the connection is lost.
        """
        if self._ahead:
            size = min(len(buffer), len(self._ahead))
            buffer[:size] = self._ahead[:size]
            self._ahead = self._ahead[size:]
            return size
        return self._socket.recv_into(buffer)

    def shut(self) -> None:
        """End it; its thread hears of it at once."""
        with suppress(OSError):
            # Not the method of a socket with TLS, which may not be called while another thread reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free it, in its own thread."""
        self._socket.close()

    def lost(self, error: OSError | None = None) -> SourceUnavailable:
        """The connection is lost."""
        return SourceUnavailable(f"source {self.address}: {error or 'it closed the connection'}")

    def not_understood(self, step: str, said: bytes) -> SourceUnavailable:
        """The source answers as no Redis server does."""
        what = f"source {self.address} answers {step} as no Redis server does: {said!r:.80}"
        return SourceUnavailable(what, "look at what is running there")

    def _any_line(self, step: str, until: float) -> bytes:
        while True:
            found = bytes(self._ahead)
            line, ended, _ = found.partition(b"\n")
            if ended:
                self._ahead = self._ahead[len(line) + 1 :]
                return line.rstrip(b"\r")
            if len(found) > MOST_LINE_BYTES:
                raise self.not_understood(step, found)
            self._more(step, until)

    def _bulk(self, line: bytes, step: str) -> bytes:
        if not line[1:].isdigit() or (size := int(line[1:9])) > MOST_INFO_BYTES:
            raise self.not_understood(step, line)
        until = time.monotonic() + REPLY_SECONDS
        while len(self._ahead) < size + 2:
            self._more(step, until)
        found = bytes(self._ahead[:size])
        self._ahead = self._ahead[size + 2 :]
        return found

    def _more(self, step: str, until: float) -> None:
        """Receive some bytes ahead."""
        while True:
            try:
                data = self._socket.recv(_AHEAD_BYTES)
                break
            except TimeoutError:
                if time.monotonic() > until:
                    raise SourceUnavailable(f"source {self.address} does not answer {step} in time") from None
            except OSError as error:
                raise self.lost(error) from error
        if not data:
            raise self.lost()
        self._ahead = memoryview(bytes(self._ahead) + data)
