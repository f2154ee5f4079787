"""A limit on what a request may bring: bodies are read before anybody has looked at the token."""

from collections.abc import Collection, Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topom.security import authorised

MAXIMUM_BODY_BYTES = 1024 * 1024


class _TooLarge(Exception):
    """More came than was announced or is allowed."""


class BodyLimit:
    """Answers 413 to a request whose body is too large, however it is sent.

    Args:
        tokens: who shows one of them may send more where that is needed.
        larger: most bytes by path for them; :data:`MAXIMUM_BODY_BYTES` for everybody else, and elsewhere.
    """

    def __init__(self, app: ASGIApp, tokens: Collection[str], larger: Mapping[str, int]) -> None:
        self._app = app
        self._tokens = tokens
        self._larger = larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._most(scope)
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced) > most:
            await self._refuse(most, scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise _TooLarge(f"the body is larger than {most} bytes")
            return message

        await self._app(scope, counted, send)

    def _most(self, scope: Scope) -> int:
        most = self._larger.get(scope["path"], MAXIMUM_BODY_BYTES)
        if most > MAXIMUM_BODY_BYTES:
            header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not authorised(header.decode("latin-1"), *self._tokens):
                return MAXIMUM_BODY_BYTES
        return most

    async def _refuse(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the body may have {most} bytes at most"
        await JSONResponse({"error": "BodyTooLarge", "message": message}, 413)(scope, receive, send)
