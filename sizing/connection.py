"""A connection to one server: commands in, replies out, every wait limited.

It blocks, because an executor has nothing else to do meanwhile. It is thin, because hundreds of thousands of keys a
second pass through it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from types import TracebackType
from typing import Any

import hiredis

from sizing.errors import CommandRefused, ServerFailed
from slots.access import ServerAccess

NAME = "slotferry.sizing"
"""The prefix of the names of these connections in CLIENT LIST."""
RECEIVE_BYTES = 1 << 18

Argument = bytes | str | int


class Connection:
    """One connection, logged in. Use it as a context manager.

    Args:
        server: ``host:port``.
        access: credentials and TLS.
        connect_seconds, seconds: limits of connecting, and of waiting for more of a reply.

    Raises:
        ServerFailed: it cannot be connected to, or refuses the login.
    """

    def __init__(self, server: str, access: ServerAccess, connect_seconds: float, seconds: float) -> None:
        self.server = server
        self._seconds = seconds
        self._reader = hiredis.Reader()
        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        try:
            self._socket: socket.socket = socket.create_connection((host, int(port)), timeout=connect_seconds)
        except OSError as error:
            raise ServerFailed(server, f"cannot be connected to: {_reason(error, connect_seconds)}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if access.tls is not None:
                try:
                    self._socket = access.tls.wrap_socket(self._socket, server_hostname=host)
                except OSError as error:
                    raise ServerFailed(
                        server, f"does not get through a TLS handshake: {_reason(error, connect_seconds)}"
                    ) from None
            self._socket.settimeout(seconds)
            self._log_in(access)
        except BaseException:
            self._socket.close()
            raise

    def _log_in(self, access: ServerAccess) -> None:
        if access.login:
            try:
                self.call(*access.login)
            except CommandRefused as error:
                raise ServerFailed(
                    self.server,
                    f"refuses the login ({error.text.split(' ')[0]}); check SLOTFERRY_SIZING_REDIS_USER and "
                    "SLOTFERRY_SIZING_REDIS_PASSWORD in the environment of this process",
                ) from None
        # Looking at a key must not count as use. Servers before 7.2 do not know this command; nothing depends on it,
        # nor on the name.
        for command in (("CLIENT", "SETNAME", f"{NAME}.{os.getpid()}"), ("CLIENT", "NO-TOUCH", "ON")):
            with contextlib.suppress(CommandRefused):
                self.call(*command)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a reply on its way is lost."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def call(self, *command: Argument) -> Any:
        """Send one command and give its reply. Raises :class:`CommandRefused` for an error, :class:`ServerFailed`."""
        self.send(command)
        return self.receive()

    def send(self, *commands: tuple[Argument, ...]) -> None:
        """Send commands; each has a reply to be received. Raises :class:`ServerFailed`."""
        try:
            # Its type hints know tuples of one part only.
            self._socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))  # type: ignore[arg-type]
        except OSError as error:
            raise self._failed(error) from None

    def receive(self) -> Any:
        """The next reply. Raises :class:`CommandRefused` for an error, :class:`ServerFailed`."""
        reply = self.receive_any()
        if isinstance(reply, Exception):
            raise self._refused(reply)
        return reply

    def receive_any(self) -> Any:
        """The next reply; an error reply is given as ``hiredis.ReplyError``. Raises :class:`ServerFailed`."""
        try:
            while (reply := self._reader.gets()) is False:
                more = self._socket.recv(RECEIVE_BYTES)
                if not more:
                    raise ServerFailed(self.server, "closed the connection; look into its log")
                self._reader.feed(more)
        except OSError as error:
            raise self._failed(error) from None
        except hiredis.ProtocolError as error:
            raise ServerFailed(self.server, f"does not speak Redis's protocol: {error}") from None
        return reply

    def _refused(self, reply: Exception) -> Exception:
        text = str(reply)
        if text.startswith("NOAUTH"):
            return ServerFailed(
                self.server,
                "asks for a password; set SLOTFERRY_SIZING_REDIS_PASSWORD in the environment of this process",
            )
        if text.startswith(("LOADING", "MASTERDOWN")):
            return ServerFailed(self.server, f"is not ready: {text}")
        return CommandRefused(text)

    def _failed(self, error: OSError) -> ServerFailed:
        if isinstance(error, TimeoutError):
            return ServerFailed(self.server, f"did not answer within {self._seconds:g} s (timeout_seconds)")
        return ServerFailed(self.server, f"cannot be read any more: {error}")


def _reason(error: OSError, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s (connect_timeout_seconds)"
    return error.strerror or str(error)
