"""Commands about the connection (PING, ECHO, QUIT, RESET, READONLY, READWRITE), and helpers that many families
share."""

from collections.abc import Callable

from proxy.engine.session import QUIT, Session
from proxy.settings import ProxySettings
from proxy.slowpath import replies
from proxy.slowpath.family import Family, Handler, Outcome
from proxy.slowpath.services import Services
from proxy.slowpath.state import state_of
from proxy.slowpath.watching import read_from_replicas
from slots.keys import INTEGER

SERVER_VERSION = "7.0.15"
"""The Redis version that clients are told, and by which they choose commands: the version of the command table."""

NOT_AN_INTEGER = b"-ERR value is not an integer or out of range\r\n"
SYNTAX_ERROR = b"-ERR syntax error\r\n"


def mode(settings: ProxySettings) -> str:
    """The mode of the proxy in HELLO and INFO."""
    return "cluster" if settings.cluster_mode else "standalone"


def integer(text: bytes) -> int | None:
    """A number as Redis reads it; None if it is not one."""
    value = int(text) if INTEGER.fullmatch(text) else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def printable(text: bytes) -> bool:
    """Whether a client may have this name."""
    return all(33 <= byte <= 126 for byte in text)


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
        return QUIT

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
