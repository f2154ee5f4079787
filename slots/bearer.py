"""The header by which a client shows topom its bearer token."""

import re

_TOKEN = re.compile(r"[!-~]*")


class TokenError(ValueError):
    """A token cannot be sent in a header. The message shows nothing of the token."""


def check(token: str) -> None:
    """Raise :class:`TokenError` for a token that cannot be sent: an HTTP library's own message would show it."""
    if not _TOKEN.fullmatch(token):
        raise TokenError("a token consists of printable ASCII characters without blanks, on one line")


def header(token: str) -> dict[str, str]:
    """The header that shows a token; none for an empty one. Raises :class:`TokenError`."""
    check(token)
    return {"Authorization": f"Bearer {token}"} if token else {}
