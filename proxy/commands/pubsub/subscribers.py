"""A worker's connections for subscriptions: one to every master in the slot table.

They are opened with the first table and kept, even without any subscriber: one for each worker and master, idle except
for a HELLO from time to time. To open them for the first subscriber would cost it a connection and three round trips at
each server. Until then, a publisher that does not wait for the confirmation would be too early.

A group's new master replicates to the former one. A worker that is subscribed at both would get a message twice. So the
former one is left once the new one has been connected to, and only then is the new one subscribed at.
"""

from collections.abc import Callable, Collection
from functools import partial

from proxy.commands.pubsub.messages import Kind, Message
from proxy.commands.pubsub.subscriber import Names, Subscriber
from proxy.commands.services import Services
from slots.table import SlotTable

HANDOVER_SECONDS = 0.5
"""How long a group's new master waits for the last messages of its former one (**bounded**)."""


class Subscribers:
    """The connections of one worker.

    Args:
        services: the worker's parts.
        wanted: gives all names to subscribe to, and the number of the latest mark.
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
        # The groups of the masters that are open.
        self._groups: dict[str, int] = {}
        # Connections to former masters, with their groups, until the messages published there have arrived.
        self._retiring: dict[Subscriber, int] = {}

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
        masters = {group.master: number for number, group in table.groups.items() if group.master is not None}
        for address in masters.keys() - self._open.keys():
            self._open[address] = Subscriber(
                self._services.router.loop,
                address,
                self._services.options,
                self._services.settings,
                self._wanted,
                self._received,
                partial(self._leave_former, masters[address]),
            )
        for address in self._open.keys() - masters.keys():
            self._retire(self._open.pop(address), self._groups[address])
        self._groups = masters
        for subscriber in [subscriber for subscriber in self._retiring if subscriber.address in masters]:
            # It is back before it was left. One connection there is enough: two would get each message twice.
            self._end(subscriber)

    def _retire(self, subscriber: Subscriber, group: int) -> None:
        """Leave a server, once its successors are subscribed at and the messages published there have arrived."""
        subscriber.leave()
        self._retiring[subscriber] = group
        self.sync(partial(subscriber.sync, partial(self._end, subscriber)))

    def _leave_former(self, group: int, callback: Callable[[], None]) -> None:
        """Leave a group's former masters, whose successor has been connected to; then call back."""
        former = [subscriber for subscriber, of in self._retiring.items() if of == group]
        _sync_all(former, self._end, callback, HANDOVER_SECONDS)

    def _end(self, subscriber: Subscriber) -> None:
        if subscriber in self._retiring:
            del self._retiring[subscriber]
            subscriber.close("is no master in the slot table any more")

    def write(self, kind: Kind, requests: bytes) -> None:
        """Send requests to subscribe to names of a kind, or to unsubscribe from them, to every master."""
        for subscriber in self._open.values():
            subscriber.write(kind, requests)

    def sync(self, callback: Callable[[], None], mark: int = 0) -> None:
        """Call back once every master that is up has handled all earlier requests.

        Args:
            callback: called once.
            mark: the mark of :mod:`proxy.commands.pubsub.subscriptions` that this answers, for each master by itself.
        """

        def answered(subscriber: Subscriber) -> None:
            subscriber.mark = max(subscriber.mark, mark)

        _sync_all(list(self._open.values()), answered, callback)

    def sync_one(self, address: str, callback: Callable[[], None]) -> None:
        """Call back once one server has handled all earlier requests; at once if there is no connection to it. A former
        master has one until it is left."""
        former = (subscriber for subscriber in self._retiring if subscriber.address == address)
        subscriber = self._open.get(address) or next(former, None)
        if subscriber is None:
            callback()
        else:
            subscriber.sync(callback)

    def tick(self) -> None:
        """Check the limits of time; called a few times a second."""
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


def _sync_all(
    subscribers: Collection[Subscriber],
    answered: Callable[[Subscriber], None],
    callback: Callable[[], None],
    limit: float | None = None,
) -> None:
    """Have ``answered`` called for each once it has handled all earlier requests, and ``callback`` after the last."""
    left = len(subscribers)
    if not left:
        callback()

    def one_answered(subscriber: Subscriber) -> None:
        nonlocal left
        left -= 1
        answered(subscriber)
        if not left:
            callback()

    for subscriber in subscribers:
        subscriber.sync(partial(one_answered, subscriber), limit)
