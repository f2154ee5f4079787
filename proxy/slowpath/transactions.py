"""MULTI, EXEC, DISCARD, WATCH and UNWATCH.

What stands between MULTI and EXEC is kept here (:mod:`proxy.slowpath.queueing`) and sent with EXEC in one piece, so
nothing comes between on a connection that all sessions share. With a watch it goes over the connection that watches
(:mod:`proxy.slowpath.watching`).

**absent-first**: EXEC waits until every key of the transaction is absent from its slot's source. An EXEC that cannot
be sent (its slot is locked for too long, a key does not move) ends its transaction with that error; nothing has run.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from proxy.engine.session import AFTER_OWED, AGAIN, IN_TRANSACTION, Cleared, Session, Unit, Waiting
from proxy.slowpath import replies
from proxy.slowpath.family import Family, Handler, Outcome
from proxy.slowpath.queueing import QueueError, Transaction
from proxy.slowpath.services import Services
from proxy.slowpath.state import state_of
from proxy.slowpath.watching import Watch, Watching
from slots.commands import Command

QUEUED = b"+QUEUED\r\n"
ABORTED = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
NOTHING_DONE = b"*0\r\n"


class Scripts(Protocol):
    """What is needed of the scripts' family, so that EVALSHA finds its script within a transaction, too."""

    async def look_for(self, requests: Sequence[list[bytes]]) -> None:
        """Ask the other workers for the scripts that ``requests`` name."""

    def preload(self, session: Session, address: str, requests: Sequence[list[bytes]]) -> tuple[bytes, int]:
        """What has to be sent to a server before ``requests``, and how many replies that has."""


class TransactionCommands(Family):
    """The family's handlers, and where the front door leaves what stands between MULTI and EXEC.

    Args:
        services: the worker's parts.
        scripts: the scripts' family.
    """

    def __init__(self, services: Services, scripts: Scripts | None = None) -> None:
        self._router = services.router
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
        """Watches are limited in time."""
        self._watching.tick()

    # -- between MULTI and EXEC ----------------------------------------------------------------------------

    def is_open(self, session: Session) -> bool:
        """Whether what the session sends now is for its transaction."""
        return self._transaction(session) is not None

    def queue(self, session: Session, command: Command, argv: list[bytes]) -> Outcome:
        """Keep a command for EXEC. Only for a session whose transaction is open."""
        transaction: Transaction = state_of(session).transaction
        try:
            transaction.add(command, argv)
        except QueueError as error:
            return replies.error(str(error))
        return QUEUED

    def refused(self, session: Session, argv: list[bytes], error: bytes) -> bytes:
        """The reply to a request that was refused before it was for anybody: it spoils a transaction."""
        if argv[0].upper() == b"EXEC":
            self._end(session)
            return b"-EXECABORT Transaction discarded because of: " + error.removeprefix(b"-ERR ").removeprefix(b"-")
        transaction = self._transaction(session)
        if transaction is not None:
            transaction.spoil()
        return error

    def _transaction(self, session: Session) -> Transaction | None:
        """The session's transaction, unless its EXEC was answered with an error without having been sent."""
        if not session.attention & IN_TRANSACTION:
            return None
        transaction: Transaction = state_of(session).transaction
        if transaction.executing:
            self._end(session)
            return None
        return transaction

    def _end(self, session: Session) -> None:
        """Neither transaction nor watch any more."""
        self._close(session)
        self._watching.end(session)

    def _close(self, session: Session) -> None:
        session.attention &= ~IN_TRANSACTION
        if session.state is not None:
            session.state.transaction = None

    # -- commands ------------------------------------------------------------------------------------------

    def multi(self, session: Session, argv: list[bytes]) -> Outcome:
        """MULTI."""
        if self._transaction(session) is not None:
            return b"-ERR MULTI calls can not be nested\r\n"
        watch = self._watching.of(session)
        slot = watch.slot if watch is not None else None
        state_of(session).transaction = Transaction(slot, self._limit, self._router.slot_of_key)
        session.attention |= IN_TRANSACTION
        return replies.OK

    def discard(self, session: Session, argv: list[bytes]) -> Outcome:
        """DISCARD."""
        if self._transaction(session) is None:
            return b"-ERR DISCARD without MULTI\r\n"
        self._end(session)
        return replies.OK

    def watch(self, session: Session, argv: list[bytes]) -> Outcome:
        """WATCH key [key ...]."""
        if self._transaction(session) is not None:
            return b"-ERR WATCH inside MULTI is not allowed\r\n"
        return self._watching.begin(session, argv)

    def unwatch(self, session: Session, argv: list[bytes]) -> Outcome:
        """UNWATCH, outside of a transaction."""
        self._watching.end(session)
        return replies.OK

    def exec(self, session: Session, argv: list[bytes]) -> Outcome:
        """EXEC; looked at again as often as something stands in its way."""
        if not session.attention & IN_TRANSACTION:
            return b"-ERR EXEC without MULTI\r\n"
        transaction: Transaction = state_of(session).transaction
        watch = self._watching.of(session)
        if transaction.spoiled:
            self._end(session)
            return ABORTED
        if watch is None and not transaction.count:
            self._end(session)
            return NOTHING_DONE
        # Whatever the session sends next comes after this EXEC, sent or not.
        transaction.executing = True
        if watch is not None:
            if session.owed:
                return AFTER_OWED
            if not self._watching.holds(session, watch):
                return self._changed(session)
            if watch.database != session.database:
                return self._watching.change_database(session, watch)
        if self._scripts is not None and transaction.scripts and not transaction.scripts_known:
            transaction.scripts_known = True
            return Waiting(self._look_for(self._scripts, transaction))
        keys = list(transaction.keys)
        if watch is not None:
            return Cleared(keys, partial(self._run_watched, transaction, watch))
        if not keys and transaction.channel is not None:
            # Any server will do, but from that one a client's messages come in the order of its publishing.
            keys = [transaction.channel]
        return Cleared(keys, partial(self._run, transaction))

    async def _look_for(self, scripts: Scripts, transaction: Transaction) -> Any:
        await scripts.look_for(transaction.scripts)
        return AGAIN

    def _run(self, transaction: Transaction, session: Session, slot: int, address: str) -> Outcome:
        payload, before = self._unit(transaction, session, address)
        self._end(session)
        return Unit(payload, before)

    def _run_watched(
        self, transaction: Transaction, watch: Watch, session: Session, slot: int, address: str
    ) -> Outcome:
        if not self._watching.holds(session, watch) or watch.connection is None:
            return self._changed(session)
        payload, before = self._unit(transaction, session, watch.connection.address)
        self._close(session)
        return self._watching.run(session, watch, payload, before)

    def _unit(self, transaction: Transaction, session: Session, address: str) -> tuple[bytes, int]:
        """What is sent, and how many replies come before EXEC's."""
        first, replies_first = b"", 0
        if self._scripts is not None and transaction.scripts:
            first, replies_first = self._scripts.preload(session, address, transaction.scripts)
        return first + transaction.payload(), replies_first + 1 + transaction.count

    def _changed(self, session: Session) -> bytes:
        """The answer to an EXEC whose watched keys may have been changed."""
        self._end(session)
        return b"_\r\n" if session.protocol == 3 else b"*-1\r\n"
