"""Connections to topom's API before their clients have shown a token: few, cheap and short.

A connection is *unproven* until a request with a token, or with a session's cookie, came over it. So clients without
either can hold at most :data:`MOST_UNPROVEN` connections, each for :data:`HEAD_SECONDS` without a whole request's head,
and as long again until the answer is out. One more takes the place of the oldest, so that an operator always gets in.
A proven client may read slowly. If an answer has ended, or was broken off, and the client takes nothing of what is left
of it for :data:`HEAD_SECONDS`, its connection is closed, and what waits in it dropped. On Linux, a client that vanishes
without a word, or takes nothing, while there is something for it, holds a connection for :data:`UNHEARD_SECONDS`.
A client whose token is taken away has :data:`TOKEN_SECONDS` for the answer that is under way.
By TLS, the handshake is a part of that: it has the same time, and counts (:mod:`topom.api.handshake`). At most
:data:`MOST_HANDSHAKES` are under way.
What follows a head without a token is dropped as it comes, except for the small body of a login;
:mod:`topom.api.door` answers such a request.

**bounded**: the number of connections, the time for a head, the body of a login, and how long a client may leave an
answer unread, or go on with one without a token.
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
from topom.api.handshake import Droppable, Handshake
from topom.api.roles import LOGIN
from topom.api.sessions import Caller

log = structlog.get_logger(__name__)

MOST_UNPROVEN = 2048
MOST_HANDSHAKES = 256
"""Of these, so many at most are in a handshake. Clients that go on with theirs in the same moment hold up all else for
as long as all of these take: a third of a second, or one with an RSA key of 4096 bits. A lease is longer."""
HEAD_SECONDS = 10.0
"""How long a request's head may take to come whole, or the first one to begin; and how long an answer may be unread."""
UNHEARD_SECONDS = 30.0
"""How long what was sent may go without a word of the client's system that it came."""
TOKEN_SECONDS = 5.0
"""How long an answer may still take once its token, or its session's, is none any more."""
OTHER_FILES = 256
"""How many files the API's connections leave free: for servers, the store, the proxies' streams, and logs."""
WITHOUT_CERTIFICATE = "topom wants to be shown a certificate by proxies and migrators"
"""Why a stream is refused, for the one who asks."""
NOT_REDIS = b"-ERR this is topom's HTTP port; Redis clients connect to a proxy: slotferry proxy list\r\n"
"""For those who point a Redis client at topom."""
MOST_FILES = 65_536
"""How many files the process asks of the system."""


class Entrance:
    """The API's connections of one process. Proxies' streams do not count once they are open.

    Args:
        files: how many files the process may have open.
        callers: knows who asks.
        streams_show: whether proxies and migrators have to show a certificate.
    """

    def __init__(self, files: int, callers: Callers, streams_show: bool = False) -> None:
        self._callers = callers
        self._streams_show = streams_show
        self._most = max(2, files - OTHER_FILES)
        # Some connections are left for clients with the token, whatever the others do.
        self._most_unproven = min(MOST_UNPROVEN, self._most // 2)
        self._all: set[Droppable] = set()
        self._unproven: dict[Droppable, None] = {}  # the oldest first
        self._handshakes: dict[Handshake, None] = {}  # likewise
        self._told = False
        callers.tokens.replaced.append(self._judge_anew)

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol that uvicorn uses for each connection."""
        return cast("type[asyncio.Protocol]", partial(Connection, self))

    def end_handshakes(self) -> None:
        """Close what has no TLS yet."""
        for handshake in list(self._handshakes):
            handshake.drop()

    def may_stream(self, transport: asyncio.Transport) -> bool:
        """Whether a client has shown the certificate that a proxy's or a migrator's stream needs."""
        return not self._streams_show or bool(transport.get_extra_info("peercert"))

    def admit(self, connection: Droppable) -> None:
        """Note that a connection was accepted; if there is no room left, the oldest one without the token is closed."""
        self._all.add(connection)
        self._unproven[connection] = None
        if isinstance(connection, Handshake):
            self._handshakes[connection] = None
            if len(self._handshakes) > MOST_HANDSHAKES:
                next(iter(self._handshakes)).drop()
        if len(self._unproven) > self._most_unproven or len(self._all) > self._most:
            if not self._told:
                self._told = True
                log.warning("connections_without_token", unproven=len(self._unproven), all=len(self._all))
            next(iter(self._unproven)).drop()

    def proves(self, connection: "Connection", request: h11.Request) -> Caller | None:
        """Who asks, if a request shows that; then its connection is proven."""
        caller = self.caller(request)
        if caller is not None:
            self._unproven.pop(connection, None)
        return caller

    def caller(self, request: h11.Request) -> Caller | None:
        """Who asks, by the tokens of now."""
        return self._callers.of(request.headers)

    def _judge_anew(self) -> None:
        for connection in self._all:
            if isinstance(connection, Connection):
                connection.judge_anew()

    def guesses_too_often(self, request: h11.Request, address: str) -> bool:
        """As :meth:`topom.api.callers.Callers.guesses_too_often`."""
        return self._callers.guesses_too_often(request.headers, address)

    def holds(self, connection: "Connection") -> bool:
        """Whether the connection is unproven."""
        return connection in self._unproven

    def gone(self, connection: Droppable) -> None:
        """Note that a connection is closed, or has become a proxy's stream."""
        self._all.discard(connection)
        self._unproven.pop(connection, None)
        if isinstance(connection, Handshake):
            self._handshakes.pop(connection, None)
        if len(self._unproven) < self._most_unproven // 2:
            self._told = False


class _Heeding(h11.Connection):
    """What comes over a connection, without the bodies of requests that do not show who asks, logins apart."""

    def __init__(self, proves: Callable[[h11.Request], Caller | None]) -> None:
        super().__init__(h11.SERVER)
        self._proves = proves
        self._login = False
        self.request: h11.Request | None = None
        """The latest request."""
        self.caller: Caller | None = None
        """Who made it, if it shows that."""

    @property
    def proven(self) -> bool:
        """Whether the latest request shows who asks."""
        return self.caller is not None

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.request, self.caller = event, self._proves(event)
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
        self.handshake: Handshake | None = None
        """What this connection was before, by TLS."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._begun = False

    def drop(self) -> None:
        """Close it at once, whatever is still to be sent."""
        self._entrance.gone(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.handshake is not None:
            self._entrance.gone(self.handshake)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A page whose machine has vanished would keep its place for a quarter of an hour.
            opened = transport.get_extra_info("socket")
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNHEARD_SECONDS))
        self._wait()
        self._entrance.admit(self)

    def data_received(self, data: bytes) -> None:
        if not self._begun and data[:1] == b"*" and (len(data) == 1 or data[1:2].isdigit()):
            # No method of HTTP begins like that, and each request of a Redis client does.
            self.transport.write(NOT_REDIS)
            self.transport.close()
            return
        self._begun = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if not self.conn.proven:
            # It stays in the books. The parser of WebSockets may refuse a head that h11 takes, and answer nothing.
            self._forbid(self._entrance.guesses_too_often(event, self.client[0] if self.client else ""))
            return
        if not self._entrance.may_stream(self.transport):
            log.warning("stream_without_certificate", client=self.client[0] if self.client else "")
            self._forbid(False, WITHOUT_CERTIFICATE)
            return
        self._leave()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _forbid(self, too_often: bool, why: str = "") -> None:
        body = why.encode()
        headers = [
            (b"content-type", b"text/plain"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        status, reason = (429, b"Too Many Requests") if too_often else (403, b"Forbidden")
        answer = h11.Response(status_code=status, headers=headers, reason=reason)
        for part in (answer, h11.Data(data=body), h11.EndOfMessage()):
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

    def judge_anew(self) -> None:
        """Limit the answer under way if who asked for it is nobody now. Each later request is judged by itself."""
        request, caller, cycle = self.conn.request, self.conn.caller, self.cycle
        if request is None or caller is None or cycle is None or cycle.response_complete:
            return
        if self._entrance.caller(request) != caller:
            self.loop.call_later(TOKEN_SECONDS, self._end_answer, cycle)

    def _end_answer(self, cycle: object) -> None:
        if self.cycle is cycle and not self.cycle.response_complete:
            self.drop()

    def _proves(self, request: h11.Request) -> Caller | None:
        caller = self._entrance.proves(self, request)
        if caller is None:
            self._wait()  # as long again for a login's body, and for the answer
        return caller

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
