"""A client without a token gets nothing: only the head of a request is read before it is known who asks.

Without a token only what is for anybody is answered (:mod:`topom.api.roles`): the probes and the page's files,
which take no body, and a login, whose body is small. With one, the role has to be enough, and a body has a limit in
bytes and in time.

A stream ends with its token.

**bounded**: the size of a request, the time for each piece of it, and the time for all of it. An address that shows
wrong tokens again and again is told so (:mod:`topom.api.guesses`).
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topom.api.access import CALLER, READS
from topom.api.callers import REQUEST_HEADER, Callers, from_page
from topom.api.guesses import MOST_WRONG, PERIOD_SECONDS
from topom.api.page_headers import add_headers
from topom.api.roles import LOGIN, needed, needed_for_stream
from topom.api.sessions import Caller
from topom.api.wire import Wire, wire_of
from topom.term.tokens import Role

log = structlog.get_logger(__name__)

MAXIMUM_BODY_BYTES = 1024 * 1024
PIECE_SECONDS = 10.0
"""How long the next piece of a body may take to come."""
BODY_SECONDS = 60.0
"""How long a whole body may take to come, plus a second for each :data:`SLOWEST_BYTES` that it may have."""
SLOWEST_BYTES = 256 * 1024
LOGIN_BYTES = 4096
"""The largest body of a login. It comes from a client that has shown nothing yet."""
UNAUTHORISED = (
    "the bearer token, or the session, is missing or wrong; the token is in the file named token in topom's data folder"
)
TOO_MANY = (
    f"more than {MOST_WRONG} wrong tokens came from your address within {PERIOD_SECONDS:g} s; a right one gets in at "
    "any time"
)
RETRY_AFTER = str(round(PERIOD_SECONDS))
CLOSE_REFUSED = 1008


class _BodyRefused(Exception):
    """The body is too large, or took too long. The code that reads it may turn this into another error."""


class Door:
    """Stands before everything else.

    Args:
        callers: knows who asks.
        larger: the most bytes of a body, by path; :data:`MAXIMUM_BODY_BYTES` for other paths.
    """

    def __init__(self, app: ASGIApp, callers: Callers, larger: Mapping[str, int]) -> None:
        self._app = app
        self._callers = callers
        self._larger = {**larger, LOGIN: LOGIN_BYTES}
        self._streams: dict[Wire, tuple[Scope, Caller]] = {}
        callers.tokens.replaced.append(self._end_streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._open(scope, receive, send)
            return
        send = add_headers(scope["path"], send)
        headers = dict(scope["headers"])
        caller = self._callers.of(scope["headers"])
        role = needed(scope["method"], scope["path"])
        if role is not None:
            refusal = _refusal(caller, role, scope)
        else:
            # What anybody may read takes no body.
            bare = scope["method"] not in READS or not _announces_body(headers)
            refusal = None if caller is not None or bare else _unauthorised()
        if refusal is not None:
            if caller is None and self._callers.guesses_too_often(scope["headers"], _address(scope)):
                refusal = _answer(429, "TooManyWrongTokens", TOO_MANY, {"Retry-After": RETRY_AFTER})
            # The rest of the body is dropped until its time is over: a client that is cut off at once does not read
            # the answer.
            await refusal(scope, receive, send)
            return
        scope[CALLER] = caller
        await self._let_in(scope, receive, send, headers)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = self._callers.of(scope["headers"])
        # A browser opens a stream with its cookie for any page, so a cookie opens none.
        if caller is not None and caller.expires is None and caller.role.may(needed_for_stream(scope["path"])):
            scope[CALLER] = caller
            with self._open_stream(scope, caller):
                await self._app(scope, receive, send)
        else:
            # Closed before it is accepted: the HTTP answer is 403.
            await send({"type": "websocket.close", "code": CLOSE_REFUSED})

    @contextmanager
    def _open_stream(self, scope: Scope, caller: Caller) -> Iterator[None]:
        wire = wire_of(scope)
        if wire is not None:
            self._streams[wire] = scope, caller
        try:
            yield
        finally:
            if wire is not None:
                del self._streams[wire]

    def _end_streams(self) -> None:
        """End at once the streams of tokens that are none any more, or have another role or name."""
        for wire, (scope, caller) in self._streams.items():
            if self._callers.of(scope["headers"]) != caller:
                log.warning("stream_ended", token=caller.name, role=str(caller.role), reason="its token is no more")
                wire.transport.abort()

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        most = self._larger.get(scope["path"], MAXIMUM_BODY_BYTES)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            message = f"the body may have {most} bytes at most"
            await _answer(413, "BodyTooLarge", message, {})(scope, receive, send)
            return
        body = _Body(receive, send, most)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            if body.refusal is None:
                raise
        if body.refusal is not None:
            if body.answered:
                raise _BodyRefused("a part of the answer was sent before all of the body had come")
            await body.refusal(scope, receive, send)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _unauthorised() -> JSONResponse:
    return _answer(401, "Unauthorised", UNAUTHORISED, {"WWW-Authenticate": "Bearer"})


def _refusal(caller: Caller | None, role: Role, scope: Scope) -> JSONResponse | None:
    """Why a request is refused that needs a role; None if it is not."""
    if caller is None:
        return _unauthorised()
    if not caller.role.may(role):
        message = f"this needs the role {role}; the token {caller.name} has the role {caller.role}"
        return _answer(403, "RoleRefused", message, {})
    if caller.expires is not None and scope["method"] not in READS and not from_page(scope["headers"]):
        message = (
            f"a session changes something only from topom's own page, with the header {REQUEST_HEADER}: 1; "
            "programs show a bearer token"
        )
        return _answer(403, "ForeignPage", message, {})
    return None


class _Body:
    """The body of one request, and the answer to it. Once too much has come the answer is ``refusal``, whatever else is
    sent.
    """

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self.refusal: JSONResponse | None = None
        self.answered = False
        self._receive = receive
        self._send = send
        self._most = most
        self._received = 0
        self._whole = False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS + most / SLOWEST_BYTES

    async def receive(self) -> Message:
        """The next piece of the body."""
        if self._whole:
            return await self._receive()  # this waits until the client goes
        clock = asyncio.get_running_loop().time
        message: Message | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(clock() + PIECE_SECONDS, self._deadline)):
                message = await self._receive()
        if message is None or clock() > self._deadline:
            self._refuse(408, "BodyTooSlow", f"nothing of the body came for {PIECE_SECONDS:g} s, or it took too long")
        self._whole = not message.get("more_body", False)
        self._received += len(message.get("body", b""))
        if self._received > self._most:
            self._refuse(413, "BodyTooLarge", f"the body may have {self._most} bytes at most")
        return message

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer, unless the body was refused."""
        if self.refusal is None or self.answered:
            self.answered = True
            await self._send(message)

    def _refuse(self, status: int, error: str, message: str) -> NoReturn:
        self.refusal = _answer(status, error, message, {})
        raise _BodyRefused(message)


def _announces_body(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _answer(status: int, error: str, message: str, headers: Mapping[str, str]) -> JSONResponse:
    return JSONResponse({"error": error, "message": message}, status, headers)
