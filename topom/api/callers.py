"""Who asks: by the bearer token of a request, or by the cookie of a session.

A request with an ``Authorization`` header is judged by that alone. One with two such headers, or two of our cookies, is
nobody's: what stands between might read one, and this the other.

A browser sends the cookie also when a page of somebody else makes it do so. So a request that changes something and
comes by cookie has to have the header :data:`REQUEST_HEADER`, which such a page cannot add. As far as the browser says
where the request comes from, that has to be our own page.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from topom.api.guesses import Guesses
from topom.api.sessions import COOKIE, Caller, Sessions
from topom.term.tokens import Token, Tokens

REQUEST_HEADER = "X-Slotferry-Request"
MOST_COOKIES = 16 * 1024
"""Bytes of all cookies; in more nothing is looked for."""
_OURS = re.compile(rb"(?:^|;)[ \t]*" + COOKIE.encode() + rb"=([^;]*)")

Headers = Iterable[tuple[bytes, bytes]]
"""Names, in lower case, and values."""


class Callers:
    """Knows the callers of one topom."""

    def __init__(self, tokens: Tokens, product: str = "") -> None:
        self.tokens = tokens
        self.guesses = Guesses()
        self.sessions = Sessions(tokens, product)

    def of(self, headers: Headers) -> Caller | None:
        """Who sent these headers; None if they show no token and no session."""
        headers = list(headers)
        shown = _values(headers, b"authorization")
        if shown:
            token = self.by_bearer(shown[0]) if len(shown) == 1 else None
            return Caller(token.name, token.role) if token is not None else None
        cookie = session_cookie(headers)
        return self.sessions.read(cookie) if cookie is not None else None

    def guesses_too_often(self, headers: Headers, address: str) -> bool:
        """Count what nobody's headers show as a wrong token, if they show one; gives whether that is one too many."""
        return bool(_values(headers, b"authorization")) and self.guesses.another(address)

    def by_bearer(self, value: bytes) -> Token | None:
        """The token in the value of an ``Authorization`` header, or None."""
        scheme, _, secret = value.partition(b" ")
        token = self.tokens.find(secret.strip(b" \t"))
        return token if scheme.lower() == b"bearer" else None


def session_cookie(headers: Headers) -> bytes | None:
    """The value of our cookie; None without one, or with several."""
    cookies = b";".join(_values(headers, b"cookie"))
    if len(cookies) > MOST_COOKIES:
        return None
    found = _OURS.findall(cookies)
    return found[0].strip() if len(found) == 1 else None


def foreign_page(headers: Headers) -> bool:
    """Whether a browser says that a page of another origin made it send this."""
    headers = list(headers)
    sites = _values(headers, b"sec-fetch-site")
    if sites:
        return sites != [b"same-origin"]
    origins = _values(headers, b"origin")
    # Only host and port: what ends TLS in front of topom speaks plain HTTP with it.
    return bool(origins) and [_host(origin) for origin in origins] != [
        host.lower() for host in _values(headers, b"host")
    ]


def from_page(headers: Headers) -> bool:
    """Whether a request that comes by cookie may change something: our own page sent it."""
    headers = list(headers)
    return _values(headers, REQUEST_HEADER.lower().encode()) == [b"1"] and not foreign_page(headers)


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for one, value in headers if one == name]


def _host(origin: bytes) -> bytes:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return b""
