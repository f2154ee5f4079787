"""What answers tell a browser about a page: it may run and load nothing but topom's own files, and be in no frame."""

from starlette.types import Message, Send

from topom.api.roles import ASSETS

PAGES = ("/", "/docs")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_EACH = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def add_headers(path: str, send: Send) -> Send:
    """``send`` for an answer to this path, with the headers of pages if it is one, or a file of one.

    Headers that the answer has by itself stay.
    """
    if path not in PAGES and not path.startswith(ASSETS):
        return send
    added = _EACH if path.startswith(ASSETS) else (*_EACH, (b"cache-control", b"no-store"))

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(header for header in added if header[0] not in given)]
        await send(message)

    return send_with
