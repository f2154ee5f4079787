"""Commands about the connection: AUTH, HELLO, SELECT, PING, ECHO, QUIT, RESET and CLIENT."""

import hmac
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.engine.session import QUIT, Session
from proxy.slowpath import replies
from slots.keys import INTEGER

Outcome = bytes | Coroutine[Any, Any, bytes] | object
Handler = Callable[[Session, list[bytes]], Outcome]
AskAll = Callable[[str], Coroutine[Any, Any, list[Any]]]

SERVER_VERSION = "7.0.15"
"""The Redis version told to clients, which choose commands by it: the one the command table is of."""

NOT_AN_INTEGER = b"-ERR value is not an integer or out of range\r\n"
SYNTAX_ERROR = b"-ERR syntax error\r\n"


class ClientInfo:
    """What a client has said of itself."""

    __slots__ = ("library", "library_version", "name")

    def __init__(self) -> None:
        self.name = b""
        self.library = b""
        self.library_version = b""


def info_of(session: Session) -> ClientInfo:
    """The session's :class:`ClientInfo`, made when it is first needed: an idle client should cost little."""
    if session.info is None:
        session.info = ClientInfo()
    info: ClientInfo = session.info
    return info


def integer(text: bytes) -> int | None:
    """A number as Redis reads it; None where it is none."""
    value = int(text) if INTEGER.fullmatch(text) else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def _printable(text: bytes) -> bool:
    return all(33 <= byte <= 126 for byte in text)


class ConnectionCommands:
    """The family's handlers.

    Args:
        password: what clients have to give; empty for none.
        databases: number of databases that clients may select.
        sessions: gives this worker's sessions.
        ask_all: asks every worker of the proxy something and gives their answers.
        now: gives the time on the sessions' clock, in seconds.
    """

    def __init__(
        self,
        password: str,
        databases: int,
        sessions: Callable[[], set[Session]],
        ask_all: AskAll,
        now: Callable[[], float],
    ) -> None:
        self._password = password.encode()
        self._databases = databases
        self._sessions = sessions
        self._ask_all = ask_all
        self._now = now

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "PING": self.ping,
            "ECHO": self.echo,
            "QUIT": self.quit,
            "RESET": self.reset,
            "AUTH": self.auth,
            "HELLO": self.hello,
            "SELECT": self.select,
            "CLIENT|ID": self.client_id,
            "CLIENT|GETNAME": self.client_getname,
            "CLIENT|SETNAME": self.client_setname,
            "CLIENT|SETINFO": self.client_setinfo,
            "CLIENT|INFO": self.client_info,
            "CLIENT|LIST": self.client_list,
        }

    # -- small talk ----------------------------------------------------------------------------------------

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
        """RESET: as a new connection, with its name, database, RESP version and authentication gone."""
        session.info = None
        session.database = 0
        session.protocol = 2
        session.gated = bool(self._password)
        return b"+RESET\r\n"

    def select(self, session: Session, argv: list[bytes]) -> Outcome:
        """SELECT index."""
        database = integer(argv[1])
        if database is None:
            return NOT_AN_INTEGER
        if not -(2**31) <= database < 2**31:
            return b"-ERR value is out of range, value must between -2147483648 and 2147483647\r\n"
        if not 0 <= database < self._databases:
            return b"-ERR DB index is out of range\r\n"
        session.database = database
        return replies.OK

    # -- who it is -----------------------------------------------------------------------------------------

    def _check(self, user: bytes, password: bytes) -> bytes | None:
        """None for the right credentials, else the error."""
        right = hmac.compare_digest(password, self._password)
        if user == b"default" and right:
            return None
        return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"

    def auth(self, session: Session, argv: list[bytes]) -> Outcome:
        """AUTH [user] password."""
        if len(argv) > 3:
            return SYNTAX_ERROR
        if not self._password and len(argv) == 2:
            return (
                b"-ERR AUTH <password> called without any password configured for the default user. "
                b"Are you sure your configuration is correct?\r\n"
            )
        user, password = (argv[1], argv[2]) if len(argv) == 3 else (b"default", argv[1])
        problem = None if not self._password and user == b"default" else self._check(user, password)
        if problem is not None:
            return problem
        session.gated = False
        return replies.OK

    def hello(self, session: Session, argv: list[bytes]) -> Outcome:
        """HELLO [version [AUTH user password] [SETNAME name]]: all of it, or none."""
        protocol = session.protocol
        name: bytes | None = None
        authenticated = not session.gated
        position = 2
        if len(argv) > 1:
            wanted = integer(argv[1])
            if wanted is None:
                return b"-ERR Protocol version is not an integer or out of range\r\n"
            if wanted not in (2, 3):
                return b"-NOPROTO unsupported protocol version\r\n"
            protocol = wanted
        while position < len(argv):
            option = argv[position].upper()
            if option == b"AUTH" and position + 2 < len(argv):
                user, password = argv[position + 1], argv[position + 2]
                problem = None if not self._password and user == b"default" else self._check(user, password)
                if problem is not None:
                    return problem
                authenticated = True
                position += 3
            elif option == b"SETNAME" and position + 1 < len(argv):
                name = argv[position + 1]
                if not _printable(name):
                    return b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
                position += 2
            else:
                return replies.error(f"ERR Syntax error in HELLO option '{argv[position].decode(errors='replace')}'")
        if not authenticated:
            return (
                b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
                b"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
                b"the same time\r\n"
            )
        session.gated = False
        session.protocol = protocol
        if name is not None:
            info_of(session).name = name
        return replies.mapping(
            {
                "server": replies.bulk("redis"),
                "version": replies.bulk(SERVER_VERSION),
                "proto": replies.integer(protocol),
                "id": replies.integer(session.id),
                "mode": replies.bulk("standalone"),
                "role": replies.bulk("master"),
                "modules": replies.array([]),
            },
            protocol,
        )

    # -- CLIENT --------------------------------------------------------------------------------------------

    def client_id(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT ID."""
        return replies.integer(session.id)

    def client_getname(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT GETNAME."""
        name = session.info.name if session.info is not None else b""
        return replies.bulk(name) if name else replies.null(session.protocol)

    def client_setname(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT SETNAME name."""
        if not _printable(argv[2]):
            return b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
        info_of(session).name = argv[2]
        return replies.OK

    def client_setinfo(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT SETINFO LIB-NAME name | LIB-VER version."""
        attribute = argv[2].upper()
        if attribute not in (b"LIB-NAME", b"LIB-VER"):
            return replies.error(f"ERR Unrecognized option '{argv[2].decode(errors='replace')}'")
        if not _printable(argv[3]):
            return replies.error(
                f"ERR {attribute.decode().lower()} cannot contain spaces, newlines or special characters."
            )
        if attribute == b"LIB-NAME":
            info_of(session).library = argv[3]
        else:
            info_of(session).library_version = argv[3]
        return replies.OK

    def describe(self, session: Session) -> str:
        """One line of CLIENT LIST, with the fields of Redis that mean something here."""
        info: ClientInfo | None = session.info
        now = self._now()
        command = (session.last_command or b"NULL").decode(errors="replace")
        fields = {
            "id": session.id,
            "addr": session.peer,
            "laddr": session.local_address(),
            "name": info.name.decode(errors="replace") if info else "",
            "age": int(now - session.created),
            "idle": int(now - session.last_active),
            "flags": "N",
            "db": session.database,
            "qbuf": session.unparsed,
            "omem": session.unsent,
            "owed": session.owed,
            "cmd": command,
            "user": "default",
            "resp": session.protocol,
            "lib-name": info.library.decode(errors="replace") if info else "",
            "lib-ver": info.library_version.decode(errors="replace") if info else "",
        }
        return " ".join(f"{name}={value}" for name, value in fields.items())

    def client_info(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT INFO."""
        return replies.verbatim(self.describe(session) + "\n", session.protocol)

    def describe_all(self) -> list[str]:
        """A line for each of this worker's clients."""
        return [self.describe(session) for session in sorted(self._sessions(), key=lambda session: session.id)]

    def client_list(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT LIST [ID id ...] [TYPE type], over all workers of the proxy."""
        wanted: set[int] | None = None
        if len(argv) > 2:
            option = argv[2].upper()
            if option == b"ID" and len(argv) > 3:
                numbers = [integer(text) for text in argv[3:]]
                wanted = {number for number in numbers if number is not None}
                if None in numbers:
                    return b"-ERR Invalid client ID\r\n"
            elif option == b"TYPE" and len(argv) == 4:
                kind = argv[3].lower()
                if kind not in (b"normal", b"master", b"replica", b"slave", b"pubsub"):
                    return replies.error(f"ERR Unknown client type '{argv[3].decode(errors='replace')}'")
                if kind != b"normal":
                    return replies.verbatim("", session.protocol)
            else:
                return SYNTAX_ERROR
        return self._list(session.protocol, wanted)

    async def _list(self, protocol: int, wanted: set[int] | None) -> bytes:
        answers = await self._ask_all("clients")
        lines = [line for answer in answers for line in answer]
        if wanted is not None:
            lines = [line for line in lines if int(line.split(" ", 1)[0].partition("=")[2]) in wanted]
        return replies.verbatim("".join(line + "\n" for line in lines), protocol)
