"""Shares of the limits of users: this proxy's, which topom tells, and those of its workers.

Each second a worker tells what each user that has limits asked for, and the proxy tells topom in its heartbeat. topom
answers with the proxy's share. The proxy shares that out over its workers, by what was asked for at each.

Connections are shared out likewise, by :mod:`slots.connectionshares`, over proxies and over workers.

While topom is away, the last shares hold. A worker that ends leaves its share to the others.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from proxy.settings import ProxySettings
from proxy.supervisor.processes import Worker
from slots.connectionshares import LATE_SECONDS, ConnectionShares, beginning
from slots.limitshares import BEGINNING, shared_out
from slots.messages import channel
from slots.messages.control import News, Registered, Shares
from slots.messages.load import Connections, HeldShare, Share, UserDemand

UNHEARD: Final = Share(BEGINNING, BEGINNING)
NONE: Final = UserDemand(0, 0, 0, 0, 0)
NO_CONNECTIONS: Final = Connections(0, 0, 0, 0, 0)


class LimitShares:
    """The shares (:class:`proxy.supervisor.control.Listener`).

    Args:
        workers: those that live.
        settings: of the proxy.
        given_up: called when a share has become smaller; sends a heartbeat.
    """

    def __init__(
        self, workers: Callable[[], Collection[Worker]], settings: ProxySettings, given_up: Callable[[], None]
    ) -> None:
        self._workers = workers
        self._given_up = given_up
        self._shares: dict[str, Share] = {}  # the proxy's, by user
        self._demands: dict[int, dict[str, UserDemand]] = {}  # by worker
        self._limited: list[str] = []
        self._most: dict[str, int] = {}  # connections of each user who may only have so many
        self._connections: dict[str, int] = {}  # of these the proxy's share, where there is one
        self._at_workers: ConnectionShares[int] = ConnectionShares()
        self._ticks: dict[str, int] = {}  # for which there has been none
        self._use(settings)

    def change(self, settings: ProxySettings) -> None:
        """There are the users of these settings from now on."""
        self._use(settings)
        self.share_out()

    def _use(self, settings: ProxySettings) -> None:
        self._limited = [user.name for user in settings.users if user.has_limits]
        self._shares = {name: self._shares.get(name, UNHEARD) for name in self._limited}
        self._most = {user.name: user.connections for user in settings.users if user.connections is not None}
        self._connections = {name: share for name, share in self._connections.items() if name in self._most}
        self._ticks = {name: self._ticks.get(name, 0) for name in self._most.keys() - self._connections.keys()}

    def take(self, worker: int, limited: dict[str, UserDemand], connections: dict[str, Connections]) -> None:
        """What was asked for at a worker in the last second, and which connections it has."""
        self._demands[worker] = limited
        self._at_workers.take(worker, connections)

    def ended(self, worker: int) -> None:
        """A worker has ended."""
        self._demands.pop(worker, None)
        if self._at_workers.knows(worker):
            self._at_workers.forget(worker)

    def tick(self) -> None:
        """Called each second."""
        if self._workers():
            for name in list(self._ticks):
                self._ticks[name] += 1
                if self._ticks[name] > LATE_SECONDS:
                    del self._ticks[name]
                    self._connections[name] = beginning(self._most[name])
        self.share_out()

    def share_out(self) -> None:
        """Tell each worker its shares. Called each second, and when there is a new one."""
        workers = {worker.index: worker for worker in self._workers()}
        if not (self._limited or self._most) or not workers:
            return
        found: dict[int, dict[str, Share]] = {index: {} for index in workers}
        for name in self._limited:
            demands = {index: self._demand(index, name) for index in workers}
            requests = shared_out({index: one.requests for index, one in demands.items()}, self._shares[name].requests)
            octets = shared_out({index: one.bytes for index, one in demands.items()}, self._shares[name].bytes)
            for index in workers:
                found[index][name] = Share(requests[index], octets[index])
        for index in workers:
            if not self._at_workers.knows(index):
                # It has begun, and has none open. It counts from now on.
                self._at_workers.take(index, dict.fromkeys(self._most, NO_CONNECTIONS))
        for index, shares in found.items():
            connections = self._at_workers.tell(index, self._connections)
            workers[index].send(channel.Shares(shares=shares, connections=connections))

    def _demand(self, worker: int, name: str) -> UserDemand:
        return self._demands.get(worker, {}).get(name, NONE)

    def told(self) -> dict[str, HeldShare]:
        """What a heartbeat says."""
        found = {}
        for name in self._limited:
            demands = [self._demand(worker, name) for worker in self._demands]
            requests, octets = sum(one.requests for one in demands), sum(one.bytes for one in demands)
            found[name] = HeldShare(requests, octets, *self._shares[name])
        return found

    def connections(self) -> dict[str, Connections]:
        """What a heartbeat says of connections."""
        found = {}
        for name, limit in self._most.items():
            opened, wanted, held = self._at_workers.together(name)
            share = self._connections.get(name, 0)
            found[name] = Connections(limit, opened, wanted, share, max(share, held))
        return found

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """topom hears of the shares with the first heartbeat."""

    def heard(self, message: News) -> None:
        """Take the shares that topom tells."""
        if not isinstance(message, Shares):
            return
        before = self._shares
        self._shares = {**before, **{name: share for name, share in message.shares.items() if name in before}}
        for name, connections in message.connections.items():
            if name in self._most:
                self._connections[name] = connections
                self._ticks.pop(name, None)
        self.share_out()
        if any(new.requests < old.requests or new.bytes < old.bytes for old, new in self._pairs(before)):
            # Others may have it once topom has heard that it is given up.
            self._given_up()

    def _pairs(self, before: dict[str, Share]) -> Iterable[tuple[Share, Share]]:
        return ((share, self._shares[name]) for name, share in before.items())

    def lost(self) -> None:
        """The last shares hold."""
