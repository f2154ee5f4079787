"""The common part of a worker's connections to Redis servers: names, credentials and limits."""

import ssl
import time
from collections.abc import Callable, Collection

import structlog

from proxy.servers.allowances import Allowances
from proxy.servers.knownservers import KnownServers
from proxy.settings import ProxySettings
from slots.connections import worker_prefix
from slots.reserved import FENCED

log = structlog.get_logger()

TELL_SECONDS = 60.0


class BackendOptions:
    """Options of every :class:`proxy.engine.backend.Backend` of a worker.

    Args:
        settings: the proxy's settings.
        instance: identity of the proxy; connections look for the fence of this identity.
        incarnation: number of this worker process.
        on_lost: called with (address, connection name) when a connection ends with replies outstanding.
        on_fenced: called with the address of a server that has fenced this proxy off.
        on_disconnected: called with (address, whether all sessions share it) when a connection that was ready ends.
        on_unknown: called with a server's address and run id, if that process has to become known before it is used.
    """

    def __init__(
        self,
        settings: ProxySettings,
        instance: str,
        incarnation: int,
        on_lost: Callable[[str, str], None],
        on_fenced: Callable[[str], None],
        on_disconnected: Callable[[str, bool], None],
        on_unknown: Callable[[str, str], None] = lambda address, process: None,
    ) -> None:
        self._access = settings.redis_access
        self.user = self._access.user
        self.password = self._access.password
        self.connect_seconds = settings.backend_connect_seconds
        self.retry_seconds_min = settings.backend_retry_seconds_min
        self.retry_seconds_max = settings.backend_retry_seconds_max
        self.queue_pause_bytes = settings.backend_queue_pause_bytes
        self.own_reply_bytes = settings.session_output_limit_bytes
        self.on_lost = on_lost
        self.on_fenced = on_fenced
        self.on_disconnected = on_disconnected
        self.on_unknown = on_unknown
        self.instance = instance
        self.incarnation = incarnation
        self.allowances = Allowances()
        self.known_servers = KnownServers()
        self.lost_masters: Collection[str] = frozenset()
        """Masters that have failed and are being replaced: nothing connects to them."""
        self._opened = 0
        self._overwritten: dict[str, float] = {}

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for the next connection; None for one in the clear."""
        return self._access.tls

    def marks_overwritten(self, address: str) -> None:
        """Log that a server has something else where the marks of fences are; at most once a minute."""
        now = time.monotonic()
        if now - self._overwritten.get(address, -TELL_SECONDS) < TELL_SECONDS:
            return
        self._overwritten[address] = now
        log.error(
            "fence_marks_overwritten",
            server=address,
            reason=f"{FENCED.decode()} in database 0 is no hash: something else than Slotferry has written it, and "
            "fences of before are only known by their ACL users; topom puts it aside",
        )

    def new_name(self) -> str:
        """A name for one connection, never used before. It ends in a dot, so that no name is the beginning of
        another."""
        self._opened += 1
        return f"{worker_prefix(self.instance, self.incarnation)}{self._opened}."
