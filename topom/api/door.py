"""Who has no token gets nothing: the head of a request is looked at, and nothing read after it, before that is sure.

Without the token there are the health check and the API's description, which take no body. With it, a body has a limit
in bytes and in time.

**bounded**: what a request may bring, and how long each piece of it may take.
"""

import asyncio
from collections.abc import Collection, Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topom.entrance import CONNECTION, Connection
from topom.security import authorised

MAXIMUM_BODY_BYTES = 1024 * 1024
PIECE_SECONDS = 10.0
"""How long the next piece of a body may take to come."""
HEALTH = "/healthz"
DESCRIPTION = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json"})
MOST_DESCRIBED = 8
"""Connections without the token that are being sent the description, which is long, at a time."""
UNAUTHORISED = "the bearer token is missing or wrong; it is in the file named token in topom's data folder"
CLOSE_REFUSED = 1008


class _TooMuch(Exception):
    """More came than was announced or is allowed, or it took too long."""


class Door:
    """Stands before everything else.

    Args:
        tokens: whoever shows one of them is let in.
        larger: most bytes of a body, by path; :data:`MAXIMUM_BODY_BYTES` elsewhere.
    """

    def __init__(self, app: ASGIApp, tokens: Collection[str], larger: Mapping[str, int]) -> None:
        self._app = app
        self._tokens = tokens
        self._larger = larger
        self._described: set[Connection] = set()

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
        elif scope["path"] in DESCRIPTION:
            await self._describe(scope, receive, send)
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
        received = 0
        whole = False

        async def limited() -> Message:
            nonlocal received, whole
            if whole:
                return await receive()  # until the client goes
            try:
                async with asyncio.timeout(PIECE_SECONDS):
                    message = await receive()
            except TimeoutError:
                raise _TooMuch(f"nothing more of the body came for {PIECE_SECONDS:g} s") from None
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > most:
                raise _TooMuch(f"the body is larger than {most} bytes")
            return message

        await self._app(scope, limited, send)

    async def _describe(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("state", {}).get(CONNECTION)
        if connection is not None and connection not in self._described:
            if len(self._described) >= MOST_DESCRIBED:
                message = "too many without the token ask for the API's description; try again in a while"
                await _answer(503, "TooManyRequests", message, {})(scope, receive, send)
                return
            self._described.add(connection)
            connection.on_lost = lambda: self._described.discard(connection)
        await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What comes of a body is dropped until its time is over: who is cut off at once does not read the answer.
        await _answer(401, "Unauthorised", UNAUTHORISED, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def _announces_body(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _answer(status: int, error: str, message: str, headers: Mapping[str, str]) -> JSONResponse:
    return JSONResponse({"error": error, "message": message}, status, headers)
