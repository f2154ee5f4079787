"""The slow path's front door: decides which family answers a command, or what it goes by."""

import asyncio
from collections.abc import Collection, Coroutine
from types import CoroutineType
from typing import Any

from proxy.commands import replies
from proxy.commands.families import Families
from proxy.commands.family import Answer, Decided, Handler, Steps
from proxy.commands.pubsub.pubsub import CONFIRMED, CONFIRMING, mark, ping, subscription_of
from proxy.commands.tracking import reads
from proxy.engine.backend import command as make_request
from proxy.engine.outcomes import (
    AFTER_OWED,
    ANY_SERVER,
    GATED,
    NO_REPLY,
    SUBSCRIBED,
    Channel,
    Outcome,
    Unit,
    clear,
    nothing_owed,
)
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots import commands
from slots.commands import Command, CommandError, KeysError, Multi, Right, Route, UnknownCommandError
from slots.messages.questions import Asked, Question
from slots.prefixes import NAME_STREAMS, NAMING
from slots.table import SlotTable

HTTP = frozenset({b"post", b"host:"})
"""Words at the start of the lines of an HTTP request. As Redis does, the proxy closes the connection: a browser may
have been tricked into sending commands to it.
"""
LOGINS = frozenset({"AUTH", "HELLO", "RESET"})
"""Commands behind which a session may be another user's."""


class SlowPath:
    """Decides on every request that the engine does not decide on by itself.

    Args:
        families: the families of commands.
        router: the worker's.
    """

    def __init__(self, families: Families, router: Router) -> None:
        self._families = families
        self._router = router
        self._handlers: dict[str, Handler] = {}
        self._answers: dict[type[Asked], Answer] = {}
        for family in families.all:
            self._handlers.update(family.handlers())
            self._answers.update(family.answers())
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- requests ------------------------------------------------------------------------------------------

    def handle(self, session: Session, argv: list[bytes]) -> Decided:
        """Decide on a request. The engine calls this in the order of the session's requests."""
        transactions = self._families.transactions
        if argv[0].lower() in HTTP:
            session.close()
            return NO_REPLY
        if session.attention & CONFIRMING and argv[0].upper() not in CONFIRMED:
            return AFTER_OWED
        tracker = session.tracker
        if tracker is not None:
            tracker.begin()
        try:
            command = self._families.learned.find(argv)
            session.last_command = command.name.lower()
            if session.attention & GATED and Right.LOGIN not in command.rights:
                return b"-NOAUTH Authentication required.\r\n"
            refused = self._refusal(session, command, argv)
            if refused is None:
                is_queued = command.multi is not Multi.NOW and transactions.is_open(session)
                if tracker is not None:
                    reads.note(tracker, command, argv, is_queued)
                named = session.prefix is not None and command.name in NAMING
                if is_queued:
                    return transactions.queue(session, command, argv)
                decided = self._run(session, command, argv)
                if named:
                    return self._ask(session, command, argv, decided)
                return self._go_through(session, argv, decided) if isinstance(decided, CoroutineType) else decided
        except UnknownCommandError as error:
            # A client that has not logged in starts nothing at the servers.
            if not session.attention & GATED and self._families.learned.may_know_later(session, argv):
                return self._learn_first(session, argv)
            refused = replies.error(str(error))
        except (CommandError, KeysError) as error:
            refused = replies.error(str(error))
        return transactions.refused(session, argv, refused)

    async def _go_through(self, session: Session, argv: list[bytes], steps: Steps) -> Outcome:
        """The outcome of a handler that may wait. If it gives keys or a channel, the request goes
        to their server."""
        outcome = await self._steps(session, argv, steps)
        if outcome is not ANY_SERVER and not isinstance(outcome, list | Channel):
            return outcome
        slot, address = await clear([] if outcome is ANY_SERVER else outcome)
        return Unit(slot, address, make_request(tuple(argv)))

    async def _steps(self, session: Session, argv: list[bytes], steps: Steps) -> Outcome:
        """The outcome of a handler that may wait, also if it does not understand the request."""
        try:
            return await steps
        except (CommandError, KeysError) as error:
            return self._families.transactions.refused(session, argv, replies.error(str(error)))

    async def _ask(self, session: Session, command: Command, argv: list[bytes], decided: Decided) -> Outcome:
        """The outcome of a request whose reply names keys, for a session that sees no prefix: the engine takes it off
        what is given here."""
        outcome = await self._steps(session, argv, decided) if isinstance(decided, Coroutine) else decided
        if not isinstance(outcome, list):
            return outcome
        name, request = command.name, make_request(tuple(argv))
        if name not in NAME_STREAMS:
            # in-order: a long reply goes to the client as it comes.
            await nothing_owed()
        slot, address = await clear(outcome)
        refused = session.gives_way(address)
        if refused is not None:
            return refused
        backend = self._router.shared(session, address)
        if name in NAME_STREAMS:
            return await slotrequests.send(self._router, slot, backend, request, 0, slotrequests.as_it_came)
        return await slotrequests.pass_on(self._router, slot, backend, request, session, name.lower())

    async def _learn_first(self, session: Session, argv: list[bytes]) -> Outcome:
        """Decide on an unknown command once the servers were asked for it."""
        refused = await self._families.learned.ask_for(argv)
        if refused is not None:
            return self._families.transactions.refused(session, argv, refused)

        async def decided() -> Outcome:
            found = self.handle(session, argv)
            return await found if isinstance(found, Coroutine) else found

        return await self._go_through(session, argv, decided())

    def _refusal(self, session: Session, command: Command, argv: list[bytes]) -> bytes | None:
        """Why this session may not send this request now; None if it may."""
        is_out_of_place = session.attention & SUBSCRIBED and Right.SUBSCRIBED not in command.rights
        try:
            refused = self._families.permissions.refusal(session, command, argv)
        except KeysError:
            # Redis says what is wrong with the keys last.
            if not is_out_of_place:
                raise
            refused = None
        if refused is None and is_out_of_place:
            return replies.error(
                f"ERR Can't execute '{command.name.lower()}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT /"
                " RESET are allowed in this context"
            )
        return refused

    def _run(self, session: Session, command: Command, argv: list[bytes]) -> Decided:
        handler = self._handlers.get(command.name)
        if command.name in LOGINS and session.prefix is not None and session.owed:
            # Another user may have no prefix, and errors that are owed would show it the former one.
            return AFTER_OWED
        if command.name == "RESET" and (session.state is not None or session.watch is not None):
            # All state that families have for this session goes, as if it were closed.
            self.session_closed(session)
        if command.name == "HELLO" and session.owed and (session.tracker is not None or subscription_of(session)):
            # in-order: the form of messages changes with the protocol at once, so no message of the other protocol may
            # come in between.
            return AFTER_OWED
        if handler is not None and subscription_of(session):
            return self._subscribed(session, command, argv, handler)
        if handler is not None:
            return handler(session, argv)
        if command.learned and command.route in (Route.KEYED, Route.MOVABLE, Route.BLOCKING):
            return self._families.learned.run(session, command, argv)
        if command.multi is Multi.CHANNEL:
            return Channel(argv[1])
        if command.route in (Route.KEYED, Route.MOVABLE, Route.SPLIT):
            keys = commands.keys_of(command, argv)
            # A script without keys may run anywhere: it has promised not to touch any.
            return keys if keys else ANY_SERVER
        if command.route is Route.ANY:
            return ANY_SERVER
        return replies.error(commands.refusal(command))

    def _subscribed(self, session: Session, command: Command, argv: list[bytes], handler: Handler) -> Decided:
        """A handler's answer to a session that has a subscription."""
        if command.name == "PING" and session.protocol == 2 and len(argv) <= 2:
            return ping(argv)
        decided = handler(session, argv)
        if isinstance(decided, CoroutineType):
            return _marked(session, decided)
        mark(session)
        return decided

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a reference to a task of the slow path until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take_transaction(self, session: Session, requests: list[list[bytes]]) -> None:
        """Go on with a transaction that the engine has begun and queued ``requests`` for."""
        transactions = self._families.transactions
        transactions.multi(session, [])
        for argv in requests:
            transactions.queue(session, self._families.learned.find(argv), argv)

    # -- what the families are told ----------------------------------------------------------------------

    def answer(self, question: Question) -> Any:
        """The answer to another worker's question."""
        return self._answers[type(question)](question)

    def session_closed(self, session: Session) -> None:
        """A session that has a state or a watch was closed."""
        for family in self._families.all:
            family.session_closed(session)

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        for family in self._families.all:
            family.table_applied(table)

    def slots_leaving(self, slots: Collection[int]) -> None:
        """Slots were locked, or go to another server (**drained**)."""
        for family in self._families.all:
            family.slots_leaving(slots)

    def server_lost(self, address: str) -> None:
        """A shared connection to a server was lost."""
        for family in self._families.all:
            family.server_lost(address)

    def retiring(self, session: Session) -> None:
        """A waiting session has to end."""
        for family in self._families.all:
            family.retiring(session)

    def tick(self) -> None:
        """Called ten times a second."""
        for family in self._families.all:
            family.tick()

    async def close(self) -> None:
        """The worker ends."""
        for family in self._families.all:
            await family.close()


async def _marked(session: Session, steps: Steps) -> Outcome:
    outcome = await steps
    mark(session)
    return outcome
