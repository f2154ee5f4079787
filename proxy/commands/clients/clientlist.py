"""CLIENT LIST, INFO and KILL, for all clients of the proxy at all of its workers."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from proxy.commands import replies
from proxy.commands.arguments import SYNTAX_ERROR, integer
from proxy.commands.family import Answer, Family, Handler
from proxy.commands.pubsub.messages import Kind
from proxy.commands.pubsub.pubsub import subscription_of
from proxy.commands.services import Services
from proxy.commands.state import SessionState, user_name
from proxy.engine.outcomes import Last, Outcome
from proxy.engine.session import Session
from slots.messages.questions import Asked, ClientCounts, ClientFilter, Clients, KillClients
from slots.users import DEFAULT

NOT_A_NUMBER = b"-ERR client-id should be greater than 0\r\n"
NOT_AN_AGE = b"-ERR maxage is not an integer or out of range\r\n"
NO_SUCH_CLIENT = b"-ERR No such client\r\n"
COUNTS_SECONDS = 0.1
"""How long a count of the clients is reused. When thousands of clients reconnect, some libraries ask for INFO on each
connection, and every count looks at all clients.
"""
TYPES = {b"normal": "normal", b"pubsub": "pubsub", b"master": "master", b"replica": "replica", b"slave": "replica"}


class FilterError(ValueError):
    """The filter of a request cannot be read."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply


@dataclass(slots=True)
class Filter:
    """Selects clients: those for which every condition holds."""

    ids: list[int] | None = None
    kind: str | None = None
    address: str | None = None
    local_address: str | None = None
    user: str | None = None
    least_age: int | None = None
    but: int | None = None
    """The number of a client that is never selected."""

    def means(self, session: Session, now: float) -> bool:
        """Whether this client is selected."""
        return (
            (self.ids is None or session.id in self.ids)
            and (self.kind is None or kind_of(session) == self.kind)
            and (self.address is None or session.peer == self.address)
            and (self.local_address is None or session.local_address() == self.local_address)
            and (self.user is None or user_name(session) == self.user)
            and (self.least_age is None or now - session.created >= self.least_age)
            and session.id != self.but
        )


class ClientList(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._ask_all = services.ask_all
        self._now = services.now
        self._services = services
        self._counted: dict[str, int] = {}
        self._counted_at = -math.inf

    @property
    def _users(self) -> set[str]:
        return {user.name for user in self._services.settings.users}

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"CLIENT|LIST": self.all, "CLIENT|INFO": self.info, "CLIENT|KILL": self.kill}

    def answers(self) -> dict[type[Asked], Answer]:
        """Those about the clients of this worker."""
        return {Clients: self._lines, KillClients: self._close, ClientCounts: self._counts}

    def _meant(self, question: Clients | KillClients) -> Iterator[Session]:
        wanted = Filter(**question.filter.model_dump())
        now = self._now()
        for session in self._router.sessions:
            if wanted.means(session, now):
                yield session

    def _lines(self, question: Clients) -> list[tuple[int, str]]:
        now = self._now()
        return [(session.id, describe(session, now)) for session in self._meant(question)]

    def _close(self, question: KillClients) -> int:
        meant = list(self._meant(question))
        for session in meant:
            # The asking session has to get its reply first.
            if session.id != question.asker:
                session.close()
        return len(meant)

    def _counts(self, question: ClientCounts) -> dict[str, int]:
        now = self._now()
        if now - self._counted_at >= COUNTS_SECONDS:
            states, tracking = [], 0
            for session in self._router.sessions:
                tracking += session.tracker is not None
                if session.state is not None:
                    states.append(session.state)
            self._counted_at = now
            self._counted = {
                "blocked": sum(state.blocking is not None for state in states),
                "subscribed": sum(bool(state.subscription) for state in states),
                "tracking": tracking,
            }
        return self._counted

    # -- commands ------------------------------------------------------------------------------------------

    def info(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT INFO."""
        return replies.verbatim(describe(session, self._now()) + "\n", session.protocol)

    async def all(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT LIST [ID id ...] [TYPE type]."""
        wanted = Filter()
        if len(argv) > 2:
            option = argv[2].upper()
            if option == b"ID" and len(argv) > 3:
                numbers = [integer(text) for text in argv[3:]]
                if None in numbers:
                    return b"-ERR Invalid client ID\r\n"
                wanted.ids = [number for number in numbers if number is not None]
            elif option == b"TYPE" and len(argv) == 4:
                try:
                    wanted.kind = _kind(argv[3])
                except FilterError as error:
                    return error.reply
            else:
                return SYNTAX_ERROR
        answers = await self._ask_all(Clients(filter=ClientFilter(**asdict(wanted))))
        lines = {number: line for answer in answers for number, line in answer}
        # As in Redis: clients that were asked for by number come in that order.
        order = sorted(lines) if wanted.ids is None else [number for number in wanted.ids if number in lines]
        return replies.verbatim("".join(lines[number] + "\n" for number in order), session.protocol)

    async def kill(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT KILL address | [ID id] [TYPE type] [USER name] [ADDR address] [LADDR address] [SKIPME yes|no] ..."""
        by_address = len(argv) == 3
        try:
            wanted = Filter(address=_text(argv[2])) if by_address else self._read(session, argv)
        except FilterError as error:
            return error.reply
        itself = wanted.means(session, self._now())
        reply = _said(await self._count_killed(session, wanted), by_address)
        # Then later requests of this session are not looked at.
        return Last(reply) if itself else reply

    async def _count_killed(self, session: Session, wanted: Filter) -> int:
        question = KillClients(filter=ClientFilter(**asdict(wanted)), asker=session.id)
        return sum(await self._ask_all(question))

    def _read(self, session: Session, argv: list[bytes]) -> Filter:
        """The clients that the names and values of CLIENT KILL select. Raises :class:`FilterError`."""
        wanted = Filter(but=session.id)
        for position in range(2, len(argv), 2):
            name, value = argv[position].upper(), argv[position + 1] if position + 1 < len(argv) else None
            if value is None:
                raise FilterError(SYNTAX_ERROR)
            match name:
                case b"ID":
                    wanted.ids = [_positive(value, NOT_A_NUMBER, NOT_A_NUMBER)]
                case b"TYPE":
                    wanted.kind = _kind(value)
                case b"ADDR":
                    wanted.address = _text(value)
                case b"LADDR":
                    wanted.local_address = _text(value)
                case b"USER":
                    wanted.user = _text(value)
                    if wanted.user != DEFAULT and wanted.user not in self._users:
                        raise FilterError(replies.error(f"ERR No such user '{replies.shown(value)}'"))
                case b"MAXAGE":
                    too_small = b"-ERR maxage should be greater than 0\r\n"
                    wanted.least_age = _positive(value, NOT_AN_AGE, too_small)
                case b"SKIPME":
                    if value.upper() not in (b"YES", b"NO"):
                        raise FilterError(SYNTAX_ERROR)
                    wanted.but = session.id if value.upper() == b"YES" else None
                case _:
                    raise FilterError(SYNTAX_ERROR)
        return wanted


def _said(killed: int, by_address: bool) -> bytes:
    if by_address:
        return replies.OK if killed else NO_SUCH_CLIENT
    return replies.integer(killed)


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


def _kind(value: bytes) -> str:
    kind = TYPES.get(value.lower())
    if kind is None:
        raise FilterError(replies.error(f"ERR Unknown client type '{replies.shown(value)}'"))
    return kind


def _positive(value: bytes, not_a_number: bytes, too_small: bytes) -> int:
    number = integer(value)
    if number is None:
        raise FilterError(not_a_number)
    if number < 1:
        raise FilterError(too_small)
    return number


def kind_of(session: Session) -> str:
    """``pubsub`` for a client with a subscription, else ``normal``."""
    return "pubsub" if subscription_of(session) else "normal"


def describe(session: Session, now: float) -> str:
    """One line of CLIENT LIST: first the fields of Redis in their order, with 0 or -1 where they mean nothing here,
    then ours."""
    state: SessionState | None = session.state
    subscription = subscription_of(session)
    transaction = state.transaction if state is not None else None
    multi = transaction.count if transaction is not None else session.multi_count
    flags = [
        "P" if subscription else "",
        "x" if multi >= 0 else "",
        "b" if state is not None and state.blocking is not None else "",
        "t" if session.tracker is not None else "",
        "R" if session.tracker is not None and session.tracker.is_broken else "",
        "B" if session.tracker is not None and session.tracker.broadcast else "",
        "U" if session.peer.startswith("/") else "",
    ]
    fields = {
        "id": session.id,
        "addr": session.peer,
        "laddr": session.local_address(),
        "fd": -1,
        "name": _text(state.name) if state is not None else "",
        "age": int(now - session.created),
        "idle": int(now - session.last_active),
        "flags": "".join(flags) or "N",
        "db": session.database,
        "sub": len(subscription.names[Kind.CHANNEL]),
        "psub": len(subscription.names[Kind.PATTERN]),
        "ssub": len(subscription.names[Kind.SHARD]),
        "multi": multi,
        "qbuf": session.unparsed,
        "qbuf-free": 0,
        "argv-mem": 0,
        "multi-mem": 0,
        "rbs": 0,
        "rbp": 0,
        "obl": session.unsent,
        "oll": 0,
        "omem": session.unsent,
        "tot-mem": session.kept,
        "events": "rw" if session.unsent else "r",
        "cmd": session.last_command or "NULL",
        "user": user_name(session),
        "redir": -1 if session.tracker is None else session.tracker.target or 0,
        "resp": session.protocol,
        "lib-name": _text(state.library) if state is not None else "",
        "lib-ver": _text(state.library_version) if state is not None else "",
        "owed": session.owed,
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())
