"""How Slotferry's processes log in at the Redis servers: user, password and TLS. They are the same for every server.

The certificates for TLS with topom are of the same form (:mod:`slots.reaching`)."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slots.tls import Certificates, client_context

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.connection import SSLConnection


FILES = ("ca", "certificate", "key")
"""The ends of the names of settings that name files of a :class:`ServerTls`."""


def of_files(prefix: str, same: object) -> dict[str, object]:
    """For :meth:`slots.settings.Settings.bound`: the settings of this prefix that name files, bound to ``same``."""
    return {f"{prefix}_{end}": same for end in FILES}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The certificates for TLS with a server. All are names of files in PEM; "" means none.

    Attributes:
        authorities: the certificate authorities that may vouch for a server; "": those that the system trusts.
        certificate, key: shown to a server that asks for a certificate.
        verify_host: whether the server's certificate has to name the host of the connection.
    """

    authorities: str = ""
    certificate: str = ""
    key: str = ""
    verify_host: bool = True

    @classmethod
    def of(cls, settings: object, prefix: str) -> "ServerTls":
        """By the settings whose names begin so, such as ``redis_tls``."""
        return cls(*(getattr(settings, f"{prefix}_{end}") for end in (*FILES, "verify_host")))

    @property
    def files(self) -> tuple[str, str, str]:
        """What :meth:`context` is made from."""
        return self.authorities, self.certificate, self.key

    def context(self) -> ssl.SSLContext:
        """The context for connections, by the files of now. Raises :class:`slots.tls.TlsError`."""
        return client_context(*self.files, self.verify_host)

    def certificates(self) -> Certificates:
        """The context for connections, which follows the files. Raises :class:`slots.tls.TlsError`."""
        return Certificates(self.files, self.context)


def look(known: Certificates | None, tls: ServerTls) -> Callable[[], None]:
    """A look at other files for ``known`` (:meth:`slots.tls.Certificates.look`); nothing if TLS is not spoken."""
    return known.look(tls.files, tls.context) if known is not None else lambda: None


class ServerAccess:
    """Credentials for the servers.

    Args:
        password: "" for none.
        user: an ACL user of the servers; "": the user ``default``.
        tls: None for connections in the clear.

    Raises:
        TlsError: the files cannot be used.
    """

    def __init__(self, password: str = "", user: str = "", tls: ServerTls | None = None) -> None:
        self.password = password
        self.user = user
        self._certificates = tls.certificates() if tls is not None else None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for the next connection; None for one in the clear."""
        return self._certificates.context if self._certificates else None

    def look(self, tls: ServerTls) -> Callable[[], None]:
        """A look at other files, if TLS is spoken. It gives what has new connections use them. Raises
        :class:`slots.tls.TlsError`, and then nothing has changed."""
        return look(self._certificates, tls)

    def follow(self, tls: ServerTls) -> None:
        """Have new connections use other files, once these can be used, if TLS is spoken."""
        if self._certificates is not None:
            self._certificates.follow(tls.files, tls.context)

    @property
    def login(self) -> tuple[str, ...]:
        """The command that logs in; empty if none is needed."""
        if not self.password:
            return ()
        return ("AUTH", self.user, self.password) if self.user else ("AUTH", self.password)

    def client(self, host: str, port: int, **options: Any) -> "Redis":
        """A client of redis-py for one server; ``options`` are those of its constructor.

        Its replies are checked (:mod:`slots.replies`). It speaks RESP2 unless told otherwise. RESP3 logs in by HELLO,
        and a server that does not know HELLO would repeat the password in its error.
        """
        # Imported here: a process that only needs to know the slot of a key does not need redis-py.
        from slots.cancelling import HeedingConnection
        from slots.replies import CheckedRedis

        client = CheckedRedis(
            host=host,
            port=port,
            username=self.user or None,
            password=self.password or None,
            ssl=self._certificates is not None,
            **{"protocol": 2, **options},
        )
        certificates = self._certificates
        client.connection_pool.connection_class = _tls_connection(certificates) if certificates else HeedingConnection
        return client


def _tls_connection(certificates: Certificates) -> "type[SSLConnection]":
    """A connection of redis-py that uses our TLS context: given files, redis-py would also trust the system's
    authorities."""
    from redis.asyncio.connection import RedisSSLContext

    from slots.cancelling import HeedingTlsConnection

    class Context(RedisSSLContext):
        """Gives our TLS context, as it is when a connection is made."""

        def get(self) -> ssl.SSLContext:
            return certificates.context

    class Connection(HeedingTlsConnection):
        """Gets its TLS context from :class:`Context`."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context = Context()

    return Connection
