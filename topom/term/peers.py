"""The client for requests to the other topoms. It follows its certificates, which may be renewed at any time.

**bounded**: how long a connection and an answer may take, and how long a client of earlier certificates is kept.
"""

import asyncio
import ssl
from contextlib import suppress

import httpx

from slots.tls import Certificates

CONNECT_SECONDS = 2.0
"""How long a connection to another topom may take."""
ANSWER_SECONDS = 25.0
"""How long another topom may take to answer: less than the command line waits, so that an operator sees the reason."""

FORMER_SECONDS = 60.0
"""How long requests that are under way with earlier certificates may go on: longer than any change takes. A live
picture ends then, and whoever watches it asks again."""

FAILURES = (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError)
"""What a request raises that gets no answer. httpx lets some errors of TLS through."""


class Peers:
    """Makes the client."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._context = certificates.context
        self._http = _client(self._context)
        self._former: dict[httpx.AsyncClient, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def http(self) -> httpx.AsyncClient:
        """The client for the next request."""
        context = self._certificates.context
        if context is not self._context:
            # Requests under way go on for a while.
            later = asyncio.get_running_loop().call_later(FORMER_SECONDS, self._end, self._http)
            self._former[self._http] = later
            self._context, self._http = context, _client(context)
        return self._http

    async def close(self) -> None:
        """Close its connections."""
        for client in list(self._former):
            self._end(client)
        await asyncio.gather(_closed(self._http), *self._closing)

    def _end(self, former: httpx.AsyncClient) -> None:
        self._former.pop(former).cancel()
        task = asyncio.get_running_loop().create_task(_closed(former))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _closed(client: httpx.AsyncClient) -> None:
    with suppress(Exception):
        await client.aclose()


def _client(context: ssl.SSLContext) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        trust_env=False,
        follow_redirects=False,
        verify=context,
    )
