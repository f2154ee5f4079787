"""TLS contexts made from files, and made again when the files change, so that certificates can be renewed at any time.

Connections go on with the certificate that they began with; new handshakes use the new one. Files that have become
unusable are logged, and the context from before is kept.
"""

import contextlib
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import structlog

LOOK_SECONDS = 1.0
"""How often the files are looked at, at most; only when a context is asked for."""

ClientCertificates = Literal["none", "optional", "required"]

log = structlog.get_logger()


class TlsError(Exception):
    """Certificates or keys that cannot be used. The message names the files and says what is wrong."""


class _PoliteSocket(ssl.SSLSocket):
    """Ends the TLS stream properly, so that it does not look cut off to clients."""

    def close(self) -> None:
        # There is no wait for the client's own end, and a failure to send does not matter.
        with contextlib.suppress(OSError, ValueError):
            self.unwrap()
        super().close()


def server_context(
    certificate: str, key: str, client_ca: str, client_certificates: ClientCertificates
) -> ssl.SSLContext:
    """A context for accepting connections; ``client_ca`` names the authorities that must have signed client
    certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.sslsocket_class = _PoliteSocket
    _load_chain(context, certificate, key)
    if client_certificates != "none":
        _load_authorities(context, client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if client_certificates == "optional" else ssl.CERT_REQUIRED
    return context


def client_context(authorities: str, certificate: str, key: str, verify_host: bool) -> ssl.SSLContext:
    """A context for connecting. Only ``authorities`` may vouch for servers; "": those that the system trusts.

    A server's own certificate among them vouches for that server.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verify_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if authorities:
        _load_authorities(context, authorities)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificate:
        _load_chain(context, certificate, key)
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    def no_password() -> NoReturn:
        # Without this, OpenSSL would ask at the terminal.
        raise TlsError(f"the key in {key} is protected by a password; write it without one, readable only to this user")

    _check_readable(certificate)
    _check_readable(key)
    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(f"the certificate in {certificate} with the key in {key} cannot be used: {error}") from error


def _load_authorities(context: ssl.SSLContext, authorities: str) -> None:
    _check_readable(authorities)
    try:
        context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        raise TlsError(f"the certificates in {authorities} cannot be used: {error}") from error


def _check_readable(path: str) -> None:
    # The ssl module does not say which file it could not read.
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"{path} cannot be read: {error.strerror}") from error


class Certificates:
    """A context that follows its files.

    Args:
        files: the files that the context is made from; empty names are left out.
        make: makes it. Raises :class:`TlsError`.

    Raises:
        TlsError: it cannot be made now.
    """

    def __init__(self, files: Sequence[str], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = _named(files)
        self._make = make
        # The state of the files is noted before they are read: a file that changes meanwhile is read once more.
        self._state = self._look()
        self._context = make()
        self._looked = time.monotonic()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            state = self._look()
            if state != self._state:
                self._state = state
                self._load()
        return self._context

    def look(self, files: Sequence[str], make: Callable[[], ssl.SSLContext]) -> Callable[[], None]:
        """A look at other files, as the constructor has them. It gives what has them followed from then on.

        The files that are followed by now may be half renewed. They follow by themselves, so nothing is read then.

        Raises:
            TlsError: they cannot be used now, and nothing has changed.
        """
        if _named(files) == self._files:
            return lambda: None
        other = Certificates(files, make)

        def put() -> None:
            self._files, self._make = other._files, other._make
            self._state, self._looked = other._state, other._looked
            self._loaded(other._context)

        return put

    def follow(self, files: Sequence[str], make: Callable[[], ssl.SSLContext]) -> None:
        """Follow other files from now on, as the constructor has them. While these cannot be used, which is logged, the
        context from before is kept."""
        if _named(files) == self._files:
            return
        self._files, self._make = _named(files), make
        self._state = self._look()
        self._load()

    def _look(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(_state_of(file) for file in self._files)

    def _load(self) -> None:
        try:
            self._loaded(self._make())
        except TlsError as error:
            files = [str(file) for file in self._files]
            log.error("certificates_not_loaded", files=files, reason=str(error), goes_on_with="those read before")

    def _loaded(self, context: ssl.SSLContext) -> None:
        self._context = context
        log.info("certificates_loaded", files=[str(file) for file in self._files])


def _named(files: Sequence[str]) -> list[Path]:
    return [Path(file) for file in files if file]


def _state_of(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
