"""Takes clients' connections from accept to session: first the PROXY header, then TLS, then the engine.

**bounded**: connections that are not yet sessions count for ``max_clients``. At most :data:`MOST_ARRIVALS` wait for a
header or for TLS, each for ``handshake_seconds``. While there are so many, sockets that need headers or TLS accept
nothing more, and the kernel's queue fills. A handshake is a millisecond's work. Only a few go on in each turn of
the event loop, so that other clients' requests come in between.
"""

import asyncio
import itertools
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from proxy.engine.connection import format_address
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.listening import certificates, follow, refuse_newcomers
from proxy.settings import ProxySettings
from proxy.worker.clients.proxyprotocol import Header, ProxyProtocolError
from slots import address as addresses

log = structlog.get_logger()

ACCEPT_AT_ONCE = 64
MOST_ARRIVALS = 256
"""How many connections may wait for a header or for TLS: a quarter of a second's work, so that the last of them is done
in time."""
STEPS_AT_ONCE = 2
"""Headers and handshakes that go on in one turn of the event loop."""
BACKLOG = 1024
WITHDRAW_SECONDS = 0.2
"""How long TCP handshakes may take that began before the proxy stopped letting clients in."""
LAST_HANDSHAKE_SECONDS = 1.0
"""Further seconds for TLS and headers."""
ACCEPT_RETRY_SECONDS = 0.5
"""Pause after a connection could not be accepted, for example for lack of a file descriptor."""
LOG_SECONDS = 1.0
"""Seconds between two log events about connections that did not become sessions."""


def numbers(worker: int, workers: int) -> Iterator[int]:
    """The numbers of a worker's sessions: divided by the number of workers, they leave its own number.

    They begin anywhere. So a client that gives a number to a wrong proxy, or has it from a worker that is no more, does
    not mean another client there. They stay below 2**53, up to which JavaScript knows whole numbers.
    """
    begin = secrets.randbits(31) << 20
    return itertools.count(begin - begin % workers + workers + worker, workers)


@dataclass(eq=False, slots=True)
class Door:
    """A listening socket. ``setting`` names the place where it listens."""

    setting: str
    listener: socket.socket
    tls: bool
    header: bool
    is_open: bool = False

    @property
    def waits(self) -> bool:
        """Whether a header or TLS has to come before a connection is a session."""
        return self.tls or self.header


class Arrival:
    """A connection that is not yet a session."""

    __slots__ = ("began", "door", "header", "peer", "sock")

    def __init__(self, door: Door, sock: socket.socket, peer: str, began: float) -> None:
        self.door = door
        self.sock = sock
        self.peer = peer
        self.began = began
        self.header: Header | None = Header() if door.header else None


class Arrivals:
    """All of a worker's listening sockets, and the connections that have arrived there.

    Args:
        settings: where to listen, and limits.
        router: of the sessions.
        index: of the worker.
        inherited: descriptors of sockets that the supervisor has bound, by the setting that names their place;
            a place that is missing is bound here.
        begin: called with each new session.

    Raises:
        TlsError: the certificate cannot be used.
    """

    def __init__(
        self,
        settings: ProxySettings,
        router: Router,
        index: int,
        inherited: Mapping[str, int],
        begin: Callable[[Session], None],
    ) -> None:
        self._settings = settings
        self._router = router
        self._inherited = inherited
        self._begin = begin
        self._numbers = numbers(index, settings.worker_count)
        self._certificates = certificates(settings)
        self._doors: list[Door] = []
        self._under_way: set[Arrival] = set()
        self._ready: deque[Arrival] = deque()
        self._scheduled = False
        self._logged = -LOG_SECONDS
        self._unlogged = 0
        self._withdrawn_at = 0.0
        self.accepted = 0
        self.refused = 0
        """Connections refused for lack of room."""
        self.failed = 0
        """Connections that did not become sessions because the header or TLS failed."""

    def __len__(self) -> int:
        return len(self._under_way)

    def configure(self, settings: ProxySettings) -> None:
        """Let settings hold for connections to come."""
        self._settings = settings
        follow(self._certificates, settings)

    @property
    def listening(self) -> bool:
        """Whether :meth:`listen` was called."""
        return bool(self._doors)

    # -- listening -----------------------------------------------------------------------------------------

    def listen(self) -> str:
        """Begin to accept connections; the address of the first place."""
        settings = self._settings
        for setting in ("listen", "tls_listen", "unix_socket"):
            where = getattr(settings, setting)
            if where:
                on_tcp = setting != "unix_socket"
                listener = self._listener(setting, where)
                listener.setblocking(False)
                listener.listen(BACKLOG)
                door = Door(setting, listener, setting == "tls_listen", on_tcp and settings.proxy_protocol)
                self._doors.append(door)
                self._open(door)
        return format_address(self._doors[0].listener.getsockname())

    def _listener(self, setting: str, where: str) -> socket.socket:
        if setting in self._inherited:
            return socket.socket(fileno=self._inherited[setting])
        host, port = addresses.split(where)
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        return listener

    def withdraw(self) -> None:
        """Let no new client in. Connected clients are not turned away; :meth:`withdrawn` takes them in."""
        self._withdrawn_at = time.monotonic()
        for door in self._doors:
            if door.setting != "unix_socket":  # its path is gone already
                refuse_newcomers(door.listener)

    def withdrawn(self) -> bool:
        """Call this again and again after :meth:`withdraw`: it takes in clients that have connected. True once all
        doors are closed.

        When a listening socket is closed, the kernel closes the connections that wait to be accepted. So it is closed
        only when none waits, and none can come any more. bounded: by :data:`WITHDRAW_SECONDS` and by
        :data:`LAST_HANDSHAKE_SECONDS`. A client that has not connected by then, or still waits for room, has sent no
        request.
        """
        past = time.monotonic() - self._withdrawn_at
        for door in self._doors:
            if door.listener.fileno() >= 0 and (
                (self._accept(door) and past >= WITHDRAW_SECONDS) or past >= WITHDRAW_SECONDS + LAST_HANDSHAKE_SECONDS
            ):
                self._shut(door)
                door.listener.close()
        if past >= WITHDRAW_SECONDS + LAST_HANDSHAKE_SECONDS:
            for arrival in list(self._under_way):
                self._forget(arrival)
                arrival.sock.close()
        return not self._under_way and all(door.listener.fileno() < 0 for door in self._doors)

    def _open(self, door: Door) -> None:
        if not door.is_open and door.listener.fileno() >= 0:
            door.is_open = True
            asyncio.get_running_loop().add_reader(door.listener.fileno(), self._accept, door)

    def _shut(self, door: Door) -> None:
        if door.is_open:
            door.is_open = False
            asyncio.get_running_loop().remove_reader(door.listener.fileno())

    # -- accepting -----------------------------------------------------------------------------------------

    def _accept(self, door: Door) -> bool:
        """Accept some connections; true if none is left waiting."""
        for _ in range(ACCEPT_AT_ONCE):
            if door.waits and len(self._under_way) >= MOST_ARRIVALS:
                # The socket is watched again when one of them is done.
                self._shut(door)
                return False
            try:
                sock, peer = door.listener.accept()
            except BlockingIOError:
                return True
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Connections that wait keep the socket readable; without a pause the loop would spin on them.
                log.error("accept_failed", reason=str(error), retry_seconds=ACCEPT_RETRY_SECONDS)
                self._shut(door)
                asyncio.get_running_loop().call_later(ACCEPT_RETRY_SECONDS, self._open, door)
                return False
            sock.setblocking(False)
            if len(self._router.sessions) + len(self._under_way) >= self._settings.max_clients:
                self._refuse(door, sock)
                continue
            self.accepted += 1
            if door.setting == "unix_socket":
                shown = f"{self._settings.unix_socket}:0"
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                shown = format_address(peer)
            if door.waits:
                arrival = Arrival(door, sock, shown, time.monotonic())
                self._under_way.add(arrival)
                self._wait_to_read(arrival)
            else:
                self._welcome(sock, shown)
        return False

    def _refuse(self, door: Door, sock: socket.socket) -> None:
        self.refused += 1
        if not door.tls:
            try:
                sock.send(b"-ERR max number of clients reached\r\n")
            except OSError:
                log.debug("client_refused_and_gone")
        sock.close()

    def _welcome(self, sock: socket.socket, peer: str) -> None:
        self._begin(Session(self._router, sock, peer, next(self._numbers)))

    # -- headers and handshakes ----------------------------------------------------------------------------

    def _wait_to_read(self, arrival: Arrival) -> None:
        asyncio.get_running_loop().add_reader(arrival.sock.fileno(), self._can_go_on, arrival)

    def _wait_to_write(self, arrival: Arrival) -> None:
        asyncio.get_running_loop().add_writer(arrival.sock.fileno(), self._can_go_on, arrival)

    def _rest(self, arrival: Arrival) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(arrival.sock.fileno())
        loop.remove_writer(arrival.sock.fileno())

    def _can_go_on(self, arrival: Arrival) -> None:
        self._rest(arrival)
        self._ready.append(arrival)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and self._ready:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        for _ in range(min(STEPS_AT_ONCE, len(self._ready))):
            arrival = self._ready.popleft()
            if arrival in self._under_way:
                try:
                    self._step(arrival)
                except ProxyProtocolError as error:
                    # A client that connects and says nothing only checks that the proxy is there.
                    silent = arrival.header is not None and not arrival.header.received
                    self._fail(arrival, "" if silent else f"no PROXY header: {error}")
                except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                    self._fail(arrival, f"{'no TLS' if arrival.header is None else 'no PROXY header'}: {error}")
        self._schedule()

    def _step(self, arrival: Arrival) -> None:
        """Take a connection as far as it can go now."""
        if arrival.header is not None:
            if not arrival.header.read(arrival.sock):
                self._wait_to_read(arrival)
                return
            arrival.peer = arrival.header.peer or arrival.peer
            arrival.header = None
        if arrival.door.tls:
            if not isinstance(arrival.sock, ssl.SSLSocket):
                assert self._certificates is not None
                arrival.sock = self._certificates.context.wrap_socket(
                    arrival.sock, server_side=True, do_handshake_on_connect=False
                )
            try:
                arrival.sock.do_handshake()
            except ssl.SSLWantReadError:
                self._wait_to_read(arrival)
                return
            except ssl.SSLWantWriteError:
                self._wait_to_write(arrival)
                return
        self._forget(arrival)
        self._welcome(arrival.sock, arrival.peer)

    def _forget(self, arrival: Arrival) -> None:
        if arrival.sock.fileno() >= 0:
            self._rest(arrival)
        self._under_way.discard(arrival)
        for door in self._doors:
            self._open(door)

    def _fail(self, arrival: Arrival, reason: str) -> None:
        self._forget(arrival)
        arrival.sock.close()
        if not reason:
            return
        self.failed += 1
        # bounded: anybody can cause these events.
        now = time.monotonic()
        if now - self._logged < LOG_SECONDS:
            self._unlogged += 1
            return
        log.warning(
            "connection_failed", peer=arrival.peer, at=arrival.door.setting, reason=reason, unlogged=self._unlogged
        )
        self._logged = now
        self._unlogged = 0

    def check_time(self) -> None:
        """Close connections that take too long (**bounded**); called a few times a second."""
        late = time.monotonic() - self._settings.handshake_seconds
        for arrival in [arrival for arrival in self._under_way if arrival.began < late]:
            what = "TLS" if arrival.header is None else "PROXY header"
            self._fail(arrival, f"no {what} within {self._settings.handshake_seconds:g} s")
