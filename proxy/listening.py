"""The proxy's client address: reserved by the supervisor, listened on by the workers.

With SO_REUSEPORT the kernel would quietly share a port between two proxies, each getting half of the
clients. So the address is reserved in a way that keeps others out and lets this proxy's workers in.
"""

import errno
import socket
import sys
from dataclasses import dataclass

from proxy import address


class ListenError(Exception):
    """The proxy cannot listen where it was told to. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A bound socket that does not listen. ``address`` is ``host:port`` with the true port."""

    address: str
    socket: socket.socket
    shared: bool
    """Whether workers bind the address themselves, with SO_REUSEPORT; else they inherit :attr:`socket`."""

    def close(self) -> None:
        """Give the address back."""
        self.socket.close()


# Elsewhere SO_REUSEPORT exists too, but hands all connections to one of the sockets.
SPREADS_CONNECTIONS = sys.platform == "linux"


def reserve(listen: str, shared: bool = SPREADS_CONNECTIONS) -> Reservation:
    """Reserve ``listen`` (``host:port``; port 0 takes a free one) for this process and its workers.

    Raises:
        ListenError: another process has the address, or this machine does not, or this user may not.
    """
    host, port = address.split(listen)
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ListenError(f"Cannot listen on {listen}: the host {host!r} is not known ({error.strerror}).") from error
    try:
        # Without SO_REUSEPORT this fails if anybody listens there, even with SO_REUSEPORT, and if another
        # supervisor has reserved it. SO_REUSEADDR: connections that lately ended there do not matter.
        holder = _bind(family, target, socket.SO_REUSEADDR)
        host, port = holder.getsockname()[:2]
        if shared:
            holder.close()
            try:
                holder = _bind(family, (host, port, *target[2:]), socket.SO_REUSEPORT)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                # Ended connections of a program that did not use SO_REUSEPORT are in the way for a minute.
                holder = _bind(family, (host, port, *target[2:]), socket.SO_REUSEPORT, socket.SO_REUSEADDR)
    except OSError as error:
        raise ListenError(_explain(listen, error)) from error
    return Reservation(address.join(host, port), holder, shared)


def _bind(family: int, target: tuple[object, ...], *options: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(target)
    except OSError:
        bound.close()
        raise
    return bound


def _explain(listen: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        advice = "another process listens there. Stop it, or choose another address with the setting listen"
    elif error.errno == errno.EADDRNOTAVAIL:
        advice = "this machine does not have that address. Choose one it has, or 0.0.0.0 for all"
    elif error.errno in (errno.EACCES, errno.EPERM):
        advice = "this user may not. Choose a port above 1023 with the setting listen"
    else:
        advice = str(error.strerror)
    return f"Cannot listen on {listen}: {advice}."
