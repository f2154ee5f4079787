"""The connection by which a worker is subscribed at one server.

When it comes up, it subscribes to all names that are wanted then; later changes are written as they come. A server runs
a connection's requests in order. So the reply to a request that follows a change says two things: the change was made,
and every message published there before has arrived. That request is HELLO, because a server answers it in any state,
even while it loads its data or runs a script for too long.

**bounded**: nobody waits for a server that cannot be connected to. For a server that does not answer, the wait ends
after ``reply_seconds``, and the sessions go on without it. It is connected to again as soon as possible, and all
subscriptions are made again. Messages published at the server meanwhile are lost, as for a client of Redis that lost
its connection.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

import structlog

from proxy.commands.pubsub import messages
from proxy.commands.pubsub.messages import Kind, Message
from proxy.engine.backend import Backend, command
from proxy.engine.requests import Loop
from proxy.servers.backends import BackendOptions
from proxy.settings import ProxySettings
from slots.backoff import Backoff

log = structlog.get_logger()

MARK = command(("HELLO",))
KNOWS_SHARDS = command(("COMMAND", "INFO", "SSUBSCRIBE"))
UNKNOWN = (b"*1\r\n_", b"*1\r\n*-1", b"*1\r\n$-1")
"""A server's error for a command that it does not have."""
HURRY_SECONDS = 1.0
"""How often a server that others have reached is tried before its time."""

Names = Mapping[Kind, Collection[bytes]]
Callback = Callable[[], None]


class Subscriber:
    """A worker's subscriptions at one server.

    Args:
        loop, address, options, settings: of the connection.
        wanted: gives all names to subscribe to, and the number of the latest mark.
        received: gets every message.
        leave_former: leaves the servers that this one replaces, and calls back.
    """

    def __init__(
        self,
        loop: Loop,
        address: str,
        options: BackendOptions,
        settings: ProxySettings,
        wanted: Callable[[], tuple[Names, int]],
        received: Callable[["Subscriber", Message], None],
        leave_former: Callable[[Callback], None],
    ) -> None:
        self.address = address
        self._loop = loop
        self._wanted = wanted
        self._received = received
        self._leave_former = leave_former
        self._backend = backend = Backend(loop, address, 0, 3, options, settings.backend_reply_seconds)
        backend.on_ready = self._connected
        backend.on_down = self._disconnected
        backend.on_push = self._pushed
        self._limit = settings.backend_connect_seconds + settings.backend_reply_seconds
        self._quiet_seconds = settings.backend_reply_seconds
        self._heard = loop.now
        # All wanted names have been written on this connection.
        self._subscribed = False
        # ... and the server has confirmed them.
        self.is_up = False
        self.mark = 0
        """The latest mark of :mod:`proxy.commands.pubsub.subscriptions` that the server has answered."""
        # The last attempt to connect failed: there is nothing to wait for.
        self.is_failing = False
        self._backoff = Backoff(settings.backend_retry_seconds_min, settings.backend_retry_seconds_max)
        self._shards = True
        self._leaving = False
        self._not_before = 0.0
        self._hurry_at = 0.0
        self._waiting: dict[int, tuple[float, Callback]] = {}
        self._last = 0
        backend.open()

    # -- the requests of others ----------------------------------------------------------------------------

    def write(self, kind: Kind, requests: bytes) -> None:
        """Subscribe to names of a kind, or unsubscribe from them. If the connection is down, it does so when it is
        up."""
        if self._subscribed and (self._shards or kind is not Kind.SHARD):
            self._backend.write(requests)

    def sync(self, callback: Callback, limit: float | None = None) -> None:
        """Call back once the server has handled all earlier requests, or cannot be waited for (**bounded**).

        Args:
            callback: called once.
            limit: the most seconds to wait; by default, as long as connecting and a reply may take.
        """
        self._last += 1
        self._waiting[self._last] = (self._loop.now + (self._limit if limit is None else limit), callback)
        if self._subscribed and self._backend.is_ready:
            self._ask(self._last)
        elif self.is_failing:
            self._finish(self._last)

    def leave(self) -> None:
        """Do not reconnect."""
        self._leaving = True
        if not self._backend.is_ready:
            self._fail()

    def reset(self, reason: str) -> None:
        """End the connection, and reconnect."""
        self._backend.reset(reason)

    def close(self, reason: str) -> None:
        """End the connection; waiting sessions go on."""
        self._leaving = True
        self._backend.close(reason)
        self._fail()

    def tick(self, reachable: bool) -> None:
        """Check the limits of time; called a few times a second. ``reachable``: other connections have reached the
        server."""
        backend = self._backend
        now = self._loop.now
        backend.check_time()
        for number in [number for number, (deadline, _) in self._waiting.items() if now > deadline]:
            log.warning("subscription_unconfirmed", server=self.address, reason=backend.failure or "no reply")
            self._finish(number)
        if backend.is_ready:
            # If the other end has gone without a word, the missing reply shows it.
            if self._subscribed and not backend.queued and now - self._heard > self._quiet_seconds:
                self._ask(0)
        elif not self._leaving and now >= self._not_before:
            if reachable and now >= self._hurry_at:
                self._hurry_at = now + HURRY_SECONDS
                backend.reset(backend.failure or "is tried again")
            backend.open()

    # -- the connection ------------------------------------------------------------------------------------

    def _connected(self) -> None:
        self._heard = self._loop.now
        self._backend.call(KNOWS_SHARDS, self._begin)

    def _begin(self, reply: bytes) -> None:
        if not self._backend.is_ready:
            return
        # SSUBSCRIBE came with Redis 7. At a server without it, nothing is published to shard channels.
        self._shards = not reply.startswith(UNKNOWN)
        self._leave_former(self._subscribe)

    def _subscribe(self) -> None:
        if self._subscribed or not self._backend.is_ready:
            return
        self._subscribed = True
        # Messages on this connection are published later than all requests up to now.
        wanted, self.mark = self._wanted()
        for kind, names in wanted.items():
            for request in messages.requests(kind.joining, names):
                self.write(kind, request)
        self._ask(self._last, initial=True)

    def _ask(self, number: int, initial: bool = False) -> None:
        self._backend.call(MARK, partial(self._answered, number, initial))

    def _answered(self, number: int, initial: bool, reply: bytes) -> None:
        self._heard = self._loop.now
        if not self._backend.is_ready:
            # The connection was lost. The next one answers, or the failure to open it does.
            return
        if reply.startswith(b"-"):
            # HELLO is never refused: this is the reply to a change before it, and the connection is one reply off.
            self._refused(reply)
            return
        if initial:
            self.is_up = True
            self.is_failing = False
            self._backoff.reset()
            for waiting in [waiting for waiting in self._waiting if waiting <= number]:
                self._finish(waiting)
        else:
            self._finish(number)

    def _refused(self, reply: bytes) -> None:
        reason = reply[1:].decode(errors="replace").strip()
        log.warning("subscription_refused", server=self.address, reason=reason)
        self._not_before = self._loop.now + self._backoff.next()
        self.is_failing = True
        self._backend.reset(f"refuses subscriptions: {reason}")

    def _disconnected(self, reason: str) -> None:
        had_connected = self._subscribed
        self._subscribed = self.is_up = False
        if had_connected and not self.is_failing and not self._leaving:
            if any(self._wanted()[0].values()):
                log.warning("subscriptions_lost", server=self.address, reason=reason)
            # The next connection answers the waiting sessions; it is tried at the next tick.
            return
        self._fail()

    def _fail(self) -> None:
        self.is_failing = True
        for number in list(self._waiting):
            self._finish(number)

    def _finish(self, number: int) -> None:
        deadline_and_callback = self._waiting.pop(number, None)
        if deadline_and_callback is not None:
            deadline_and_callback[1]()

    def _pushed(self, push: bytes) -> None:
        self._heard = self._loop.now
        message = messages.read(push)
        if message is not None:
            message.mark = self.mark
            self._received(self, message)
