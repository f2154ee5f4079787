"""Commands about the connection: PING, ECHO, QUIT, RESET, READONLY, READWRITE."""

from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.commands.transactions.watching import read_from_replicas
from proxy.engine.outcomes import MUTED, Last, Outcome
from proxy.engine.session import Session


class ConnectionCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        begin: puts a session into the state before a login.
    """

    def __init__(self, services: Services, begin: Callable[[Session], None]) -> None:
        self._begin = begin
        self._router = services.router

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "PING": self.ping,
            "ECHO": self.echo,
            "QUIT": self.quit,
            "RESET": self.reset,
            "READONLY": self.readonly,
            "READWRITE": self.readwrite,
        }

    def ping(self, session: Session, argv: list[bytes]) -> Outcome:
        """PING [message]."""
        if len(argv) > 2:
            return b"-ERR wrong number of arguments for 'ping' command\r\n"
        return replies.bulk(argv[1]) if len(argv) == 2 else b"+PONG\r\n"

    def echo(self, session: Session, argv: list[bytes]) -> Outcome:
        """ECHO message."""
        return replies.bulk(argv[1])

    def quit(self, session: Session, argv: list[bytes]) -> Outcome:
        """QUIT."""
        return Last(replies.OK)

    def reset(self, session: Session, argv: list[bytes]) -> Outcome:
        """RESET: the session becomes like a new connection, and loses all its state.

        Only the name of the client's library stays.
        """
        was, session.state = session.state, None
        if was is not None and (was.library or was.library_version):
            state = state_of(session)
            state.library, state.library_version = was.library, was.library_version
        session.database = 0
        session.protocol = 2
        session.attention = 0
        if session.muted == MUTED:
            # As in Redis, a SKIP before it holds for RESET itself.
            session.muted = 0
        session.replica_reads = self._router.replica_reads
        self._begin(session)
        return b"+RESET\r\n"

    def readonly(self, session: Session, argv: list[bytes]) -> Outcome:
        """READONLY: reads may go to replicas."""
        read_from_replicas(session, True)
        return replies.OK

    def readwrite(self, session: Session, argv: list[bytes]) -> Outcome:
        """READWRITE: reads go to masters."""
        read_from_replicas(session, False)
        return replies.OK
