"""Dials topom: one stream at a time, to the topom that leads, for as long as a process lives.

Each of topom's addresses is tried in turn until one answers. Of several topoms, only the leader keeps streams. Another
one says so, and the next address is tried at once.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage, InvalidStatus, WebSocketException

from slots import bearer
from slots.backoff import Backoff
from slots.tls import Certificates
from slots.topomtls import Remedies

CONNECT_SECONDS = 3.0
PING_SECONDS = 1.0
"""How often the link is tested."""
PONG_SECONDS = 2.0
"""How long an answer may take, unless a process says otherwise.

Together that is less than a proxy's lease with topom. So a proxy leaves a paused topom before the next leader
fences."""
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024
REFUSAL_CHARACTERS = 200
"""How much of topom's own words about a refusal is logged."""
REMEDIES = Remedies("topom_tls_ca", "topom_tls_certificate and topom_tls_key")
"""How processes that dial call their certificates."""

log = structlog.get_logger()


class ControlError(Exception):
    """The stream cannot be used. The message says why and what to do."""


class SentAway(ControlError):
    """The topom at the other end does not lead. ``leader`` is the URL of the leader, if that topom knows it."""

    def __init__(self, message: str, leader: str) -> None:
        super().__init__(message)
        self.leader = leader


class Dialing:
    """Dials.

    Args:
        urls: of topom, such as ``http://127.0.0.1:8380``.
        path: of the stream.
        token: the bearer token. It may change, and counts from the next stream on.
        token_refused: what to say if topom refuses the token.
        certificates: for addresses with ``https``.
        pong_seconds: how long topom may say nothing before the stream counts as lost.
    """

    def __init__(
        self,
        urls: list[str],
        path: str,
        token: str,
        token_refused: str,
        certificates: Certificates | None,
        pong_seconds: float = PONG_SECONDS,
    ) -> None:
        self._path = path
        self._urls = [self._stream_url(url) for url in urls]
        self.token = token
        self._token_refused = token_refused
        self._certificates = certificates
        self._pong_seconds = pong_seconds
        self._problems: dict[str, str] = {}  # the last message logged, by URL

    def connect(self, url: str) -> connect:
        """A stream to one of the addresses that :meth:`run` gives."""
        certificates = self._certificates if url.startswith("wss://") else None
        return connect(
            url,
            ssl=None if certificates is None else certificates.context,
            additional_headers=bearer.header(self.token),
            open_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=self._pong_seconds,
            close_timeout=1.0,
            max_size=MESSAGE_LIMIT_BYTES,
            compression=None,
            proxy=None,
        )

    def stands(self) -> None:
        """The stream stands: problems from before are over."""
        self._problems.clear()

    async def run(
        self,
        attempt: Callable[[str], Awaitable[bool]],
        registered_now: Callable[[], bool],
        ended: Callable[[], None],
        done: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep a stream up until ``done`` or cancelled.

        Args:
            attempt: one stream to this address, from connecting to its end; gives whether the process was registered.
                It raises ControlError and what the stream raises.
            registered_now: whether the process is registered at this moment.
            ended: is called after each attempt.
        """
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        place = 0
        sent_away = 0  # in a row
        loop = asyncio.get_running_loop()
        while not done():
            began = loop.time()
            place %= len(self._urls)
            url = self._urls[place]
            registered = False
            elsewhere: int | None = None
            try:
                registered = await attempt(url)
            except SentAway as error:
                registered = registered_now()
                elsewhere = self._place_of(error.leader, place)
                self._report(url, error, registered)
            except (ControlError, WebSocketException, OSError, TimeoutError) as error:
                registered = registered_now()
                # Even if it led: a paused topom takes a connection and says nothing. Another one knows who leads.
                place += 1
                self._report(url, error, registered)
            finally:
                ended()
            if registered and loop.time() - began > RETRY_SECONDS_MAX:
                backoff.reset()
                sent_away = 0
            if elsewhere is not None:
                place = elsewhere
                sent_away += 1
                # bounded: topoms that send the process to and fro do not yet agree on the leader.
                if sent_away <= len(self._urls):
                    continue
            sent_away = 0
            await asyncio.sleep(backoff.next())

    def _stream_url(self, url: str) -> str:
        return url.replace("http", "ws", 1).rstrip("/") + self._path

    def _place_of(self, leader: str, place: int) -> int:
        """The place after ``place``: the leader's, if its address is known here, else the next one."""
        url = self._stream_url(leader)
        return self._urls.index(url) if url in self._urls else place + 1

    def _report(self, url: str, error: Exception, registered: bool) -> None:
        """Log a problem once, not at each attempt."""
        problem = self._problem(url, error, registered)
        if registered or problem != self._problems.get(url):
            log.warning("topom_lost" if registered else "topom_unreachable", url=url, reason=problem)
        self._problems[url] = problem

    def _problem(self, url: str, error: Exception, registered: bool) -> str:
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403, 429):
            said = bytes(error.response.body or b"")[:REFUSAL_CHARACTERS].decode("ascii", "replace")
            return f"{said}; name one as {REMEDIES.certificate}" if said else self._token_refused
        if isinstance(error, TimeoutError):
            return "topom did not answer in time"
        reason = str(error) or repr(error)
        if why := REMEDIES.why(error):
            return f"{why} ({reason})"
        if isinstance(error, InvalidMessage | ConnectionResetError) and not registered:
            return f"{reason}; {REMEDIES.unanswered(url)}"
        return reason
