"""A client without the token gets nothing: only the head of a request is read before the token is checked.

Without the token only the health check is answered, which takes no body. With it, a body has a limit in bytes and in
time.

**bounded**: the size of a request, the time for each piece of it, and the time for all of it.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NoReturn

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topom.api.security import authorised

MAXIMUM_BODY_BYTES = 1024 * 1024
PIECE_SECONDS = 10.0
"""How long the next piece of a body may take to come."""
BODY_SECONDS = 60.0
"""How long a whole body may take to come, plus a second for each :data:`SLOWEST_BYTES` that it may have."""
SLOWEST_BYTES = 256 * 1024
HEALTH = "/healthz"
UNAUTHORISED = "the bearer token is missing or wrong; it is in the file named token in topom's data folder"
CLOSE_REFUSED = 1008


class _BodyRefused(Exception):
    """The body is too large, or took too long. The code that reads it may turn this into another error."""


class Door:
    """Stands before everything else.

    Args:
        tokens: a client that shows one of them gets in.
        larger: the most bytes of a body, by path; :data:`MAXIMUM_BODY_BYTES` for other paths.
    """

    def __init__(self, app: ASGIApp, tokens: Collection[str], larger: Mapping[str, int]) -> None:
        self._app = app
        self._tokens = tokens
        self._larger = larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if authorised(headers.get(b"authorization", b"").decode("latin-1"), *self._tokens):
            await self._let_in(scope, receive, send, headers)
        elif scope["type"] == "websocket":
            # Closed before it is accepted: the HTTP answer is 403.
            await send({"type": "websocket.close", "code": CLOSE_REFUSED})
        elif scope["method"] not in ("GET", "HEAD") or _announces_body(headers):
            await self._refuse(scope, receive, send)
        elif scope["path"] == HEALTH:
            await self._app(scope, receive, send)
        else:
            await self._refuse(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
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

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The rest of the body is dropped until its time is over: a client that is cut off at once does not read the
        # answer.
        await _answer(401, "Unauthorised", UNAUTHORISED, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


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
