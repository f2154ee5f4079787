"""How topom gets in at the Redis servers and at the Sentinels.

There is one for a process, not for a term: a term can begin even while the certificates cannot be read anew.
"""

from collections.abc import Callable

from slots.access import ServerAccess, ServerTls
from slots.reloading import refusing
from topom.term.settings import TopomSettings


class Access:
    """The ways in. Raises :class:`slots.tls.TlsError`: the certificates cannot be used."""

    def __init__(self, settings: TopomSettings) -> None:
        tls = ServerTls.of(settings, "redis_tls") if settings.redis_tls else None
        self.servers = ServerAccess(settings.redis_password.get_secret_value(), settings.redis_user, tls)
        """How to log in at the servers."""
        self.sentinels = ServerAccess(settings.sentinel_password.get_secret_value(), settings.sentinel_user, tls)
        """How to log in at the Sentinels."""

    def look(self, settings: TopomSettings) -> Callable[[], None]:
        """A look at other certificates (:data:`slots.reloading.Taker`)."""
        tls = ServerTls.of(settings, "redis_tls")
        with refusing("TLS with the Redis servers"):
            looks = [access.look(tls) for access in (self.servers, self.sentinels)]

        def put() -> None:
            for use in looks:
                use()

        return put
