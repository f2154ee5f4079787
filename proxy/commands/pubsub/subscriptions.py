"""A worker's subscriptions at the servers: each name that a client is subscribed to is subscribed at every master.

PUBLISH and SPUBLISH go to the owner of the channel's slot. That slot is the same under all slot rules, so a change of
rules changes nothing here. A script or a transaction publishes where it runs, and a keyspace notification comes from
the key's server. So a message is published at exactly one server, but it may be any. A worker has one connection to
every master in the slot table. It is subscribed there, once, to each name that any of its sessions is subscribed to. So
each message reaches it once.

When a client gets the confirmation of a subscription, every master that is up has confirmed it to the worker: no
message that is published later is missed. The same holds for its end: all messages published before have been
delivered.

Many clients do not wait for the confirmation. So a subscription counts from the moment it is taken:

- It is written to the servers in that step, before all else that the worker sends in the same turn. A PUBLISH that this
  worker takes later reaches the server later. The system does not promise the order of two connections at the server,
  but they come in that order, as for a client of Redis with two connections.
- Messages that arrive before the confirmation are kept behind it, in the session's own output, and count there
  (**bounded**). A session with more than ``session_output_limit_bytes`` of them is closed, like one that does not read.
- Nor does the end of a subscription wait for the confirmation of its beginning, and one that begins anew does not wait
  for the confirmation of its end: what a client sends behind would come too late to the servers.
- If another session already has the channel, the worker also gets earlier messages. A *mark*, which is a request
  written behind all changes, separates them: a session hears what comes from a server behind the reply to its mark. For
  that, and for messages on their way from elsewhere, such a session also waits for the servers.

Other workers and other proxies do not know of this: a message that they publish before this worker has read the
SUBSCRIBE is not heard.

A master gets a connection when it first appears in the table, before it can own a slot. It may be slow to come up. So a
worker does not acknowledge a lock before it is subscribed at the target (**drained** waits for it, in
:meth:`Subscriptions.slots_leaving`): nothing is published at a slot's new master before every worker listens there.
Three cases stay open:

- A server that is down is not waited for. It is subscribed at when it is back; messages published there before are
  lost.
- The master of a group may be replaced without a lock. A message published at the new one before a worker is subscribed
  there is lost, as with Redis alone. None comes twice, whichever of the two masters replicates it to the other: see
  :mod:`proxy.commands.pubsub.subscribers`.
- Offline slots are given to a group without a lock; until then nobody can publish to their channels.

**bounded**: the code that makes subscriptions counts them (:func:`cost`). A wait lasts no longer than connecting and a
reply may take.
"""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial

from proxy.commands.pubsub import counts, messages
from proxy.commands.pubsub.keyevents import KeyEvents
from proxy.commands.pubsub.messageorder import MessageOrder
from proxy.commands.pubsub.messages import Kind, Message
from proxy.commands.pubsub.subscriber import Subscriber
from proxy.commands.pubsub.subscribers import Subscribers
from proxy.commands.pubsub.topic import Leaving, Topic
from proxy.commands.services import Services
from proxy.engine.delivering import deliver
from proxy.engine.session import Session
from slots.table import SlotTable

NAME_BYTES = 1024
MARKS_AT_ONCE = 16
"""The most marks in one turn of the event loop. A crowd that subscribes together shares one."""


def cost(name: bytes) -> int:
    """The cost of a subscription: a long name counts as several, in proportion to its memory."""
    return 1 + len(name) // NAME_BYTES


class Mark:
    """A point behind some changes, in the requests to the servers.

    Args:
        number: grows from mark to mark.
    """

    __slots__ = ("left", "number", "reached")

    def __init__(self, number: int) -> None:
        self.number = number
        self.left: list[tuple[Kind, bytes]] = []
        """The subscriptions that the servers were told to end before it."""
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once every master that is up has answered it."""


class Subscriptions:
    """The subscriptions of one worker.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._topics: dict[Kind, dict[bytes, Topic]] = {kind: {} for kind in Kind}
        self._servers = Subscribers(services, self._wanted, self._received)
        # Names that more or fewer sessions want than the servers know.
        self._changed: dict[Kind, dict[bytes, None]] = {kind: {} for kind in Kind}
        self._last_mark = 0
        # The mark that is yet to be written.
        self._open: Mark | None = None
        self._flushing = False
        # Marks written in this turn of the event loop.
        self._written = 0
        # Sessions with messages behind a confirmation: in-order, later messages wait, too.
        self._behind: set[Session] = set()
        # Bytes that are kept for sessions that leave before their joining is confirmed.
        self._kept: dict[Session, int] = {}
        self._order = MessageOrder(self._router.channel_slot, self._servers.sync_one, self._deliver)
        self._events = KeyEvents(self._router.home_of_key, self._servers.sync_one, lambda: any(self._topics.values()))

    # -- sessions ------------------------------------------------------------------------------------------

    def join(self, session: Session, kind: Kind, names: Iterable[bytes]) -> "asyncio.Future[None]":
        """One more session is subscribed to these; done when the servers have it, see :meth:`joined`."""
        mark = self._next_mark()
        topics = self._topics[kind]
        new = []
        for name in names:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = Topic()
                # No earlier message could arrive.
                topic.join(session, 0)
            else:
                topic.join(session, mark.number)
            topic.wanted += 1
            if not topic.asked:
                topic.asked = True
                topic.said = 1
                new.append(name)
            elif topic.wanted != topic.said:
                self._changed[kind][name] = None
        self._write(kind.joining, kind, new)
        if kind is Kind.PATTERN:
            self._write(Kind.CHANNEL.joining, Kind.CHANNEL, [counts.ANNOUNCES + name for name in new])
        if self._written < MARKS_AT_ONCE:
            self._written += 1
            self._write_mark()
        self._flush_soon()
        return mark.reached

    def joined(self, session: Session, kind: Kind, names: Iterable[bytes]) -> None:
        """The session's subscriptions are about to be confirmed: from now on, messages may come at once."""
        topics = self._topics[kind]
        for name in names:
            topic = topics.get(name)
            if topic is not None:
                topic.joined(session)

    def leave(self, session: Session, kind: Kind, names: Iterable[bytes]) -> "asyncio.Future[None]":
        """A session leaves these; done when it has all messages published until now, see :meth:`left`."""
        mark = self._next_mark()
        for name in names:
            self._topics[kind][name].leave(session)
            self._give_up(kind, name)
        self._flush_soon()
        return mark.reached

    def left(self, session: Session, kind: Kind, names: Iterable[bytes]) -> bytes:
        """A session that has left these gets no more of their messages, except for those that it is given here."""
        kept: list[bytes] = []
        for name in names:
            topic = self._topics[kind].get(name)
            if topic is not None:
                kept += topic.left(session)
                self._forget(kind, name)
        if kept:
            self._kept[session] -= sum(map(len, kept))
        return b"".join(kept)

    def forget(self, session: Session, kind: Kind, names: Iterable[bytes]) -> None:
        """A session that was subscribed to these is gone."""
        self._next_mark()
        self._behind.discard(session)
        for name in names:
            self._topics[kind][name].remove(session)
            self._give_up(kind, name)
        self._flush_soon()

    def confirmed(self, session: Session) -> None:
        """The session waits for no more confirmations."""
        self._behind.discard(session)
        self._kept.pop(session, None)

    def is_joining_again(self, session: Session, kind: Kind, name: bytes) -> bool:
        """Whether a session has left and joined again, and its leaving is not confirmed yet."""
        topic = self._topics[kind].get(name)
        return topic is not None and session in topic.leaving and session in topic.joining

    def _give_up(self, kind: Kind, name: bytes) -> None:
        topic = self._topics[kind][name]
        topic.wanted -= 1
        self._changed[kind][name] = None

    def _forget(self, kind: Kind, name: bytes) -> None:
        if self._topics[kind][name].is_over:
            del self._topics[kind][name]

    # -- servers -------------------------------------------------------------------------------------------

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        self._order.table_applied(table)
        self._servers.follow(table)
        self._events.table_applied(table)

    def slots_leaving(self, slots: Collection[int]) -> None:
        """Slots were locked: hold the lock until the worker is subscribed at their targets."""
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
        if not any(self._topics.values()):
            return
        self._servers.follow(table)
        for target in {target for _, target in ways.values()}:
            subscriber = self._servers.at(target)
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
        """Check the limits of time; called a few times a second."""
        self._servers.tick()

    def close(self) -> None:
        """End all connections."""
        self._servers.close()

    def _wanted(self) -> tuple[dict[Kind, list[bytes]], int]:
        # Patterns before their digits, which are channels: a message in between counts nobody who does not get it.
        names: dict[Kind, list[bytes]] = {kind: [] for kind in (Kind.PATTERN, Kind.CHANNEL, Kind.SHARD)}
        for kind, topics in self._topics.items():
            for name, topic in topics.items():
                if topic.asked:
                    names[kind].append(name)
                    of, said_by = _said_by(kind, name)
                    names[of] += [said_by] * (of is not kind) + counts.digits(said_by, topic.said)
        return names, self._last_mark

    # -- changes -------------------------------------------------------------------------------------------

    def _next_mark(self) -> Mark:
        """The mark that will follow the present changes."""
        if self._open is None:
            self._last_mark += 1
            self._open = Mark(self._last_mark)
        return self._open

    def _write(self, word: str, kind: Kind, names: Collection[bytes]) -> None:
        if names:
            payload = b"".join(messages.requests(word, names))
            self._servers.write(kind, payload)

    def _write_mark(self) -> None:
        """Write the names to leave, the numbers of sessions that have changed, and the mark behind all changes."""
        mark, self._open = self._open, None
        if mark is None:
            return
        for kind, names in self._changed.items():
            left: dict[Kind, list[bytes]] = {}
            for name in names:
                topic = self._topics[kind].get(name)
                if topic is None or not topic.asked:
                    continue
                if topic.wanted:
                    self._tell(kind, name, topic)
                    continue
                topic.asked = False
                topic.ending += 1
                mark.left.append((kind, name))
                of, said_by = _said_by(kind, name)
                # Digits before what they are of: a message that comes to nobody here counts nobody.
                left.setdefault(of, []).extend((*counts.digits(said_by, topic.said), said_by))
                if of is not kind:
                    left.setdefault(kind, []).append(name)
            names.clear()
            for of, some in left.items():
                self._write(of.leaving, of, some)
        self._servers.sync(partial(self._reach, mark), mark.number)

    def _tell(self, kind: Kind, name: bytes, topic: Topic) -> None:
        """Tell the servers how many sessions are subscribed to a channel or a pattern."""
        of, said_by = _said_by(kind, name)
        joined, left = counts.change(said_by, topic.said, topic.wanted)
        topic.said = topic.wanted
        self._write(of.joining, of, joined)
        self._write(of.leaving, of, left)

    def _reach(self, mark: Mark) -> None:
        for kind, name in mark.left:
            self._topics[kind][name].ending -= 1
            self._forget(kind, name)
        if not mark.reached.done():
            mark.reached.set_result(None)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._written = 0
        self._write_mark()

    # -- messages ------------------------------------------------------------------------------------------

    def _received(self, subscriber: Subscriber, message: Message) -> None:
        if self._events.passes(subscriber.address, message):
            self._order.pass_on(subscriber.address, message)

    def _deliver(self, message: Message) -> None:
        topic = self._topics[message.kind].get(message.name)
        if topic is None:
            return
        if topic.joining or topic.leaving:
            self._deliver_while_changing(topic, message)
        for session in topic.hiding:
            self._deliver_hidden(session, message)
        listeners = topic.listeners
        if self._behind:
            for session in self._behind.intersection(listeners):
                push_in_turn(session, message.resp3 if session.protocol == 3 else message.resp2)
            listeners = tuple(session for session in listeners if session not in self._behind)
        deliver(listeners, message.resp2, message.resp3)

    def _deliver_hidden(self, session: Session, message: Message) -> None:
        data = message.form(session.protocol, session.hides)
        if data and session in self._behind:
            push_in_turn(session, data)
        elif data:
            session.push(data)

    def _deliver_while_changing(self, topic: Topic, message: Message) -> None:
        for session, leaving in topic.leaving.items():
            data = message.form(session.protocol, session.hides)
            if data and message.mark >= leaving.mark and session not in topic.joining:
                self._give_leaving(session, leaving, data)
        for session, mark in topic.joining.items():
            data = message.form(session.protocol, session.hides)
            if data and message.mark >= mark:
                self._behind.add(session)
                push_in_turn(session, data)

    def _give_leaving(self, session: Session, leaving: Leaving, data: bytes) -> None:
        if leaving.kept is None and session not in self._behind:
            session.push(data)
            return
        if leaving.kept is None:
            # in-order: earlier messages of the channel wait, too.
            leaving.kept = []
        if session.closed:
            return
        leaving.kept.append(data)
        self._kept[session] = self._kept.get(session, 0) + len(data)
        if self._kept[session] > self._services.settings.session_output_limit_bytes:
            session.close()


def _said_by(kind: Kind, name: bytes) -> tuple[Kind, bytes]:
    """The channel whose digits say how many sessions are subscribed."""
    return (Kind.CHANNEL, counts.ANNOUNCES + name) if kind is Kind.PATTERN else (kind, name)


def push_in_turn(session: Session, data: bytes) -> None:
    """Give a session a push in its turn, behind the confirmations that it waits for.

    CLIENT REPLY OFF and SKIP do not suppress a push.
    """
    muted, session.muted = session.muted, 0
    session.answer(data)
    session.muted = muted
