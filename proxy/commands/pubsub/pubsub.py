"""Pub/sub: the subscriptions of each session, and their confirmations in Redis's form.

PUBLISH and SPUBLISH are not here: they are routed to the owner of the channel's slot. With ``publish_counts_clients``,
:mod:`proxy.commands.pubsub.receivers` sends them there.

A subscription is confirmed when the servers have it (see :mod:`proxy.commands.pubsub.subscriptions`). Meanwhile the
session may subscribe and unsubscribe more. So all subscriptions that a client sends at once are at the servers after
one round trip. Any other request waits for the confirmation, so a message that the session then publishes also reaches
itself. **in-order**: subscribing and unsubscribing wait until everything else owed to the session has been answered. A
name that was left and joined again is not left once more before the first leaving is confirmed. **bounded**:
``session_max_subscriptions`` and ``max_subscriptions``. A name that a session leaves counts until that is confirmed. If
there is no room because of that, the next subscription waits.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.keyspace.listedkeys import joined
from proxy.commands.pubsub import counts
from proxy.commands.pubsub.messages import Kind
from proxy.commands.pubsub.receivers import ODD, Receivers, numbers_in, question
from proxy.commands.pubsub.subscriptions import Subscriptions, cost, push_in_turn
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.engine.backend import command
from proxy.engine.keylist import HERE
from proxy.engine.outcomes import AFTER_OWED, ANY_SERVER, NO_REPLY, SUBSCRIBED, Later, Outcome
from proxy.engine.refusals import NO_SERVER, OWN_KEYS
from proxy.engine.session import Session
from slots.prefixes import without
from slots.reserved import RESERVED
from slots.table import SlotTable

CONFIRMING = 16
"""Bit of a session's ``attention``: it waits for confirmations, and goes on only with more requests of that kind."""
NAMES_ASKED = 100
"""How many channels' numbers a server is asked for at once."""
CONFIRMED = frozenset(word.upper().encode() for kind in Kind for word in (kind.joining, kind.leaving))
"""The commands that have confirmations."""


class Subscription:
    """The subscriptions of one session, in the order in which it made them."""

    __slots__ = ("cost", "names", "unconfirmed")

    def __init__(self) -> None:
        self.names: dict[Kind, dict[bytes, None]] = {kind: {} for kind in Kind}
        """These include unconfirmed subscriptions, and exclude those whose end is not yet confirmed."""
        self.cost = 0
        self.unconfirmed = 0
        """Requests whose confirmations are owed."""

    def count(self, kind: Kind) -> int:
        """The count in a confirmation: channels and patterns together, or shard channels."""
        if kind is Kind.SHARD:
            return len(self.names[kind])
        return len(self.names[Kind.CHANNEL]) + len(self.names[Kind.PATTERN])

    def __bool__(self) -> bool:
        return any(self.names.values())


NOTHING = Subscription()


def subscription_of(session: Session) -> Subscription:
    """The subscriptions of a session; do not change the result."""
    subscription: Subscription | None = session.state.subscription if session.state is not None else None
    return NOTHING if subscription is None else subscription


def mark(session: Session) -> None:
    """Limit a RESP2 session with subscriptions to the commands that it may still use. Call it when the protocol
    changes, too."""
    if session.protocol == 2 and subscription_of(session):
        session.attention |= SUBSCRIBED
    else:
        session.attention &= ~SUBSCRIBED


def ping(argv: list[bytes]) -> bytes:
    """PING of a RESP2 session with subscriptions."""
    return replies.array([replies.bulk(b"pong"), replies.bulk(argv[1] if len(argv) > 1 else b"")])


def confirmation(protocol: int, word: str, name: bytes | None, count: int, hides: bytes = b"") -> bytes:
    """The confirmation for one channel or pattern; for none, if a session leaves all and has none. ``hides``: the
    prefix that is taken off its name."""
    shown = replies.null(protocol) if name is None else replies.bulk(without(hides, name))
    return (b">3\r\n" if protocol == 3 else b"*3\r\n") + replies.bulk(word) + shown + replies.integer(count)


class PubSubCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        versions: knows servers whose messages would not arrive.
    """

    def __init__(self, services: Services, versions: ServerVersions) -> None:
        self._services = services
        self._versions = versions
        self._settings = services.settings
        self._router = services.router
        self._hub = Subscriptions(services)
        self._cost = 0

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        found: dict[str, Handler] = {
            # A server has the channels of all workers of all proxies, and of its own clients.
            "PUBSUB|CHANNELS": self.channels,
            "PUBSUB|SHARDCHANNELS": self.channels,
            "PUBSUB|NUMPAT": self.any_server,
            "PUBSUB|NUMSUB": self.numbers,
            "PUBSUB|SHARDNUMSUB": self.numbers,
        }
        if self._settings.publish_counts_clients:
            found |= dict.fromkeys(("PUBLISH", "SPUBLISH"), Receivers(self._services).publish)
        for kind in Kind:
            found[kind.joining.upper()] = partial(self.subscribe, kind)
            found[kind.leaving.upper()] = partial(self.unsubscribe, kind)
        return found

    # -- subscribing ---------------------------------------------------------------------------------------

    def subscribe(self, kind: Kind, session: Session, argv: list[bytes]) -> Outcome:
        """SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE name [name ...]."""
        if self._versions.old:
            return replies.error(
                f"ERR {kind.joining.upper()} needs Redis 6 or newer at every server, for messages published at "
                f"{self._versions.old[0]} would not arrive"
            )
        if any(name.startswith(RESERVED) for name in argv[1:]):
            return OWN_KEYS
        if _owes_else(session):
            return AFTER_OWED
        state = state_of(session)
        if state.subscription is None:
            state.subscription = Subscription()
        subscription: Subscription = state.subscription
        mine = subscription.names[kind]
        new = {name: cost(name) for name in argv[1:] if name not in mine}
        price = sum(new.values())
        problem = self._too_many(subscription, price)
        if problem is not None:
            return AFTER_OWED if session.attention & CONFIRMING else problem
        confirmed = []
        for name in argv[1:]:
            mine[name] = None
            confirmed.append(
                confirmation(session.protocol, kind.joining, name, subscription.count(kind), session.hides)
            )
        if not new:
            return _give(session, b"".join(confirmed))
        self._charge(subscription, price)
        mark(session)
        reached = self._hub.join(session, kind, new)

        def confirm() -> bytes:
            self._hub.joined(session, kind, new)
            return b"".join(confirmed)

        return self._later(session, subscription, reached, confirm)

    def _too_many(self, subscription: Subscription, price: int) -> bytes | None:
        settings = self._settings
        if price and subscription.cost + price > settings.session_max_subscriptions:
            limit, name, whose = settings.session_max_subscriptions, "session_max_subscriptions", "a session"
        elif price and self._cost + price > settings.max_subscriptions:
            limit, name, whose = settings.max_subscriptions, "max_subscriptions", "a worker of the proxy"
        else:
            return None
        return replies.error(f"ERR max number of subscriptions reached: {limit} for {whose} (setting {name})")

    def _charge(self, subscription: Subscription, price: int) -> None:
        subscription.cost += price
        self._cost += price

    # -- unsubscribing -------------------------------------------------------------------------------------

    def unsubscribe(self, kind: Kind, session: Session, argv: list[bytes]) -> Outcome:
        """UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE [name ...]; without names, leave all."""
        subscription = subscription_of(session)
        mine = subscription.names[kind]
        names: list[bytes | None] = list(argv[1:] or mine) or [None]
        if _owes_else(session) or self._is_joining_again(session, kind, argv[1:] or mine):
            return AFTER_OWED
        leaving: list[bytes] = []
        count = subscription.count(kind)
        confirmed = []
        for name in names:
            if name is not None and name in mine:
                del mine[name]
                leaving.append(name)
                count -= 1
            confirmed.append(confirmation(session.protocol, kind.leaving, name, count, session.hides))
        if not leaving:
            return _give(session, b"".join(confirmed))
        mark(session)
        # Messages published before are delivered before the confirmation.
        reached = self._hub.leave(session, kind, leaving)

        def confirm() -> bytes:
            self._charge(subscription, -sum(map(cost, leaving)))
            return self._hub.left(session, kind, leaving) + b"".join(confirmed)

        return self._later(session, subscription, reached, confirm)

    # -- confirming ----------------------------------------------------------------------------------------

    def _is_joining_again(self, session: Session, kind: Kind, names: Collection[bytes]) -> bool:
        confirming = bool(session.attention & CONFIRMING)
        return confirming and any(self._hub.is_joining_again(session, kind, name) for name in names)

    def _later(
        self,
        session: Session,
        subscription: Subscription,
        reached: "asyncio.Future[None]",
        confirm: Callable[[], bytes],
    ) -> Outcome:
        """Confirm once the servers are done, and let the session go on with more requests of that kind."""
        subscription.unconfirmed += 1
        session.attention |= CONFIRMING
        return Later(self._confirm(session, subscription, reached, confirm))

    async def _confirm(
        self,
        session: Session,
        subscription: Subscription,
        reached: "asyncio.Future[None]",
        confirm: Callable[[], bytes],
    ) -> bytes:
        try:
            # Other sessions wait for the same.
            await asyncio.shield(reached)
        finally:
            confirmed = confirm()
            subscription.unconfirmed -= 1
            if not subscription.unconfirmed:
                session.attention &= ~CONFIRMING
                self._hub.confirmed(session)
        return confirmed

    def session_closed(self, session: Session) -> None:
        """The session is gone, or RESET makes it a new one."""
        state = session.state
        if state is None or state.subscription is None:
            return
        subscription: Subscription = state.subscription
        state.subscription = None
        for kind, names in subscription.names.items():
            if names:
                self._charge(subscription, -sum(map(cost, names)))
                self._hub.forget(session, kind, names)
        session.attention &= ~SUBSCRIBED

    # -- PUBSUB --------------------------------------------------------------------------------------------

    def any_server(self, session: Session, argv: list[bytes]) -> Outcome:
        """A question that any server can answer, because every worker is subscribed at all of them."""
        return ANY_SERVER

    async def channels(self, session: Session, argv: list[bytes]) -> Outcome:
        """PUBSUB CHANNELS or SHARDCHANNELS [pattern]: any server's, without Slotferry's own."""
        found = await self._ask(command(tuple(argv)))
        if not found.startswith(b"*"):
            return found
        return await joined(self._router, 0, [(found, bytes([HERE]) * self._router.number_of_slots)], session.hides)

    async def numbers(self, session: Session, argv: list[bytes]) -> Outcome:
        """PUBSUB NUMSUB or SHARDNUMSUB [channel ...]: the clients of all proxies, from any server."""
        kind = Kind.SHARD if argv[1].upper() == b"SHARDNUMSUB" else Kind.CHANNEL
        names = argv[2:]
        items = []
        for start in range(0, len(names), NAMES_ASKED):
            some = names[start : start + NAMES_ASKED]
            reply = await self._ask(question(kind, some))
            numbers = numbers_in(reply, some)
            if numbers is None:
                return reply if reply.startswith(b"-") else ODD
            for name, of_name in zip(some, numbers, strict=True):
                items += [replies.bulk(without(session.hides, name)), replies.integer(counts.clients(of_name))]
        return replies.array(items)

    async def _ask(self, request: bytes) -> bytes:
        """Any server's reply to a question about subscriptions."""
        address = self._router.any_address()
        return NO_SERVER if address is None else await self._router.shared_backend(address).ask(request)

    # -- what the family is told ---------------------------------------------------------------------------

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        self._hub.table_applied(table)

    def slots_leaving(self, slots: Collection[int]) -> None:
        """Slots were locked, or go to another server."""
        self._hub.slots_leaving(slots)

    def tick(self) -> None:
        """Called ten times a second."""
        self._hub.tick()

    async def close(self) -> None:
        """The worker ends."""
        self._hub.close()


def _owes_else(session: Session) -> bool:
    """Whether a session is owed anything other than confirmations."""
    return bool(session.owed) and not session.attention & CONFIRMING


def _give(session: Session, confirmed: bytes) -> Outcome:
    if not session.muted:
        return confirmed
    # CLIENT REPLY OFF and SKIP do not suppress a confirmation, which is a push.
    push_in_turn(session, confirmed)
    return NO_REPLY
