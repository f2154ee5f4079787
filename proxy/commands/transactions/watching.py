"""WATCH: keys are watched on a connection of the session's own, which its EXEC then uses.

The server keeps the watch, as Redis does. The proxy only has to know when that watch is no longer valid: the connection
was lost, the slot's server, state or migration has changed since WATCH was sent, or the session has switched its RESP
version. EXEC then answers as if a watched key had changed. A migration that ends well is no such change: the slot stays
at its target. So an EXEC that runs was sent over the very connection that watches, to the server that has owned the
slot all the time. The server saw every write to a watched key. What a session reads between WATCH and EXEC comes from
that server, too: not from a replica, which may lag behind the watch.

**absent-first**: WATCH waits until its keys are absent from the slot's source. They stay absent (**one-way**) while the
migration is the same, and a move that brings a key to the target changes it there. **drained**: WATCH and EXEC are sent
in the same step that saw the slot open, and count for it until they are answered. **in-order**: both wait until
everything owed to the session has been answered. **bounded**: a watch holds one of the worker's ``own_connections``,
for :data:`WATCH_SECONDS` at most.

The usual WATCH and EXEC are sent by the engine (:mod:`proxy.engine.watches`); all others from here.
"""

from functools import partial

from proxy.commands import replies
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome, Reply, clear, nothing_owed
from proxy.engine.refusals import crossslot
from proxy.engine.session import Session
from proxy.engine.watches import Watch
from proxy.servers import slotrequests
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from proxy.servers.slotrequests import Finish

UNWATCH = command(("UNWATCH",))
WATCH_SECONDS = 300.0
"""How long a watch lasts: far longer than a client needs from WATCH to EXEC, so that one that forgot it gives the
connection back. Its EXEC then answers as if a watched key had changed."""


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
        services.router.watching = self

    def begin_at_once(self, session: Session, address: str, slot: int, key: bytes) -> Watch | None:
        """A session's first watch, whose WATCH the caller sends in this step; None if no connection is idle."""
        connection = self._own.take_idle(address, session.database, session.protocol)
        if connection is None:
            return None
        connection.backend.reply_seconds = self._reply_seconds
        return self._make(session, connection, slot, key)

    def _make(self, session: Session, connection: OwnConnection, slot: int, key: bytes) -> Watch:
        try:
            self._sessions.add(session)
            return Watch(session, connection, slot, key)
        except MemoryError:
            self._sessions.discard(session)
            self._own.give_back(connection)
            raise

    # -- WATCH ---------------------------------------------------------------------------------------------

    async def begin(self, session: Session, argv: list[bytes]) -> Outcome:
        """WATCH key [key ...]."""
        watch = session.watch
        first, home = (watch.key, watch.slot) if watch is not None else (argv[1], None)
        for key in argv[1:]:
            slot = self._router.slot_of_key(session.database, key)
            if home is None:
                home = slot
            elif slot != home:
                return crossslot(first, home, key, slot)
        await nothing_owed()
        if watch is not None:
            return await self._watch_more(session, watch, argv)
        try:
            connection, slot = await self._own.take_for(session, argv[1:])
        except OwnConnectionError as error:
            return error.reply
        watch = self._make(session, connection, slot, argv[1])
        return await self._send(watch, command(tuple(argv)), 0, partial(self._watched, session, watch, True))

    async def _watch_more(self, session: Session, watch: Watch, argv: list[bytes]) -> bytes:
        """WATCH on the connection that watches already."""
        if watch.holds() and watch.database != session.database:
            await self.change_database(session, watch)
        await clear(argv[1:])
        if not watch.holds():
            # EXEC will answer as if a watched key had changed, whatever else is watched.
            return replies.OK
        watch.since = self._now()
        return await self._send(watch, command(tuple(argv)), 0, partial(self._watched, session, watch, False))

    def _watched(self, session: Session, watch: Watch, first: bool, reply: bytes) -> bytes:
        if reply == replies.OK or session.watch is not watch:
            return reply
        if first:
            # As in Redis, a WATCH that fails watches nothing.
            self.end(session)
        else:
            self.let_go(watch)
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
                self.let_go(watch)
            return reply

        await self._send(watch, command(("SELECT", database)), 0, selected)

    def run(self, session: Session, watch: Watch, payload: bytes, before: int, finish: Finish) -> Reply[bytes]:
        """Send a transaction over the connection that watches, which ends the watch.

        Call it in the step that saw the watch hold. ``before`` replies are dropped; ``finish`` makes the session's
        reply of EXEC's.
        """
        self.forget(session, watch)
        watch.over = True

        def executed(reply: bytes) -> bytes:
            self.executed(watch, reply)
            return finish(reply)

        return self._send(watch, payload, before, executed)

    def executed(self, watch: Watch, reply: bytes) -> None:
        """The reply to EXEC has come."""
        if not reply.startswith(b"-"):
            watch.kept = False
        watch.busy = False
        self.let_go(watch)

    # -- sending -------------------------------------------------------------------------------------------

    def _send(self, watch: Watch, payload: bytes, before: int, heard: Finish) -> Reply[bytes]:
        """Send requests, at once. Gives what ``heard`` makes of the last reply; ``before`` replies are dropped."""
        connection = watch.connection
        assert connection is not None

        def ended(reply: bytes) -> bytes:
            watch.busy = False
            given = heard(reply)
            if watch.over:
                self.let_go(watch)
            return given

        watch.busy = True
        backend = connection.backend
        backend.reply_seconds = self._reply_seconds
        try:
            return slotrequests.send(self._router, watch.slot, backend, payload, before, ended)
        except MemoryError:
            # Nothing was sent.
            watch.busy = False
            self.let_go(watch)
            raise

    # -- ending --------------------------------------------------------------------------------------------

    def end(self, session: Session) -> None:
        """Watch nothing any more."""
        watch = session.watch
        if watch is not None:
            self.forget(session, watch)
            self.let_go(watch)

    def forget(self, session: Session, watch: Watch) -> None:
        """The session no longer has its watch; the watch's connection has yet to be given back."""
        session.watch = None
        self._sessions.discard(session)
        session.replica_reads = watch.replica_reads

    def let_go(self, watch: Watch) -> None:
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
            watch = session.watch
            if watch is None or watch.busy or watch.over:
                continue
            if watch.since <= late or not watch.holds():
                self.let_go(watch)


def read_from_replicas(session: Session, wanted: bool) -> None:
    """READONLY and READWRITE. For a session with a watch they hold after the watch."""
    watch = session.watch
    if watch is not None:
        watch.replica_reads = wanted
    else:
        session.replica_reads = wanted
