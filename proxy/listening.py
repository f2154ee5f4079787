"""The places where clients connect: the supervisor reserves them, the workers listen there.

With SO_REUSEPORT the kernel would silently share a port between two proxies, each getting half of the clients. So an
address is reserved in a way that keeps others out and lets this proxy's workers in. The Unix socket is one for all
workers, which inherit it. A lock on a file beside it tells a live one from a stale one.
"""

import asyncio
import ctypes
import errno
import fcntl
import os
import socket
import ssl
import stat
import struct
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import structlog

from proxy.settings import ProxySettings
from slots import address
from slots.reloading import refusing
from slots.tls import Certificates, server_context

log = structlog.get_logger()


TRY_SECONDS = 0.1
"""Between two tries to take places that another process has."""


class ListenError(Exception):
    """The proxy cannot listen where it was told to. The message says why and what to do."""


class PlaceTaken(ListenError):
    """Another process listens there."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A bound socket that does not listen. ``address`` is ``host:port`` with the true port."""

    address: str
    holder: socket.socket
    shared: bool
    """Whether workers bind the address themselves, with SO_REUSEPORT; else they inherit :attr:`holder`."""

    @property
    def inherited(self) -> socket.socket | None:
        """The sockets that workers inherit; None if they bind the address themselves."""
        return None if self.shared else self.holder

    def withdraw(self) -> None:
        """The proxy ends. Nothing has to be done before :meth:`close`."""

    def close(self) -> None:
        """Give the address back."""
        self.holder.close()


# Other systems have SO_REUSEPORT, too, but give all connections to one of the sockets.
SPREADS_CONNECTIONS = sys.platform == "linux"


def reserve(listen: str, shared: bool = SPREADS_CONNECTIONS, setting: str = "listen") -> Reservation:
    """Reserve ``listen`` (``host:port``; port 0 takes a free one) for this process and its workers.

    Args:
        listen: the place.
        shared: whether workers bind it, too.
        setting: the name of the setting that has the place.

    Raises:
        ListenError: another process has the address, this machine does not have it, or this user may not use it.
    """
    host, port = address.split(listen)
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ListenError(f"Cannot listen on {listen}: the host {host!r} is not known ({error.strerror}).") from error
    try:
        # Without SO_REUSEPORT this fails if anybody listens there, even with SO_REUSEPORT, and if another supervisor
        # has reserved it. With SO_REUSEADDR, connections that ended there lately do not matter.
        holder = _bind(family, target, socket.SO_REUSEADDR)
        host, port = holder.getsockname()[:2]
        if shared:
            holder.close()
            try:
                holder = _bind(family, (host, port, *target[2:]), socket.SO_REUSEPORT)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                # Ended connections of a program without SO_REUSEPORT are in the way for a minute.
                holder = _bind(family, (host, port, *target[2:]), socket.SO_REUSEPORT, socket.SO_REUSEADDR)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        raise (PlaceTaken if taken else ListenError)(_explain(listen, error, setting)) from error
    return Reservation(address.join(host, port), holder, shared)


def _bind(family: int, target: tuple[object, ...], *options: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(target)
    except OSError:
        bound.close()
        raise
    return bound


_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
# The TCP header of a packet, in the filter's machine: load byte 13; if SYN is set, drop the packet, else take all of
# it.
_WITHOUT_SYN = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


def refuse_newcomers(listener: socket.socket) -> None:
    """Have the kernel accept no new connections at a listening TCP socket; connections that have begun go on.

    A client that tries gets no answer. It tries again after a second, and is refused if nobody listens by then. If the
    system cannot do that, connections go on coming until the socket is closed.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(_WITHOUT_SYN)
    # struct sock_fprog: the number of instructions, and where they are.
    described = struct.pack("@HP", len(_WITHOUT_SYN) // 8, ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, described)
    except OSError as error:
        log.debug("newcomers_not_refused", reason=str(error))


def _explain(listen: str, error: OSError, setting: str) -> str:
    if error.errno == errno.EADDRINUSE:
        advice = f"another process listens there. Stop it, or choose another address with the setting {setting}"
    elif error.errno == errno.EADDRNOTAVAIL:
        advice = "this machine does not have that address. Choose one it has, or 0.0.0.0 for all"
    elif error.errno in (errno.EACCES, errno.EPERM):
        advice = f"this user may not. Choose a port above 1023 with the setting {setting}"
    else:
        advice = str(error.strerror)
    return f"Cannot listen on {listen}: {advice}."


def certificates(settings: ProxySettings) -> Certificates | None:
    """The certificates for clients, if any place uses TLS. Raises :class:`~slots.tls.TlsError`."""
    return Certificates(_files(settings), partial(_context, settings)) if settings.tls_listen else None


def follow(known: Certificates | None, settings: ProxySettings) -> None:
    """Have the certificates for clients follow the files of these settings."""
    if known is not None:
        known.follow(_files(settings), partial(_context, settings))


def check_certificates(settings: ProxySettings, before: ProxySettings) -> None:
    """Raises :class:`~slots.settings.SettingsError` if other files for clients are named than before, and cannot be
    used. Files that are named still may be half renewed; they follow by themselves."""
    if settings.tls_listen and _files(settings) != _files(before):
        with refusing("TLS for clients"):
            _context(settings)


def _files(settings: ProxySettings) -> tuple[str, str, str]:
    return settings.tls_certificate, settings.tls_key, settings.tls_client_ca


def _context(settings: ProxySettings) -> ssl.SSLContext:
    return server_context(*_files(settings), settings.tls_client_certificates)


class Reservations:
    """All places where clients of a proxy connect.

    Args:
        settings: ``listen``, ``tls_listen`` and ``unix_socket``; empty ones are left out.
    """

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._places: dict[str, Reservation | UnixReservation] = {}

    def reserve(self) -> None:
        """Take the places. Raises :class:`ListenError`; places that were taken by then have to be closed."""
        settings = self._settings
        for setting in ("listen", "tls_listen"):
            if getattr(settings, setting):
                self._places[setting] = reserve(getattr(settings, setting), setting=setting)
        if settings.unix_socket:
            permissions = int(settings.unix_socket_permissions, 8)
            self._places["unix_socket"] = reserve_unix(Path(settings.unix_socket), permissions)

    async def reserve_within(self, seconds: float) -> None:
        """As :meth:`reserve`; a place that another process has is tried again, for so long at most."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.reserve()
            except PlaceTaken:
                self.close()
                self._places.clear()
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(TRY_SECONDS)

    @property
    def addresses(self) -> dict[str, str]:
        """True addresses, by the setting that names the place."""
        return {setting: place.address for setting, place in self._places.items()}

    @property
    def address(self) -> str:
        """The address of the first place."""
        settings = self._settings
        return next(iter(self.addresses.values()), settings.listen or settings.tls_listen or settings.unix_socket)

    @property
    def inherited(self) -> dict[str, socket.socket]:
        """The sockets that workers inherit, by setting."""
        return {setting: place.inherited for setting, place in self._places.items() if place.inherited is not None}

    def withdraw(self) -> None:
        """The proxy ends, and still serves connected clients: let no new ones in."""
        for place in self._places.values():
            place.withdraw()

    def close(self) -> None:
        """Give all places back."""
        for place in self._places.values():
            place.close()


class UnixReservation:
    """A Unix socket at a path: bound, and inherited by all workers, which listen on it. Made by
    :func:`reserve_unix`."""

    def __init__(self, path: Path, bound: socket.socket, lock: IO[bytes]) -> None:
        self.address = str(path)
        self.inherited = bound
        self._path = path
        self._lock = lock
        self._there = True

    def withdraw(self) -> None:
        """Let no client connect any more, while connections are still served. Another proxy may take the path."""
        if not self._there:
            return
        self._there = False
        # In this order, a process that gets the lock finds no socket of ours.
        self._path.unlink(missing_ok=True)
        _lock_path(self._path).unlink(missing_ok=True)
        self._lock.close()

    def close(self) -> None:
        """Give the path back."""
        self.withdraw()
        self.inherited.close()


def reserve_unix(path: Path, permissions: int) -> UnixReservation:
    """Bind a Unix socket for this process and its workers; replace one that a proxy left behind when it died.

    Args:
        path: the place; clients see it as it is given.
        permissions: of the file.

    Raises:
        ListenError: a live process has the path, something else is there, or this user may not.
    """
    try:
        lock = _take_lock(path)
        try:
            _remove_stale(path)
            return UnixReservation(path, _bind_unix(path, permissions), lock)
        except BaseException:
            _lock_path(path).unlink(missing_ok=True)
            lock.close()
            raise
    except OSError as error:
        advice = error.strerror or f"{error}; it may have about 100 characters"
        raise ListenError(f"Cannot listen on {path}: {advice}. Set unix_socket to a path that can be used.") from error


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _taken(path: Path) -> PlaceTaken:
    return PlaceTaken(
        f"Cannot listen on {path}: another process listens there. Stop it, or choose another path with the setting "
        "unix_socket."
    )


def _take_lock(path: Path) -> IO[bytes]:
    file = _lock_path(path)
    while True:
        lock = file.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise _taken(path) from None
        try:
            there = file.stat().st_ino
        except FileNotFoundError:
            there = None
        if there == os.fstat(lock.fileno()).st_ino:
            return lock
        # The former owner has just removed the file, and another process may have made a new one, which has to be
        # locked.
        lock.close()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(
            f"Cannot listen on {path}: there is something that is no socket. Remove it, or choose another path with "
            "the setting unix_socket."
        )
    # No proxy has it, for none has the lock. It may be another program's.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    if code not in (errno.ECONNREFUSED, errno.ENOENT):
        raise _taken(path)
    path.unlink(missing_ok=True)


def _bind_unix(path: Path, permissions: int) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Set before, not after: otherwise others could connect in between.
    before = os.umask(0o777 & ~permissions)
    try:
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound
