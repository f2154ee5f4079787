"""Makes a worker's clients leave one after another. They come back elsewhere without a crowd, and lose nothing.

A session ends only between two requests: nothing is owed to it, no part of a request has been read, and nothing waits
in its socket. So a request without an answer has not run, and the client may send it again elsewhere. A transaction or
a WATCH is not cut. A blocked command ends with its connection, and has taken nothing.

**bounded**: the turns come within ``drain_seconds``. If a session is not between two requests at its turn, it has
``drain_last_seconds`` more after the last turn. Then no more requests are taken, owed replies have :data:`CUT_SECONDS`,
and then the connection is closed in any case.
"""

import asyncio
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Parting = Callable[[socket.socket], None]
"""Takes over the socket of a session that has ended."""

CROWD_SECONDS = 0.05
"""The most seconds between two turns: so few clients a second are no crowd, and need no more time."""
CUT_SECONDS = 1.0
LINGER_SECONDS = 1.0
"""How long a client may take to end its side of a connection."""
LINGER_BYTES = 1_048_576
"""The most bytes it may send in that time; they are ignored."""
_READ_BYTES = 65_536


class Leaver(Protocol):
    """The part of a session that is needed here."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""

    @property
    def waits(self) -> bool:
        """Whether its request at the front waits."""

    def retire(self, parting: Parting) -> None:
        """Close as soon as it is between two requests."""

    def cut(self, parting: Parting) -> None:
        """Take no more requests, and close once the owed replies are sent."""

    def close(self) -> None:
        """Close now."""


Session = TypeVar("Session", bound=Leaver)


class Draining(Generic[Session]):
    """The turns of a worker's sessions.

    Args:
        sessions: all open sessions; closed ones leave it, and new ones may come.
        seconds: the time in which all have their turns.
        last_seconds: the time after the last turn for sessions that were not between two requests.
        parting: called with the sockets of sessions that end.
        retiring: called with a session whose turn it is and that waits.
        now: the time, in seconds.
    """

    def __init__(
        self,
        sessions: set[Session],
        seconds: float,
        last_seconds: float,
        parting: Parting,
        retiring: Callable[[Session], None],
        now: float,
    ) -> None:
        self._sessions = sessions
        self._parting = parting
        self._retiring = retiring
        order = list(sessions)
        # Random, for in the order of arrival the sessions of one client would end together.
        random.shuffle(order)
        between = min(CROWD_SECONDS, seconds / max(len(order), 1))
        self._turns = deque((now + between * place, session) for place, session in enumerate(order, 1))
        self._known = set(order)
        self._due: set[Session] = set()
        self._limit = now + between * len(order) + last_seconds
        self.cut = 0
        """How many were closed with something owed to them."""

    def step(self, now: float) -> bool:
        """Do what is due; called some twenty times a second. True once no session is left."""
        for session in self._sessions - self._known:
            # It was arriving when the others were counted.
            self._known.add(session)
            self._turns.append((now, session))
        while self._turns and self._turns[0][0] <= now:
            self._due.add(self._turns.popleft()[1])
        self._due = {session for session in self._due if not session.closed}
        for session in self._due:
            if session.waits:
                self._retiring(session)
            if not session.closed:
                (session.retire if now < self._limit else session.cut)(self._parting)
        if now >= self._limit + CUT_SECONDS:
            for session in list(self._sessions):
                self.cut += 1
                session.close()
        return not self._sessions


class Partings:
    """Connections that the proxy has ended on its side, until their clients end them on theirs.

    To close one at once would do harm. If a request comes just then, the kernel answers with a reset, which may destroy
    a reply that is still on its way. So only the sending side is ended, and received bytes are thrown away.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left: dict[socket.socket, int] = {}

    def __len__(self) -> int:
        return len(self._left)

    def part(self, sock: socket.socket) -> None:
        """Take over a socket; it is closed within :data:`LINGER_SECONDS`."""
        try:
            if isinstance(sock, ssl.SSLSocket):
                _say_goodbye(sock)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            # The client was quicker.
            sock.close()
            return
        self._left[sock] = LINGER_BYTES
        self._loop.add_reader(sock.fileno(), self._discard, sock)
        self._loop.call_later(LINGER_SECONDS, self._close, sock)

    def _discard(self, sock: socket.socket) -> None:
        try:
            received = len(sock.recv(_READ_BYTES))
        except BlockingIOError:
            return
        except OSError:
            received = 0
        self._left[sock] -= received
        if not received or self._left[sock] <= 0:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        if sock in self._left:
            del self._left[sock]
            self._loop.remove_reader(sock.fileno())
            sock.close()


def _say_goodbye(sock: ssl.SSLSocket) -> None:
    """Tell a client that TLS ends, without waiting for its answer."""
    try:
        sock.unwrap()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ValueError):
        return
