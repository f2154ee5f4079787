"""Connections to topom's API before their clients have shown a token: few, cheap and short.

A connection is *unproven* until a request with a token, or with a session's cookie, came over it. So clients without
either can hold at most :data:`MOST_UNPROVEN` connections, each for :data:`HEAD_SECONDS` without a whole request's head,
and as long again until the answer is out. One more takes the place of the oldest, so that an operator always gets in.
A proven client may read slowly. If an answer has ended, or was broken off, and the client takes nothing of what is left
of it for :data:`HEAD_SECONDS`, its connection is closed, and what waits in it dropped. On Linux, a client that vanishes
without a word, or takes nothing, while there is something for it, holds a connection for :data:`UNHEARD_SECONDS`.
What follows a head without a token is dropped as it comes, except for the small body of a login;
:mod:`topom.api.door` answers such a request.

**bounded**: the number of connections, the time for a head, the body of a login, and how long a client may leave an
answer unread.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from topom.api.callers import Callers
from topom.api.door import LOGIN_BYTES
from topom.api.roles import LOGIN

log = structlog.get_logger(__name__)

MOST_UNPROVEN = 2048
HEAD_SECONDS = 10.0
"""How long a request's head may take to come whole, or the first one to begin; and how long an answer may be unread."""
UNHEARD_SECONDS = 30.0
"""How long what was sent may go without a word of the client's system that it came."""
OTHER_FILES = 256
"""How many files the API's connections leave free: for servers, the store, the proxies' streams, and logs."""
MOST_FILES = 65_536
"""How many files the process asks of the system."""


class Entrance:
    """The API's connections of one process. Proxies' streams do not count once they are open.

    Args:
        files: how many files the process may have open.
        callers: knows who asks.
    """

    def __init__(self, files: int, callers: Callers) -> None:
        self._callers = callers
        self._most = max(2, files - OTHER_FILES)
        # Some connections are left for clients with the token, whatever the others do.
        self._most_unproven = min(MOST_UNPROVEN, self._most // 2)
        self._all: set[Connection] = set()
        self._unproven: dict[Connection, None] = {}  # the oldest first
        self._told = False

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol that uvicorn uses for each connection."""
        return cast("type[asyncio.Protocol]", partial(Connection, self))

    def admit(self, connection: "Connection") -> None:
        """Note that a connection was accepted; if there is no room left, the oldest one without the token is closed."""
        self._all.add(connection)
        self._unproven[connection] = None
        if len(self._unproven) > self._most_unproven or len(self._all) > self._most:
            if not self._told:
                self._told = True
                log.warning("connections_without_token", unproven=len(self._unproven), all=len(self._all))
            next(iter(self._unproven)).drop()

    def proves(self, connection: "Connection", request: h11.Request) -> bool:
        """Whether a request shows who asks; if so, its connection is proven."""
        shown = self._callers.of(request.headers) is not None
        if shown:
            self._unproven.pop(connection, None)
        return shown

    def holds(self, connection: "Connection") -> bool:
        """Whether the connection is unproven."""
        return connection in self._unproven

    def gone(self, connection: "Connection") -> None:
        """Note that a connection is closed, or has become a proxy's stream."""
        self._all.discard(connection)
        self._unproven.pop(connection, None)
        if len(self._unproven) < self._most_unproven // 2:
            self._told = False


class _Heeding(h11.Connection):
    """What comes over a connection, without the bodies of requests that do not show who asks, logins apart."""

    def __init__(self, proves: Callable[[h11.Request], bool]) -> None:
        super().__init__(h11.SERVER)
        self._proves = proves
        self._login = False
        self.proven = False
        """Whether the latest request shows who asks."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.proven = self._proves(event)
            self._login = _is_login(event)
        elif isinstance(event, h11.Data) and not (self.proven or self._login):
            return h11.Data(data=b"")
        return event


class Connection(H11Protocol):
    """One connection of uvicorn, with time limits."""

    def __init__(
        self,
        entrance: Entrance,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn: _Heeding = _Heeding(self._proves)
        self._entrance = entrance
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def drop(self) -> None:
        """Close it at once, whatever is still to be sent."""
        self._entrance.gone(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A page whose machine has vanished would keep its place for a quarter of an hour.
            opened = transport.get_extra_info("socket")
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNHEARD_SECONDS))
        self._wait()
        self._entrance.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if not self.conn.proven:
            # It stays in the books. The parser of WebSockets may refuse a head that h11 takes, and answer nothing.
            self._forbid()
            return
        self._leave()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _forbid(self) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        for part in (h11.Response(status_code=403, headers=headers, reason=b"Forbidden"), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part))
        self.transport.close()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        # A proven client may take its time with a body, and wait for news.
        answering = self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()
        reads = self.transport.get_write_buffer_size() < self._unsent
        if self._entrance.holds(self) or not (answering or reads):
            self.drop()
        else:
            self._wait()

    def _proves(self, request: h11.Request) -> bool:
        shown = self._entrance.proves(self, request)
        if not shown:
            self._wait()  # as long again for a login's body, and for the answer
        return shown

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._entrance.gone(self)


def _is_login(request: h11.Request) -> bool:
    """Whether a login begins, with a body that says its size and is small."""
    lengths = [value for name, value in request.headers if name == b"content-length"]
    small = len(lengths) == 1 and lengths[0].isdigit() and int(lengths[0]) <= LOGIN_BYTES
    return request.method == b"POST" and request.target == LOGIN.encode() and small
