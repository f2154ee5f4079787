"""A worker's subscriptions at the servers: what its clients are subscribed to, subscribed to at every master.

PUBLISH and SPUBLISH go to the owner of the channel's slot, a script or a transaction publishes where it runs, and a
keyspace notification comes from the key's server. So a message is published at exactly one server, but it may be any.
A worker with subscribers has one connection to every master in the slot table, and is subscribed there, once, to
whatever any of its sessions is subscribed to: so each message reaches it once.

When a subscription is confirmed to a client, every master that is up has confirmed it to the worker: no message that
is published later is missed. The same goes for its end: whatever was published before has been delivered.

A master gets a connection when it first stands in the table, before it can own a slot. It may be slow to come up, and
so a worker does not acknowledge a lock before it is subscribed at the target (**drained** waits for it, in
:meth:`Subscriptions.slots_leaving`): nobody publishes at a slot's new master before every worker listens there. What
stays open:

- A server that is down is not waited for. It is subscribed at when it is back; what is published there before is lost.
- The master of a group is replaced without a lock. A message published at the new one before a worker is
  subscribed there is lost, as it is with Redis alone. The old one is left once the new one is subscribed at, so a
  message that the old one replicated in the milliseconds between comes twice.
- Slots that were offline are given to a group without a lock; until then nobody can publish to their channels.

**bounded**: subscriptions are counted by whoever makes them (:func:`cost`); a wait lasts no longer than connecting and
a reply may take.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial

from proxy.engine.session import Session
from proxy.messageorder import MessageOrder
from proxy.messages import Kind, Message
from proxy.slowpath.services import Services
from proxy.subscriber import Subscriber
from slots.table import SlotTable

IDLE_SECONDS = 10.0
"""How long the connections are kept when nobody is subscribed to anything."""
NAME_BYTES = 1024


def cost(name: bytes) -> int:
    """What a subscription counts for: a long name for as many as would take as much memory."""
    return 1 + len(name) // NAME_BYTES


class Topic:
    """A channel or a pattern that somebody is subscribed to, or about to be."""

    __slots__ = ("_listeners", "_order", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """Sessions that are subscribed or about to be, without those about to leave."""
        self._listeners: set[Session] = set()
        self._order: tuple[Session, ...] | None = None

    def add(self, session: Session) -> None:
        """Give it what is published from now on."""
        self._listeners.add(session)
        self._order = None

    def remove(self, session: Session) -> None:
        """Give it nothing more."""
        self._listeners.discard(session)
        self._order = None

    @property
    def listeners(self) -> tuple[Session, ...]:
        """Who gets its messages."""
        if self._order is None:
            self._order = tuple(self._listeners)
        return self._order


class Subscriptions:
    """The subscriptions of one worker.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._topics: dict[Kind, dict[bytes, Topic]] = {kind: {} for kind in Kind}
        self._subscribers: dict[str, Subscriber] = {}
        self._retiring: set[Subscriber] = set()
        # Names that are to be subscribed to (true) or not (false), until the end of this turn of the event loop.
        self._changes: dict[Kind, dict[bytes, bool]] = {kind: {} for kind in Kind}
        self._settled: asyncio.Future[None] | None = None
        self._flushing = False
        self._used = 0.0
        self._order = MessageOrder(self._router.slot_of_key, self._sync, self._deliver)

    # -- sessions ------------------------------------------------------------------------------------------

    def take(self, kind: Kind, names: Iterable[bytes]) -> None:
        """One more session wants these; :meth:`settled` waits until the servers have it."""
        topics = self._topics[kind]
        for name in names:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = Topic()
            topic.wanted += 1
            if topic.wanted == 1:
                self._changes[kind][name] = True
        self._follow(self._services.table())
        self._flush_soon()

    def give_up(self, kind: Kind, names: Iterable[bytes]) -> None:
        """One session less wants these."""
        topics = self._topics[kind]
        for name in names:
            topic = topics[name]
            topic.wanted -= 1
            if topic.wanted == 0:
                self._changes[kind][name] = False
                self._forget(kind, name)
        self._flush_soon()

    def add(self, session: Session, kind: Kind, name: bytes) -> None:
        """Deliver to a session what was taken for it, from now on."""
        self._topics[kind][name].add(session)

    def remove(self, session: Session, kind: Kind, name: bytes) -> None:
        """Deliver to a session no more."""
        topic = self._topics[kind].get(name)
        if topic is not None:
            topic.remove(session)
            self._forget(kind, name)

    def count(self, kind: Kind, name: bytes) -> tuple[int, bool]:
        """How many sessions of this worker are subscribed, and whether the worker is, at the servers."""
        topic = self._topics[kind].get(name)
        return (len(topic.listeners), topic.wanted > 0) if topic is not None else (0, False)

    async def settled(self) -> None:
        """Wait until every master that is up has done all that was asked of it up to now.

        All messages published there before have been delivered by then.
        """
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
        self._flush_soon()
        # Others wait for the same.
        await asyncio.shield(self._settled)

    def _forget(self, kind: Kind, name: bytes) -> None:
        topic = self._topics[kind][name]
        if not topic.wanted and not topic.listeners:
            del self._topics[kind][name]

    # -- servers -------------------------------------------------------------------------------------------

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        self._order.table_applied(table)
        if self._subscribers:
            self._follow(table)

    def slots_leaving(self, slots: Collection[int]) -> None:
        """Slots were locked: hold the lock up until the worker is subscribed at their targets."""
        table = self._services.table()
        if table is None:
            return
        ways: dict[int, tuple[str, str]] = {}
        for slot in slots:
            action = table.slots[slot].action
            if action is not None:
                source, target = table.master_of(table.slots[slot].group_id), table.master_of(action.target_id)
                if source is not None and target is not None:
                    ways[slot] = source, target
        self._order.locked(ways)
        if not self._subscribers:
            return
        self._follow(table)
        for target in {target for _, target in ways.values()}:
            subscriber = self._subscribers[target]
            if not subscriber.is_up and not subscriber.is_failing:
                bound = [slot for slot, (_, to) in ways.items() if to == target]
                # drained: the lock is not acknowledged before these are released.
                for slot in bound:
                    self._router.loop.hold_slot(slot)
                subscriber.sync(partial(self._let_go, bound))

    def _let_go(self, slots: list[int]) -> None:
        for slot in slots:
            self._router.loop.release_slot(slot)

    def tick(self) -> None:
        """See to time; called a few times a second."""
        now = self._services.now()
        if any(self._topics.values()):
            self._used = now
        elif self._subscribers and now - self._used > IDLE_SECONDS:
            self.close("is not needed: nobody is subscribed to anything")
        subscribers = [*self._subscribers.values(), *self._retiring]
        reached: set[str] = set()
        if any(subscriber.is_failing for subscriber in subscribers):
            reached = {backend.address for backend in self._router.shared_backends if backend.is_ready}
        for subscriber in subscribers:
            subscriber.tick(subscriber.address in reached)

    def close(self, reason: str = "is left: the worker ends") -> None:
        """End all connections."""
        for subscriber in (*self._subscribers.values(), *self._retiring):
            subscriber.close(reason)
        self._subscribers.clear()
        self._retiring.clear()

    def _follow(self, table: SlotTable | None) -> None:
        """Have a connection to every master in the table, and to no other."""
        if table is None:
            return
        self._used = self._services.now()
        masters = {group.master for group in table.groups.values() if group.master is not None}
        for address in masters - self._subscribers.keys():
            self._subscribers[address] = Subscriber(
                self._router.loop,
                address,
                self._services.options,
                self._services.settings,
                self._wanted,
                self._received,
            )
        for address in self._subscribers.keys() - masters:
            self._retire(self._subscribers.pop(address))
        for subscriber in [subscriber for subscriber in self._retiring if subscriber.address in masters]:
            # It is back before it was left. One connection there is enough: two would get each message twice.
            self._end(subscriber)

    def _retire(self, subscriber: Subscriber) -> None:
        """Leave a server, once those in its place are subscribed at and what was published there has arrived."""
        subscriber.leave()
        self._retiring.add(subscriber)
        self._sync_all(lambda: subscriber.sync(lambda: self._end(subscriber)))

    def _end(self, subscriber: Subscriber) -> None:
        if subscriber in self._retiring:
            self._retiring.discard(subscriber)
            subscriber.close("is no master in the slot table any more")

    def _wanted(self) -> dict[Kind, list[bytes]]:
        return {kind: [name for name, topic in topics.items() if topic.wanted] for kind, topics in self._topics.items()}

    # -- changes -------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        # Once a turn: a thousand sessions that subscribe together cost one request a server.
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        changes, self._changes = self._changes, {kind: {} for kind in Kind}
        joined = {kind: [name for name, wanted in names.items() if wanted] for kind, names in changes.items()}
        left = {kind: [name for name, wanted in names.items() if not wanted] for kind, names in changes.items()}
        for subscriber in self._subscribers.values():
            subscriber.change(joined, left)
        settled, self._settled = self._settled, None
        if settled is not None:
            self._sync_all(partial(_settle, settled))

    def _sync_all(self, callback: Callable[[], None]) -> None:
        subscribers = list(self._subscribers.values())
        left = len(subscribers)
        if not left:
            callback()

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                callback()

        for subscriber in subscribers:
            subscriber.sync(one_less)

    def _sync(self, address: str, callback: Callable[[], None]) -> None:
        subscriber = self._subscribers.get(address)
        if subscriber is None:
            callback()
        else:
            subscriber.sync(callback)

    # -- messages ------------------------------------------------------------------------------------------

    def _received(self, subscriber: Subscriber, message: Message) -> None:
        self._order.pass_on(subscriber.address, message)

    def _deliver(self, message: Message) -> None:
        topic = self._topics[message.kind].get(message.name)
        if topic is None:
            return
        for session in topic.listeners:
            session.push(message.resp3 if session.protocol == 3 else message.resp2)


def _settle(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
