"""A worker's connections for subscriptions: one to every master in the slot table.

They are opened with the first table and kept, whether anybody subscribes or not: one for each worker and master, idle
but for a HELLO now and then. Opened for the first subscriber, they would cost it a connection and three round trips at
each server, and whoever publishes without waiting for the confirmation would be too early all that time.
"""

from collections.abc import Callable
from functools import partial

from proxy.messages import Kind, Message
from proxy.slowpath.services import Services
from proxy.subscriber import Names, Subscriber
from slots.table import SlotTable


class Subscribers:
    """The connections of one worker.

    Args:
        services: the worker's parts.
        wanted: gives everything that is to be subscribed to, and the number of the latest mark.
        received: gets every message.
    """

    def __init__(
        self,
        services: Services,
        wanted: Callable[[], tuple[Names, int]],
        received: Callable[[Subscriber, Message], None],
    ) -> None:
        self._services = services
        self._wanted = wanted
        self._received = received
        self._instance = services.options.instance
        self._open: dict[str, Subscriber] = {}
        # To masters of before, until what was published there has arrived.
        self._retiring: set[Subscriber] = set()

    def at(self, address: str) -> Subscriber:
        """The connection to a master in the table."""
        return self._open[address]

    def follow(self, table: SlotTable) -> None:
        """Have a connection to every master in the table, and to no other."""
        instance = self._services.options.instance
        if instance != self._instance:
            self._instance = instance
            for subscriber in (*self._open.values(), *self._retiring):
                subscriber.reset("was left: this proxy takes a new identity")
        masters = {group.master for group in table.groups.values() if group.master is not None}
        for address in masters - self._open.keys():
            self._open[address] = Subscriber(
                self._services.router.loop,
                address,
                self._services.options,
                self._services.settings,
                self._wanted,
                self._received,
            )
        for address in self._open.keys() - masters:
            self._retire(self._open.pop(address))
        for subscriber in [subscriber for subscriber in self._retiring if subscriber.address in masters]:
            # It is back before it was left. One connection there is enough: two would get each message twice.
            self._end(subscriber)

    def _retire(self, subscriber: Subscriber) -> None:
        """Leave a server, once those in its place are subscribed at and what was published there has arrived."""
        subscriber.leave()
        self._retiring.add(subscriber)
        self.sync(lambda: subscriber.sync(lambda: self._end(subscriber)))

    def _end(self, subscriber: Subscriber) -> None:
        if subscriber in self._retiring:
            self._retiring.discard(subscriber)
            subscriber.close("is no master in the slot table any more")

    def write(self, kind: Kind, requests: bytes) -> None:
        """Send requests to subscribe to names of a kind, or to unsubscribe from them, to every master."""
        for subscriber in self._open.values():
            subscriber.write(kind, requests)

    def sync(self, callback: Callable[[], None], mark: int = 0) -> None:
        """Call back once every master that is up has done all that was asked of it.

        Args:
            callback: called once.
            mark: a mark of :mod:`proxy.subscriptions` that is answered by this, at each master on its own.
        """
        subscribers = list(self._open.values())
        left = len(subscribers)
        if not left:
            callback()

        def answered(subscriber: Subscriber) -> None:
            nonlocal left
            left -= 1
            subscriber.mark = max(subscriber.mark, mark)
            if not left:
                callback()

        for subscriber in subscribers:
            subscriber.sync(partial(answered, subscriber))

    def sync_one(self, address: str, callback: Callable[[], None]) -> None:
        """Call back once one server has done all that was asked of it; at once if it is no master."""
        subscriber = self._open.get(address)
        if subscriber is None:
            callback()
        else:
            subscriber.sync(callback)

    def tick(self) -> None:
        """See to time; called a few times a second."""
        subscribers = [*self._open.values(), *self._retiring]
        reached: set[str] = set()
        if any(subscriber.is_failing for subscriber in subscribers):
            reached = {backend.address for backend in self._services.router.shared_backends if backend.is_ready}
        for subscriber in subscribers:
            subscriber.tick(subscriber.address in reached)

    def close(self) -> None:
        """End all connections."""
        for subscriber in (*self._open.values(), *self._retiring):
            subscriber.close("is left: the worker ends")
        self._open.clear()
        self._retiring.clear()
