"""TLS of topom's API: connections are taken, and have a limit and count from the first moment.

The loop's own server tells nobody of a connection before its handshake is over. So clients that connect and say nothing
would hold any number of them.

**bounded**: the time of a handshake, how many connections are taken in one turn of the event loop, and how often one
that fails is logged. The entrance limits how many are under way.
"""

import asyncio
import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from slots.tls import Certificates

log = structlog.get_logger(__name__)

HANDSHAKE_SECONDS = 10.0
ACCEPT_AT_ONCE = 4
ACCEPT_RETRY_SECONDS = 0.5
"""Pause after a connection could not be taken, for example for lack of a file descriptor."""
LOG_SECONDS = 1.0
"""Seconds between two log events about handshakes that failed. Anybody can cause them."""
_SIGNS = {
    "HTTP_REQUEST": "it speaks HTTP without TLS; use https:// in topom's URL there",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate; give it one, which tls_client_certificates wants",
    "CERTIFICATE_VERIFY_FAILED": "no authority of tls_client_ca has signed its certificate for clients, or it is over",
    "ALERT_UNKNOWN_CA": "it does not trust the authority of tls_certificate; give it that authority's certificate",
    "ALERT_BAD_CERTIFICATE": "it does not take tls_certificate, which may be for another host",
    "ALERT_CERTIFICATE_UNKNOWN": "it does not take tls_certificate; browsers say why",
}
"""What OpenSSL's text has, and what that means. The first one counts."""


class Droppable(Protocol):
    """A connection that can be closed at once."""

    def drop(self) -> None:
        """Close it."""


class Admitting(Protocol):
    """Keeps account of connections (:class:`topom.api.entrance.Entrance`)."""

    def admit(self, connection: Droppable) -> None:
        """A connection was accepted."""

    def gone(self, connection: Droppable) -> None:
        """It is closed, or another object's."""

    def end_handshakes(self) -> None:
        """Close what has no TLS yet."""


class FailedHandshakes:
    """Logs them."""

    def __init__(self) -> None:
        self._logged = -math.inf
        self._unlogged = 0

    def another(self, peer: str, error: ssl.SSLError) -> None:
        """One failed because of what the client said."""
        now = time.monotonic()
        if now - self._logged < LOG_SECONDS:
            self._unlogged += 1
            return
        said = str(error)
        meaning = next((f"{meaning} ({said})" for sign, meaning in _SIGNS.items() if sign in said), said)
        log.warning("handshake_failed", client=peer, reason=meaning, unlogged=self._unlogged)
        self._logged, self._unlogged = now, 0


class Handshake:
    """One that is under way."""

    def __init__(self, entrance: Admitting, taken: socket.socket) -> None:
        self._entrance = entrance
        self._taken = taken
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def begin(
        self,
        certificates: Certificates,
        make: Callable[["Handshake"], asyncio.Protocol],
        failed: FailedHandshakes,
        peer: str,
    ) -> None:
        """Begin it. ``make`` gives the protocol that has the connection once it is over."""
        self._task = asyncio.get_running_loop().create_task(self._shake(certificates, make, failed, peer))
        self._task.add_done_callback(lambda _: self._ended())
        self._entrance.admit(self)

    def drop(self) -> None:
        """Close the connection at once."""
        self._entrance.gone(self)
        if self._task is not None:
            self._task.cancel()

    async def _shake(
        self,
        certificates: Certificates,
        make: Callable[["Handshake"], asyncio.Protocol],
        failed: FailedHandshakes,
        peer: str,
    ) -> None:
        self._begun = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: make(self),
                self._taken,
                ssl=certificates.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except ssl.SSLError as error:
            failed.another(peer, error)
        except OSError as error:  # a time that is up is one, too; and who looks whether a port is open says nothing
            log.debug("handshake_ended", reason=str(error) or type(error).__name__)

    def _ended(self) -> None:
        self._entrance.gone(self)
        if not self._begun:
            self._taken.close()


class TlsListener:
    """Takes connections at a socket that listens.

    Args:
        entrance: keeps account of connections.
        certificates: of topom.
    """

    def __init__(self, entrance: Admitting, certificates: Certificates) -> None:
        self._entrance = entrance
        self._certificates = certificates
        self._failed = FailedHandshakes()
        self._listening: socket.socket | None = None
        self._make: Callable[[Handshake], asyncio.Protocol]
        self._again: asyncio.TimerHandle | None = None

    def listen(self, listening: socket.socket, make: Callable[[Handshake], asyncio.Protocol]) -> None:
        """Take connections from now on. ``make`` gives the protocol for one whose handshake is over."""
        listening.setblocking(False)
        self._listening = listening
        self._make = make
        self._resume()

    def close(self) -> None:
        """Take no more, and close what has no TLS yet. The socket is left to its owner."""
        if self._listening is None:
            return
        asyncio.get_running_loop().remove_reader(self._listening.fileno())
        self._listening = None
        if self._again is not None:
            self._again.cancel()
        self._entrance.end_handshakes()

    def _resume(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._take)

    def _take(self) -> None:
        if self._listening is None:
            return
        for _ in range(ACCEPT_AT_ONCE):
            try:
                taken, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("connection_not_taken", reason=error.strerror or str(error))
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listening.fileno())
                self._again = loop.call_later(ACCEPT_RETRY_SECONDS, self._resume)
                return
            taken.setblocking(False)
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Handshake(self._entrance, taken).begin(self._certificates, self._make, self._failed, str(peer[0]))
