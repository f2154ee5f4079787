"""Sessions of browsers: a signed cookie that stands for a token, so that no page has to keep the token.

The cookie says role, name and end, and nothing of it is secret: ``viewer:grafana:1790000000:SIGNATURE``. It is signed
with a key made from the token's secret and the product. So all topoms with the same tokens take it, and it ends with
its token.

**bounded**: how long a session lasts, and the length of a cookie.
"""

import base64
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

from topom.term.tokens import Role, Token, Tokens

COOKIE = "slotferry_session"
SESSION_SECONDS = 12 * 3600
CLOCKS_SECONDS = 60
"""How far the clocks of two topoms may be apart: a session may seem to last so much longer."""
MOST_COOKIE = 256
"""Characters of the cookie's value; no longer one is looked at."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name and role of the token, and when the session ends, in seconds since 1970.

    ``expires`` is None if the token itself was shown.
    """

    name: str
    role: Role
    expires: int | None = None


class Sessions:
    """Makes and reads the cookies of one product.

    Args:
        clock: gives the seconds since 1970.
    """

    def __init__(self, tokens: Tokens, product: str, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._product = product
        self._clock = clock
        self._made_of: tuple[Token, ...] = ()
        self._made: list[tuple[Token, bytes]] = []

    @property
    def _keys(self) -> list[tuple[Token, bytes]]:
        """Each token with its key."""
        if self._made_of is not self._tokens.all:
            self._made_of = self._tokens.all
            self._made = [(token, _key(token, self._product)) for token in self._made_of]
        return self._made

    def begin(self, token: Token) -> tuple[str, Caller]:
        """The cookie's value for a session that begins now, and who it stands for."""
        caller = Caller(token.name, token.role, int(self._clock()) + SESSION_SECONDS)
        said = f"{caller.role}:{caller.name}:{caller.expires}".encode()
        key = next(key for one, key in self._keys if one == token)
        return f"{said.decode()}:{_signature(key, said).decode()}", caller

    def read(self, value: bytes) -> Caller | None:
        """Who a cookie's value stands for; None if no token of today signed it, or its time is over."""
        if len(value) > MOST_COOKIE:
            return None
        said, _, signature = value.rpartition(b":")
        signer = None
        for token, key in self._keys:  # all are tried, even after one matches
            if hmac.compare_digest(signature, _signature(key, said)):
                signer = token
        if signer is None:
            return None
        role, _, rest = said.decode().partition(":")
        name, _, end = rest.partition(":")
        if (role, name) != (signer.role, signer.name):
            return None  # the token has another role or name since
        left = int(end) - self._clock()
        if not 0 < left <= SESSION_SECONDS + CLOCKS_SECONDS:
            return None
        return Caller(signer.name, signer.role, int(end))


def _key(token: Token, product: str) -> bytes:
    return hmac.digest(token.secret, b"slotferry session of " + product.encode(), "sha256")


def _signature(key: bytes, said: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, said, "sha256")).rstrip(b"=")
