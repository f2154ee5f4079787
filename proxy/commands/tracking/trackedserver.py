"""One connection by which a master tells a worker of keys that change there (CLIENT TRACKING).

**bounded**: the server is asked for a reply every ``backend_reply_seconds``, whatever it tells meanwhile, and has as
long to give it: word of a change comes before a later reply. So a connection that is silent, or late, is known for it
within twice that time. The connection is subscribed to a channel, too. A server ends a subscriber that does not read
(``client-output-buffer-limit pubsub``, 32 MiB unless changed). For other connections it keeps all that they have yet to
read.
"""

from collections.abc import Callable

import structlog

from proxy.commands import replies
from proxy.commands.services import Services
from proxy.engine.backend import Backend, command
from slots.reserved import RESERVED

log = structlog.get_logger()

PING = command(("PING",))
CHANNEL = RESERVED + b"tracking"
"""What a connection that tracks keys is subscribed to. Nobody publishes there."""
SUBSCRIBE = command(("SUBSCRIBE", CHANNEL)) + command(("HELLO",))
"""The server says by a push that it has subscribed, and refuses by a reply. So HELLO follows,
which is never refused: an error is the reply to SUBSCRIBE."""
MAY_NOT_SUBSCRIBE = " (allow this proxy's user there +subscribe and &*)"
AGAIN_SECONDS = 1.0
"""How often a server is asked again that has refused."""


class TrackedServer:
    """The connection to one master.

    Args:
        services: the worker's parts.
        address: of the master.
        track: the CLIENT TRACKING by which the server is asked to tell.
        received: gets every push.
        changed: called when one of the attributes may have changed.
    """

    def __init__(
        self,
        services: Services,
        address: str,
        track: bytes,
        received: Callable[[bytes], None],
        changed: Callable[[], None],
    ) -> None:
        self.address = address
        self.tells = False
        """The server has confirmed that it tracks, and the connection is up."""
        self.is_settled = False
        """It tells, or the latest attempt has failed."""
        self.refused: str | None = None
        """What it said when it refused."""
        self._services = services
        self._instance = services.options.instance
        self._track = track
        self._changed = changed
        self._quiet_seconds = services.settings.backend_reply_seconds
        self._heard = self._again_at = 0.0
        # When it was asked what it has yet to reply to.
        self._asked: float | None = None
        router = services.router
        self._backend = backend = Backend(router.loop, address, 0, 3, services.options, self._quiet_seconds)
        backend.on_ready = self._begin
        backend.on_down = self._lost
        backend.on_push = received
        backend.open()

    def _begin(self) -> None:
        self._ask(SUBSCRIBE, self._subscribed)

    def _ask(self, request: bytes, answered: Callable[[bytes], None]) -> None:
        self._asked = self._services.now()
        self._again_at = self._asked + AGAIN_SECONDS
        self._backend.call(request, answered)

    def _subscribed(self, reply: bytes) -> None:
        if not self._backend.is_ready:
            return  # the connection was lost: see _lost
        if not reply.startswith(b"-"):
            self._ask(self._track, self._answered)
            return
        self._settle(reply[1:].decode(errors="replace").strip() + MAY_NOT_SUBSCRIBE)
        # It is one reply off.
        self._backend.reset(f"refuses subscriptions: {self.refused}")

    def _answered(self, reply: bytes) -> None:
        if not self._backend.is_ready:
            return
        self._pinged(reply)
        self._settle(reply[1:].decode(errors="replace").strip() if reply.startswith(b"-") else None)

    def _settle(self, refused: str | None) -> None:
        self.is_settled = True
        self.tells = refused is None
        if refused is not None and refused != self.refused:
            log.warning("tracking_refused", server=self.address, reason=refused)
        self.refused = refused
        self._changed()

    def _lost(self, reason: str) -> None:
        self.tells = False
        self.is_settled = True
        self._changed()

    def _pinged(self, reply: bytes) -> None:
        if self._asked is not None:
            # Not when it is read: until then a worker that stands still may miss what is told.
            self._heard, self._asked = self._asked, None

    def tick(self) -> None:
        """Check the limits of time; called a few times a second."""
        backend, now = self._backend, self._services.now()
        backend.check_time()
        if not backend.is_ready:
            if self.refused is None or now >= self._again_at:
                backend.open()
        elif self._asked is not None:
            if now - self._asked > self._quiet_seconds:
                # Whatever comes meanwhile may be as late as the reply.
                backend.reset(f"did not reply within {self._quiet_seconds:g} s")
        elif not self.tells:
            if now >= self._again_at:
                self._ask(self._track, self._answered)
        elif now - self._heard > self._quiet_seconds:
            self._asked = now
            backend.call(PING, self._pinged)

    @property
    def heard(self) -> float:
        """All changes until then were told: when the server was asked for its last reply; 0 if it does not tell."""
        return self._heard if self.tells else 0.0

    def ask(self, request: bytes, heard: Callable[[bytes], None]) -> None:
        """Send a request over this connection, in the order of what the server tells; ``heard`` gets the reply, or an
        error at once. Nothing is sent before the server has been asked to track."""
        if self._backend.is_ready:
            self._backend.call(request, heard)
        else:
            heard(replies.error(f"ERR server {self.address} is not connected to"))

    def take_identity(self) -> None:
        """Reconnect if the proxy has taken a new identity."""
        if self._services.options.instance != self._instance:
            self._instance = self._services.options.instance
            self._backend.reset("was left: this proxy takes a new identity")

    def close(self, reason: str) -> None:
        """End the connection."""
        self._backend.on_down = None
        self._backend.close(reason)
