"""MULTI, EXEC, DISCARD, WATCH and UNWATCH.

The commands between MULTI and EXEC are kept in the proxy (:mod:`proxy.commands.transactions.queueing`) and sent with
EXEC in one piece. So no other request comes in between, on a connection that all sessions share. With a watch, the
transaction uses the connection that watches (:mod:`proxy.commands.transactions.watching`).

**absent-first**: EXEC waits until every key of the transaction is absent from its slot's source. If an EXEC cannot be
sent (its slot is locked for too long, a key does not move), it ends its transaction with that error; nothing has run.
The same holds for an EXEC that may touch unnamed keys while its slot moves (:mod:`proxy.commands.scripting.unnamed`).

A transaction that uses another database than its first one goes alone: after all owed replies, and before all later
requests (:mod:`proxy.commands.databases.elsewhere`). It is not run while its slot moves. Once it has run, the session
is in the database that it ends in.
"""

import re
from functools import partial
from typing import Protocol

from proxy.commands import replies
from proxy.commands.databases import elsewhere
from proxy.commands.family import Decided, Family, Handler
from proxy.commands.scripting import unnamed
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.commands.transactions.queueing import QueueError, Transaction
from proxy.commands.transactions.watching import Watching
from proxy.engine.backend import Backend
from proxy.engine.outcomes import IN_TRANSACTION, Channel, Outcome, Unit, Way, clear, nothing_owed, settled
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots.commands import CodeRequests, Command

QUEUED = b"+QUEUED\r\n"
ABORTED = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
NOTHING_DONE = b"*0\r\n"
RULES_CHANGED = b"-EXECABORT Transaction discarded because the product's slot rules have changed since MULTI\r\n"
HEADER = re.compile(rb"\*([0-9]+)\r\n")
"""The beginning of the reply to an EXEC that has run."""


class Permissions(Protocol):
    """The part of the authentication family that transactions need."""

    def select_refusal(self, session: Session, database: int) -> bytes | None:
        """The error for a database that the session's user may not use; None if it may."""

    def enter(self, session: Session, database: int) -> None:
        """Have a session use another database, which its user may use."""


class Scripts(Protocol):
    """The part of the scripts' family that transactions need, so that EVALSHA finds its script within one."""

    async def look_for(self, requests: CodeRequests) -> None:
        """Ask the other workers for the scripts that ``requests`` name."""

    def refusal(self, requests: CodeRequests) -> bytes | None:
        """Why ``requests`` cannot be run while their slot moves; None if they can."""

    def preload(self, session: Session, address: str, requests: CodeRequests) -> tuple[bytes, int]:
        """The requests to send to a server before ``requests``, and how many replies they have."""


class TransactionCommands(Family):
    """The family's handlers, and the queue for the commands between MULTI and EXEC.

    Args:
        services: the worker's parts.
        permissions: which databases a session may use.
        scripts: the scripts' family.
    """

    def __init__(self, services: Services, permissions: Permissions, scripts: Scripts | None = None) -> None:
        self._router = services.router
        self._databases = services.databases
        self._permissions = permissions
        self._limit = services.settings.session_max_request_bytes
        self._scripts = scripts
        self._watching = Watching(services)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "MULTI": self.multi,
            "EXEC": self.exec,
            "DISCARD": self.discard,
            "WATCH": self.watch,
            "UNWATCH": self.unwatch,
        }

    def session_closed(self, session: Session) -> None:
        """A session was closed or reset."""
        self._end(session)

    def tick(self) -> None:
        """End watches whose time is over."""
        self._watching.tick()

    # -- between MULTI and EXEC ----------------------------------------------------------------------------

    def is_open(self, session: Session) -> bool:
        """Whether the session's next requests belong to its transaction."""
        return self._transaction(session) is not None

    def queue(self, session: Session, command: Command, argv: list[bytes]) -> Outcome:
        """Keep a command for EXEC. Only for a session whose transaction is open."""
        transaction: Transaction = state_of(session).transaction
        try:
            transaction.add(command, argv)
        except QueueError as error:
            return replies.error(str(error))
        finally:
            # bounded, over all sessions together.
            session.count_queued(transaction.size)
        return QUEUED

    def refused(self, session: Session, argv: list[bytes], error: bytes) -> bytes:
        """The reply to a request that was refused before any family saw it: it spoils a transaction."""
        if argv[0].upper() == b"EXEC":
            self._end(session)
            return b"-EXECABORT Transaction discarded because of: " + error.removeprefix(b"-ERR ").removeprefix(b"-")
        transaction = self._transaction(session)
        if transaction is not None:
            transaction.spoil()
            session.count_queued(0)
        return error

    def _transaction(self, session: Session) -> Transaction | None:
        """The session's open transaction."""
        if not session.attention & IN_TRANSACTION:
            return None
        transaction: Transaction = state_of(session).transaction
        return transaction

    def _end(self, session: Session) -> None:
        """End the transaction and the watch."""
        self._close(session)
        self._watching.end(session)

    def _close(self, session: Session) -> None:
        session.attention &= ~IN_TRANSACTION
        session.count_queued(0)
        if session.state is not None:
            session.state.transaction = None

    # -- commands ------------------------------------------------------------------------------------------

    def multi(self, session: Session, argv: list[bytes]) -> Outcome:
        """MULTI."""
        if self._transaction(session) is not None:
            return b"-ERR MULTI calls can not be nested\r\n"
        watch = session.watch
        # A watch that does not hold lets EXEC run nothing, whatever slot it had.
        watched = (watch.slot, watch.key) if watch is not None and watch.holds() else None
        state_of(session).transaction = Transaction(
            self._router.ruling,
            watched,
            self._limit,
            self._router.slot_of_key,
            self._router.slot_of_pattern,
            session.database,
            self._databases,
            partial(self._permissions.select_refusal, session),
        )
        session.attention |= IN_TRANSACTION
        return replies.OK

    def discard(self, session: Session, argv: list[bytes]) -> Outcome:
        """DISCARD."""
        if self._transaction(session) is None:
            return b"-ERR DISCARD without MULTI\r\n"
        self._end(session)
        return replies.OK

    def watch(self, session: Session, argv: list[bytes]) -> Decided:
        """WATCH key [key ...]."""
        if self._transaction(session) is not None:
            return b"-ERR WATCH inside MULTI is not allowed\r\n"
        return self._watching.begin(session, argv)

    def unwatch(self, session: Session, argv: list[bytes]) -> Outcome:
        """UNWATCH, outside of a transaction."""
        self._watching.end(session)
        return replies.OK

    async def exec(self, session: Session, argv: list[bytes]) -> Outcome:
        """EXEC. Whatever comes of it, the transaction and the watch are over."""
        transaction = self._transaction(session)
        if transaction is None:
            return b"-ERR EXEC without MULTI\r\n"
        try:
            return await self._run(session, transaction)
        finally:
            self._end(session)

    async def _run(self, session: Session, transaction: Transaction) -> Outcome:
        watch = session.watch
        if transaction.spoiled:
            return ABORTED
        if watch is None and not transaction.count:
            return NOTHING_DONE
        if watch is not None or transaction.uses_other_databases:
            await nothing_owed()
        if watch is not None and not watch.holds():
            return _changed(session)
        if watch is not None and watch.database != session.database:
            await self._watching.change_database(session, watch)
        if self._scripts is not None and transaction.scripts:
            await self._scripts.look_for(transaction.scripts)

        keys, database = self._way(transaction, watch is not None)
        while True:
            slot, address = await clear(keys, transaction.size, database)
            # If it is not refused, all is done in one step from here on.
            if transaction.ruling != self._router.ruling:
                return RULES_CHANGED
            if watch is not None and not watch.holds():
                return _changed(session)
            refused = self._refusal(transaction, slot)
            if refused is None:
                break
            if refused not in unnamed.WAITED_FOR:
                return refused
            await settled(partial(self._refusal, transaction, slot))
        payload, before = self._unit(transaction, session, address)
        if watch is not None and watch.connection is not None:
            finish = partial(self._executed, transaction, session, watch.connection.backend)
            return await self._watching.run(session, watch, payload, before, finish)
        if not transaction.uses_other_databases and (session.prefix is None or not transaction.named):
            return Unit(slot, address, payload, before)
        backend = self._router.shared(session, address)
        finish = partial(self._executed, transaction, session, backend)
        return await slotrequests.send(self._router, slot, backend, payload, before, finish)

    def _way(self, transaction: Transaction, watched: bool) -> tuple[Way, int]:
        """The keys by which the transaction finds its server, and which have to be there, and their database; without
        keys, a channel."""
        if transaction.keys:
            return list(transaction.keys), transaction.home
        if transaction.elsewhere:
            # owned: a rule may give a key another slot there.
            database, key = next(iter(transaction.elsewhere))
            return [key], database
        # Any server can publish, but this one keeps the order in which a client publishes. A watch has its server.
        channel = transaction.channel if not watched else None
        return Channel(channel) if channel is not None else [], transaction.home

    def _refusal(self, transaction: Transaction, slot: int) -> bytes | None:
        """Why a transaction that touches keys which were not looked for cannot run now (**absent-first**)."""
        if transaction.elsewhere and elsewhere.moves(self._router, slot):
            return elsewhere.MOVES
        if not (transaction.patterns or transaction.scripts):
            return None
        places = [(transaction.home, key) for key in transaction.keys] or list(transaction.elsewhere)
        if not unnamed.moves(self._router, places[0][0] if places else 0, [key for _, key in places[:1]]):
            return None
        if transaction.patterns:
            return unnamed.SORT_REFUSED
        return self._scripts.refusal(transaction.scripts) if self._scripts is not None else None

    def _executed(self, transaction: Transaction, session: Session, backend: Backend, reply: bytes) -> bytes:
        """The client's reply to EXEC. If it has run, the session is in the database that the transaction ended in."""
        reply = self._entered(transaction, session, backend, reply)
        if session.prefix is None or not transaction.named:
            return reply
        number = self._router.loop.statistics.number
        return session.prefix.hide_each(reply, {at: number(name.lower()) for at, name in transaction.named.items()})

    def _entered(self, transaction: Transaction, session: Session, backend: Backend, reply: bytes) -> bytes:
        header = HEADER.match(reply)
        if header is None:
            return reply
        self._permissions.enter(session, transaction.database)
        if not transaction.returns:
            return reply
        if not reply.endswith(replies.OK):
            # The connection's database is not the expected one, so nothing else may use it.
            backend.reset("was left: it is in another database")
            return reply
        return b"*%d\r\n%b" % (int(header[1]) - 1, reply[header.end() : -len(replies.OK)])

    def _unit(self, transaction: Transaction, session: Session, address: str) -> tuple[bytes, int]:
        """The requests to send, and how many replies come before EXEC's."""
        first, replies_first = b"", 0
        if self._scripts is not None and transaction.scripts:
            first, replies_first = self._scripts.preload(session, address, transaction.scripts)
        return first + transaction.payload(), replies_first + 1 + transaction.queued


def _changed(session: Session) -> bytes:
    """The reply to an EXEC whose watched keys may have changed."""
    return b"_\r\n" if session.protocol == 3 else b"*-1\r\n"
