"""A limit on what a request may bring: bodies are read before anybody has looked at the token."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAXIMUM_BODY_BYTES = 1024 * 1024


class _TooLarge(Exception):
    """More came than was announced or is allowed."""


class BodyLimit:
    """Answers 413 to a request whose body is larger than :data:`MAXIMUM_BODY_BYTES`, however it is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced) > MAXIMUM_BODY_BYTES:
            await self._refuse(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAXIMUM_BODY_BYTES:
                raise _TooLarge(f"the body is larger than {MAXIMUM_BODY_BYTES} bytes")
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the body may have {MAXIMUM_BODY_BYTES} bytes at most"
        await JSONResponse({"error": "BodyTooLarge", "message": message}, 413)(scope, receive, send)
