"""The client for requests to the other topoms. It follows its certificates, which may be renewed at any time.

**bounded**: how long a connection and an answer may take, and how many clients of earlier certificates are kept: one.
"""

import ssl
from contextlib import suppress

import httpx

from slots.tls import Certificates

CONNECT_SECONDS = 2.0
"""How long a connection to another topom may take."""
ANSWER_SECONDS = 25.0
"""How long another topom may take to answer: less than the command line waits, so that an operator sees the reason."""

FAILURES = (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError)
"""What a request raises that gets no answer. httpx lets some errors of TLS through."""


class Peers:
    """Makes the client."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._context = certificates.context
        self._http = _client(self._context)
        self._former: httpx.AsyncClient | None = None

    @property
    def http(self) -> httpx.AsyncClient:
        """The client for the next request."""
        context = self._certificates.context
        if context is not self._context:
            # Requests under way go on; connections that nobody uses any more end with the object.
            self._context, self._former, self._http = context, self._http, _client(context)
        return self._http

    async def close(self) -> None:
        """Close its connections."""
        for client in (self._http, self._former):
            if client is not None:
                with suppress(Exception):
                    await client.aclose()


def _client(context: ssl.SSLContext) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        trust_env=False,
        follow_redirects=False,
        verify=context,
    )
