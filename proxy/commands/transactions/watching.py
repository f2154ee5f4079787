"""WATCH: keys are watched on a connection of the session's own, which its EXEC then uses.

The server keeps the watch, as Redis does. The proxy only has to know when that watch is no longer valid: the connection
was lost, the slot's server, state or migration has changed since WATCH was sent, or the session has switched its RESP
version. EXEC then answers as if a watched key had changed. So an EXEC that runs was sent over the very connection that
watches, to the server that has owned the slot all the time. The server saw every write to a watched key. What a session
reads between WATCH and EXEC comes from that server, too: not from a replica, which may lag behind the watch.

**absent-first**: WATCH waits until its keys are absent from the slot's source. They stay absent (**one-way**) while the
migration is the same, and a move that brings a key to the target changes it there. **drained**: WATCH and EXEC are sent
in the same step that saw the slot open, and count for it until they are answered. **in-order**: both wait until
everything owed to the session has been answered. **bounded**: a watch holds one of the worker's ``own_connections``,
for :data:`WATCH_SECONDS` at most.
"""

from functools import partial

from proxy.commands import replies
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome, Reply, clear, nothing_owed
from proxy.engine.refusals import CROSSSLOT
from proxy.engine.session import Session
from proxy.servers import slotrequests
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from proxy.servers.slotrequests import Finish

UNWATCH = command(("UNWATCH",))
WATCH_SECONDS = 300.0
"""How long a watch lasts: far longer than a client needs from WATCH to EXEC, so that one that forgot it gives the
connection back. Its EXEC then answers as if a watched key had changed."""


class Watch:
    """The watch of one session.

    Args:
        connection: the connection that it watches on.
        database: the database that the connection is in.
        slot: the slot of the keys.
        key: one of them.
    """

    __slots__ = (
        "busy",
        "changes",
        "connection",
        "database",
        "kept",
        "key",
        "migration",
        "moved",
        "over",
        "replica_reads",
        "since",
        "slot",
    )

    def __init__(self, connection: OwnConnection, database: int, slot: int, key: bytes) -> None:
        self.connection: OwnConnection | None = connection
        """None once the connection was given back."""
        self.database = database
        self.moved = False
        """Whether the connection is in another database than expected."""
        self.slot = slot
        self.key = key
        self.kept = True
        """Whether the server still watches."""
        self.changes = 0
        self.migration = 0
        self.since = 0.0
        self.busy = False
        """Whether a reply is awaited."""
        self.over = False
        """Whether it is no longer valid. Its connection is given back once it is not busy."""
        self.replica_reads = False
        """The value of the session's ``replica_reads`` after the watch."""


class Watching:
    """The watches of one worker's sessions.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._own = services.own
        self._now = services.now
        self._reply_seconds = services.settings.backend_reply_seconds
        self._sessions: set[Session] = set()

    def of(self, session: Session) -> Watch | None:
        """The session's watch, valid or not; None if it watches nothing."""
        return _watch_of(session)

    def holds(self, session: Session, watch: Watch) -> bool:
        """Whether the server would know of any change to a watched key."""
        return (
            not watch.over
            and watch.connection is not None
            and not watch.connection.lost
            and watch.connection.backend.protocol == session.protocol
            and self._router.changes(watch.slot) == watch.changes
            and self._router.route(watch.slot)[2] == watch.migration
        )

    # -- WATCH ---------------------------------------------------------------------------------------------

    async def begin(self, session: Session, argv: list[bytes]) -> Outcome:
        """WATCH key [key ...]."""
        watch = self.of(session)
        slots = {self._router.slot_of_key(session.database, key) for key in argv[1:]}
        if len(slots) > 1 or (watch is not None and watch.slot not in slots):
            return CROSSSLOT
        await nothing_owed()
        if watch is not None:
            return await self._watch_more(session, watch, argv)
        try:
            connection, slot = await self._own.take_for(session, argv[1:])
        except OwnConnectionError as error:
            return error.reply
        watch = state_of(session).watch = Watch(connection, session.database, slot, argv[1])
        self._sessions.add(session)
        watch.changes = self._router.changes(slot)
        watch.migration = self._router.route(slot)[2]
        watch.replica_reads, session.replica_reads = session.replica_reads, False
        watch.since = self._now()
        return await self._send(watch, command(tuple(argv)), 0, partial(self._watched, session, watch, True))

    async def _watch_more(self, session: Session, watch: Watch, argv: list[bytes]) -> bytes:
        """WATCH on the connection that watches already."""
        if self.holds(session, watch) and watch.database != session.database:
            await self.change_database(session, watch)
        await clear(argv[1:])
        if not self.holds(session, watch):
            # EXEC will answer as if a watched key had changed, whatever else is watched.
            return replies.OK
        watch.since = self._now()
        return await self._send(watch, command(tuple(argv)), 0, partial(self._watched, session, watch, False))

    def _watched(self, session: Session, watch: Watch, first: bool, reply: bytes) -> bytes:
        if reply == replies.OK or _watch_of(session) is not watch:
            return reply
        if first:
            # As in Redis, a WATCH that fails watches nothing.
            self.end(session)
        else:
            self._let_go(watch)
        return reply

    # -- EXEC ----------------------------------------------------------------------------------------------

    async def change_database(self, session: Session, watch: Watch) -> None:
        """Have the connection follow the session to another database, before WATCH or EXEC; the watched keys stay. If
        that fails, the watch no longer holds."""
        database = session.database

        def selected(reply: bytes) -> bytes:
            if reply == replies.OK:
                watch.database = database
                watch.moved = True
            else:
                self._let_go(watch)
            return reply

        await self._send(watch, command(("SELECT", database)), 0, selected)

    def run(self, session: Session, watch: Watch, payload: bytes, before: int, finish: Finish) -> Reply[bytes]:
        """Send a transaction over the connection that watches, which ends the watch.

        Call it in the step that saw the watch hold. ``before`` replies are dropped; ``finish`` makes the session's
        reply of EXEC's.
        """
        self._forget(session, watch)
        watch.over = True
        return self._send(watch, payload, before, partial(self._executed, watch, finish))

    def _executed(self, watch: Watch, finish: Finish, reply: bytes) -> bytes:
        if not reply.startswith(b"-"):
            watch.kept = False
        return finish(reply)

    # -- sending -------------------------------------------------------------------------------------------

    def _send(self, watch: Watch, payload: bytes, before: int, heard: Finish) -> Reply[bytes]:
        """Send requests, at once. Gives what ``heard`` makes of the last reply; ``before`` replies are dropped."""
        connection = watch.connection
        assert connection is not None

        def ended(reply: bytes) -> bytes:
            watch.busy = False
            given = heard(reply)
            if watch.over:
                self._let_go(watch)
            return given

        watch.busy = True
        backend = connection.backend
        backend.reply_seconds = self._reply_seconds
        try:
            return slotrequests.send(self._router, watch.slot, backend, payload, before, ended)
        except MemoryError:
            # Nothing was sent.
            watch.busy = False
            self._let_go(watch)
            raise

    # -- ending --------------------------------------------------------------------------------------------

    def end(self, session: Session) -> None:
        """Watch nothing any more."""
        watch = _watch_of(session)
        if watch is not None:
            self._forget(session, watch)
            self._let_go(watch)

    def _forget(self, session: Session, watch: Watch) -> None:
        state_of(session).watch = None
        self._sessions.discard(session)
        session.replica_reads = watch.replica_reads

    def _let_go(self, watch: Watch) -> None:
        """Give the connection back, if necessary once its requests are answered; the watch is over."""
        watch.over = True
        if watch.busy or watch.connection is None:
            return
        connection, watch.connection = watch.connection, None
        if connection.lost or watch.moved:
            self._own.discard(connection, "was given up")
        elif not watch.kept:
            self._own.give_back(connection)
        else:
            connection.backend.call(UNWATCH, partial(self._unwatched, connection))

    def _unwatched(self, connection: OwnConnection, reply: bytes) -> None:
        if reply == replies.OK:
            self._own.give_back(connection)
        else:
            self._own.discard(connection, "was given up")

    def tick(self) -> None:
        """Give connections back that are no longer needed; called a few times a second."""
        late = self._now() - WATCH_SECONDS
        for session in list(self._sessions):
            watch = _watch_of(session)
            if watch is None or watch.busy or watch.over:
                continue
            if watch.since <= late or not self.holds(session, watch):
                self._let_go(watch)


def read_from_replicas(session: Session, wanted: bool) -> None:
    """READONLY and READWRITE. For a session with a watch they hold after the watch."""
    watch = _watch_of(session)
    if watch is not None:
        watch.replica_reads = wanted
    else:
        session.replica_reads = wanted


def _watch_of(session: Session) -> Watch | None:
    watch: Watch | None = session.state.watch if session.state is not None else None
    return watch
