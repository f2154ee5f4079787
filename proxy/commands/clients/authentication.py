"""AUTH, HELLO and SELECT: which user a session has, and what it may do.

A user's limits hold because the engine checks before anything is sent. What the user may not do for sure, it leaves to
plain Python (:mod:`proxy.commands.clients.userrights`), where :class:`proxy.users.User` decides.
The bit LIMITED of ``attention`` keeps every request off the fast path while the session's database is not one of its
user's. Between MULTI and EXEC, the database that the transaction has reached by its SELECTs counts.
"""

import asyncio

import structlog

from proxy.commands import replies
from proxy.commands.arguments import SYNTAX_ERROR, integer, mode, printable
from proxy.commands.clients.userconnections import UserConnections
from proxy.commands.clients.userlimits import UserLimits
from proxy.commands.clients.userrights import UserRights
from proxy.commands.databases import databases
from proxy.commands.databases.databases import DatabaseError
from proxy.commands.family import Family, Handler
from proxy.commands.pubsub.pubsub import subscription_of
from proxy.commands.scripting.scriptcalls import ScriptCalls
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.state import SessionState, state_of
from proxy.engine.outcomes import CACHED, GATED, IN_TRANSACTION, LIMITED, Outcome
from proxy.engine.session import Session
from proxy.engine.statistics import NOBODY
from proxy.settings import ProxySettings
from proxy.users import User, Users
from slots.commands import Command, Right
from slots.users import DEFAULT

log = structlog.get_logger()

WRONG_PASSWORD = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
NOT_ASKED_FOR = (
    b"-ERR AUTH <password> called without any password configured for the default user. "
    b"Are you sure your configuration is correct?\r\n"
)
HELLO_NOT_AUTHENTICATED = (
    b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> "
    b"option can be used to authenticate the client and select the RESP protocol version at the same time\r\n"
)

OTHER_PREFIX = (
    b"-ERR this user has another prefix, and the subscriptions, CLIENT TRACKING or WATCH of this connection are about "
    b"names with the present one; end them first, or send RESET\r\n"
)
HELLO_UNKNOWN = b"-ERR unknown command 'HELLO'\r\n"
"""The reply of a server before Redis 6. Clients that can do so go on with RESP2."""


class Authentication(Family):
    """The family's handlers, and the check whether a session may use a command, which :mod:`proxy.commands.dispatch`
    makes.

    Args:
        services: the worker's parts.
        versions: knows whether HELLO 3 has to be refused.
        scripts: knows what scripts call.
    """

    def __init__(self, services: Services, versions: ServerVersions, scripts: ScriptCalls) -> None:
        self._versions = versions
        self._rights = UserRights(services.router.loop.statistics, scripts)
        self._users = Users(services.settings.users, services.settings.password)
        self.connections = UserConnections()
        """How many of each user are let in."""
        self.connections.change(self._users)
        self.limits = UserLimits(services.router.loop, services.settings.worker_count)
        """How much each user may ask for."""
        self.limits.change(self._users)
        self._router = services.router
        self._databases = services.databases
        self._mode = mode(services.settings)
        services.router.gated = self._users.anonymous is None
        self.failures = 0
        """Wrong user names and passwords."""

    def change_users(self, settings: ProxySettings) -> None:
        """Let only these users log in from now on.

        A session goes on if its user is still there and may do as before, also with another password, as in Redis. The
        others are closed: what they have begun was allowed to a user who is none any more. A session without a login
        needs none any more if no new one does.
        """
        before, self._users = self._users, Users(settings.users, settings.password)
        self._rights.forget()
        self.connections.change(self._users)
        self.limits.change(self._users)
        self._router.gated = self._users.anonymous is None
        closed = 0
        for session in list(self._router.sessions):
            user = user_of(session) or before.default
            if session.attention & GATED or user is None:
                if self._users.anonymous is not None:
                    self.begin(session)
                continue  # it had yet to log in
            now = self._users.find(user.name)
            if now is None or not now.may_as_much(user) or not now.may_come_from(session.peer):
                session.close()
                closed += 1
            else:
                self.connections.enter(session, now)
                session.measure(self.limits.of(now))
                if session.state is not None or now.connections is not None:
                    state_of(session).user = now
        log.info("users_changed", sessions_closed=closed)

    @property
    def refused(self) -> int:
        """Clients that were not let in although the password was right."""
        return self.connections.refused

    @property
    def users(self) -> Users:
        """Those that may log in now."""
        return self._users

    def verdict(self, user: User, command: Command, argv: list[bytes]) -> str | None:
        """What Redis says of a request that a user may not send, whatever its database; None if it may.

        Raises:
            KeysError: its arguments are inconsistent.
        """
        return self._rights.verdict(user, command, argv)

    def session_closed(self, session: Session) -> None:
        """A session was closed or reset."""
        self.connections.leave(session)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"AUTH": self.auth, "HELLO": self.hello, "SELECT": self.select}

    # -- what a session may do -----------------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Put a new session, or one that was reset, into the state before a login. Its database is 0."""
        session.had_login = False
        user = self._users.anonymous
        if user is None or self.connections.refusal(session, user) is not None:
            session.belongs_to(NOBODY)
            session.limit(None)
            session.measure(None)
            session.shed_these(b"")
            session.attention = (session.attention | GATED) & ~LIMITED & ~CACHED
        else:
            self._enter(session, user)

    def _enter(self, session: Session, user: User) -> None:
        self.connections.enter(session, user)
        # A client that never logs in and may do everything needs no state for that.
        if session.state is not None or user.name != DEFAULT or not user.unlimited or user.connections is not None:
            state_of(session).user = user
        session.belongs_to(user.name)
        session.limit(self._rights.engines(user), self._rights.prefix(user))
        session.measure(self.limits.of(user))
        session.in_some_databases = user.databases is not None
        session.shed_these(self._rights.way_givers(user))
        session.attention &= ~GATED & ~CACHED
        session.attention |= CACHED if user.cached_reads else 0
        # As another user, perhaps, whose writes are not noted.
        session.has_written = True
        self._look_at_database(session, user)

    def _look_at_database(self, session: Session, user: User | None) -> None:
        if user is None or user.may_use(session.database):
            session.attention &= ~LIMITED
        else:
            session.attention |= LIMITED

    def refusal(self, session: Session, command: Command, argv: list[bytes]) -> bytes | None:
        """The error for a request that the session's user may not send; None if it may.

        Raises:
            KeysError: its arguments are inconsistent.
        """
        user = user_of(session)
        if user is None:
            return None
        refused = self._rights.refusal(user, command, argv)
        if refused is None and session.attention & LIMITED and _uses_database(command):
            return self.select_refusal(session, database_of(session))
        return refused

    def select_refusal(self, session: Session, database: int) -> bytes | None:
        """The error for a database that the session's user may not use; None if it may."""
        user = user_of(session)
        return None if user is None or user.may_use(database) else _no_database(database)

    def enter(self, session: Session, database: int) -> None:
        """Have a session use another database, which its user may use."""
        session.database = database
        self._look_at_database(session, user_of(session))

    # -- commands ------------------------------------------------------------------------------------------

    def _log_in(self, session: Session, name: bytes, password: bytes) -> bytes | None:
        """None for the right credentials, else the error."""
        user = self._users.authenticate(name, password)
        if user is None:
            self.failures += 1
            return WRONG_PASSWORD
        if user.prefix != session.hides and (subscription_of(session) or session.tracker or session.watch):
            # These are about names with the prefix that it has now.
            return OTHER_PREFIX
        refused = self.connections.refusal(session, user)
        if refused is None:
            self._enter(session, user)
            session.had_login = True
        return refused

    def auth(self, session: Session, argv: list[bytes]) -> Outcome:
        """AUTH [user] password."""
        if len(argv) > 3:
            return SYNTAX_ERROR
        if len(argv) == 2 and not self._users.wants_default_password:
            return NOT_ASKED_FOR
        name, password = (argv[1], argv[2]) if len(argv) == 3 else (DEFAULT.encode(), argv[1])
        return self._log_in(session, name, password) or replies.OK

    async def hello(self, session: Session, argv: list[bytes]) -> Outcome:
        """HELLO [version [AUTH user password] [SETNAME name]]. As in Redis, the parts before an error take effect."""
        protocol = session.protocol
        if len(argv) > 1:
            wanted = integer(argv[1])
            if wanted is None:
                return b"-ERR Protocol version is not an integer or out of range\r\n"
            if wanted not in (2, 3):
                return b"-NOPROTO unsupported protocol version\r\n"
            if wanted == 3:
                await self._versions.sure()
            if wanted == 3 and self._versions.old:
                return HELLO_UNKNOWN
            protocol = wanted
        position = 2
        while position < len(argv):
            option = argv[position].upper()
            if option == b"AUTH" and position + 2 < len(argv):
                problem = self._log_in(session, argv[position + 1], argv[position + 2])
                if problem is not None:
                    return problem
                position += 3
            elif option == b"SETNAME" and position + 1 < len(argv):
                if not printable(argv[position + 1]):
                    return b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
                state_of(session).name = argv[position + 1]
                position += 2
            else:
                return replies.error(f"ERR Syntax error in HELLO option '{replies.shown(argv[position])}'")
        if session.attention & GATED:
            return HELLO_NOT_AUTHENTICATED
        if session.tracker is not None and session.protocol != protocol:
            # Behind the reply. With RESP2 it was not told of what has changed.
            asyncio.get_running_loop().call_soon(session.tracker.drop)
        session.protocol = protocol
        return replies.mapping(
            {
                "server": replies.bulk("redis"),
                "version": replies.bulk(self._versions.lowest),
                "proto": replies.integer(protocol),
                "id": replies.integer(session.id),
                "mode": replies.bulk(self._mode),
                "role": replies.bulk("master"),
                "modules": replies.array([]),
            },
            protocol,
        )

    def select(self, session: Session, argv: list[bytes]) -> Outcome:
        """SELECT index."""
        try:
            database = databases.index(argv[1], self._databases)
        except DatabaseError as error:
            return replies.error(str(error))
        refused = self.select_refusal(session, database)
        if refused is not None:
            return refused
        self.enter(session, database)
        return replies.OK


def user_of(session: Session) -> User | None:
    """The session's user; None for ``default`` where that user may do everything."""
    state: SessionState | None = session.state
    return state.user if state is not None else None


def database_of(session: Session) -> int:
    """The database of the session's next command: between MULTI and EXEC the transaction's."""
    state: SessionState | None = session.state
    if session.attention & IN_TRANSACTION and state is not None:
        database: int = state.transaction.database
        return database
    return session.database


def _uses_database(command: Command) -> bool:
    if "pubsub" in command.flags:
        return False  # channels are not in a database
    return bool(command.first or command.keys) or Right.DATABASE in command.rights


def _no_database(database: int) -> bytes:
    return replies.error(f"NOPERM this user has no permissions to access database {database}; SELECT another one")
