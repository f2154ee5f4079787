"""CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR, with the options and the errors of Redis.

A session that tracks is told over its own connection, by a push of RESP3, or over that of its target
(:mod:`proxy.commands.tracking.redirections`). NOLOOP is taken, and the session is told of its own changes all the same.
A server names a key that has changed, and not who has changed it. If two have in one turn of its loop, there is one
word. So word of a session's own change may be word of another's, too. To drop a value too often does no harm.
"""

from dataclasses import dataclass, field

from proxy.commands import replies
from proxy.commands.arguments import NOT_AN_INTEGER, SYNTAX_ERROR, integer
from proxy.commands.family import Answer, Decided, Family, Handler
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.commands.tracking.hotreads import HotReads
from proxy.commands.tracking.redirections import Redirections
from proxy.commands.tracking.servers import TrackedServers
from proxy.engine.outcomes import TRACKED, Outcome
from proxy.engine.session import Session
from proxy.engine.tracking import TrackedKeys, Tracker
from slots.messages.questions import Asked, Redirected
from slots.table import SlotTable

KEYS_PART = 8
"""This part of ``sessions_limit_bytes`` is the limit of the keys that a worker's sessions track."""
ALL_KEYS = b""
"""The prefix of a session that gives none with BCAST."""
MOST_PREFIXES = 1000
"""Of one session: each is looked at for every key that changes."""
BOTH = "ERR You can't specify both OPTIN mode and OPTOUT mode"
NO_CHOICE_WITH_BCAST = "ERR OPTIN and OPTOUT are not compatible with BCAST"
PREFIX_NEEDS_BCAST = "ERR PREFIX option requires BCAST mode to be enabled"
OTHER_BCAST = (
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a "
    "different mode."
)
OTHER_CHOICE = (
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a "
    "different mode."
)
NOT_CACHING = (
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
)
YES_IS_OPTIN = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
NO_IS_OPTOUT = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
REFUSED = "ERR CLIENT TRACKING ON is refused by Slotferry: "
RESP2 = REFUSED + "a connection of RESP2 cannot be told of changes; use HELLO 3, or REDIRECT to another connection"
ONE_TARGET = b"-ERR A client can only redirect to a single other client\r\n"
BCAST = REFUSED + "with BCAST, a client is told of keys of all databases, and this user may not use them all"
PREFIXES = f"{REFUSED}a client may have {MOST_PREFIXES} prefixes"


class RefusedError(ValueError):
    """The options cannot be had. The message is the error."""


@dataclass(slots=True)
class Options:
    """Those of CLIENT TRACKING."""

    redirect: int | None = None
    broadcast: bool = False
    opt_in: bool = False
    opt_out: bool = False
    no_loop: bool = False
    prefixes: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, words: list[bytes]) -> "Options | bytes":
        """The options in these words, or the error."""
        found = cls()
        position = 0
        while position < len(words):
            value = words[position + 1] if position + 1 < len(words) else None
            match words[position].upper(), value:
                case b"REDIRECT", bytes(text):
                    number = integer(text)
                    if number is None:
                        return NOT_AN_INTEGER
                    if found.redirect is not None:
                        return ONE_TARGET
                    found.redirect = number
                    position += 1
                case b"PREFIX", bytes(text):
                    found.prefixes.append(text)
                    position += 1
                case b"BCAST", _:
                    found.broadcast = True
                case b"OPTIN", _:
                    found.opt_in = True
                case b"OPTOUT", _:
                    found.opt_out = True
                case b"NOLOOP", _:
                    found.no_loop = True
                case _:
                    return SYNTAX_ERROR
            position += 1
        return found

    def check(self, now: Tracker | None) -> None:
        """Whether they go together, and with what the session has. Raises RefusedError."""
        if self.prefixes and not self.broadcast:
            raise RefusedError(PREFIX_NEEDS_BCAST)
        if now is not None and now.broadcast != self.broadcast:
            raise RefusedError(OTHER_BCAST)
        if self.broadcast and (self.opt_in or self.opt_out):
            raise RefusedError(NO_CHOICE_WITH_BCAST)
        if self.opt_in and self.opt_out:
            raise RefusedError(BOTH)
        if now is not None and ((self.opt_in and now.opt_out) or (self.opt_out and now.opt_in)):
            raise RefusedError(OTHER_CHOICE)
        self._check_prefixes(shown_prefixes(now))

    def _check_prefixes(self, before: list[bytes]) -> None:
        if len(before) + len(self.prefixes) > MOST_PREFIXES:
            raise RefusedError(PREFIXES)
        for place, prefix in enumerate(self.prefixes, 1):
            for others, which in ((before, "an existing"), (self.prefixes[place:], "another provided")):
                for other in others:
                    if prefix.startswith(other) or other.startswith(prefix):
                        one, two = replies.shown(prefix), replies.shown(other)
                        raise RefusedError(
                            f"ERR Prefix '{one}' overlaps with {which} prefix '{two}'. Prefixes for a single client "
                            "must not overlap."
                        )


def shown_prefixes(tracker: Tracker | None) -> list[bytes]:
    """The prefixes of BCAST, as the client gave them."""
    return [prefix.removeprefix(tracker.hidden) for prefix in tracker.prefixes] if tracker is not None else []


class TrackingCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        versions: knows servers that cannot track.
    """

    def __init__(self, services: Services, versions: ServerVersions) -> None:
        self._services = services
        self._versions = versions
        self._keys = TrackedKeys(services.settings.sessions_limit_bytes // KEYS_PART)
        self._servers = TrackedServers(services, self._keys)
        self._redirections = Redirections(services, self._keys)
        self._hot = HotReads(services, self._keys, self._servers)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "CLIENT|TRACKING": self.tracking,
            "CLIENT|TRACKINGINFO": self.info,
            "CLIENT|GETREDIR": self.redirection,
            "CLIENT|CACHING": self.caching,
        }

    # -- commands ------------------------------------------------------------------------------------------

    def tracking(self, session: Session, argv: list[bytes]) -> Decided:
        """CLIENT TRACKING ON|OFF [option ...]."""
        options = Options.read(argv[3:])
        if isinstance(options, bytes):
            return options
        match argv[2].upper():
            case b"ON":
                return self._turn_on(session, options)
            case b"OFF":
                self._end(session)
                return replies.OK
            case _:
                return SYNTAX_ERROR

    async def _turn_on(self, session: Session, options: Options) -> Outcome:
        if options.redirect is not None:
            refused = await self._redirections.find(session, options.redirect)
            if refused is not None:
                return refused
        try:
            options.check(session.tracker)
            await self._check_possible(session, options)
        except RefusedError as error:
            return replies.error(str(error))
        before = session.tracker
        prefixes = dict.fromkeys((*shown_prefixes(before), *(options.prefixes or [ALL_KEYS])))
        self._end(session)
        # So that the end of the session is told.
        state_of(session)
        session.tracker = Tracker(
            self._keys,
            session,
            tuple(session.hides + prefix for prefix in prefixes) if options.broadcast else (),
            options.opt_in,
            options.opt_out,
            options.no_loop,
            options.redirect,
        )
        if options.redirect is not None:
            self._redirections.begin(session.tracker, session)
        session.attention |= TRACKED
        if before is not None:
            session.tracker.drop()
        return replies.OK

    async def _check_possible(self, session: Session, options: Options) -> None:
        if options.redirect is None and session.protocol != 3:
            raise RefusedError(RESP2)
        if options.broadcast and session.in_some_databases:
            raise RefusedError(BCAST)
        if self._versions.old:
            raise RefusedError(f"{REFUSED}it needs Redis 6 at every server, and {self._versions.old[0]} is older")
        refused = await self._servers.begin()
        if refused is not None:
            raise RefusedError(REFUSED + refused)

    def _end(self, session: Session) -> Tracker | None:
        """End the tracking of a session, if it tracks."""
        tracker: Tracker | None = session.tracker
        if tracker is not None:
            session.attention &= ~TRACKED
            tracker.end()
            session.tracker = None
            if tracker.target is not None:
                self._redirections.end(tracker)
        return tracker

    def info(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT TRACKINGINFO."""
        tracker = session.tracker
        flags = ["off"]
        if tracker is not None:
            flags = ["on"]
            flags += ["bcast"] if tracker.broadcast else []
            flags += ["optin", *(["caching-yes"] if tracker.choice else [])] if tracker.opt_in else []
            flags += ["optout", *(["caching-no"] if tracker.choice else [])] if tracker.opt_out else []
            flags += ["noloop"] if tracker.no_loop else []
            flags += ["broken_redirect"] if tracker.is_broken else []
        shown = replies.array(map(replies.bulk, flags))
        if session.protocol == 3:
            shown = b"~" + shown[1:]
        prefixes = replies.array(map(replies.bulk, shown_prefixes(tracker)))
        return replies.mapping(
            {"flags": shown, "redirect": self.redirection(session, argv), "prefixes": prefixes}, session.protocol
        )

    def redirection(self, session: Session, argv: list[bytes]) -> bytes:
        """CLIENT GETREDIR."""
        tracker = session.tracker
        return replies.integer(-1 if tracker is None else tracker.target or 0)

    def caching(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT CACHING YES|NO."""
        tracker = session.tracker
        if tracker is None or not (tracker.opt_in or tracker.opt_out):
            return replies.error(NOT_CACHING)
        match argv[2].upper():
            case b"YES":
                if not tracker.opt_in:
                    return replies.error(YES_IS_OPTIN)
            case b"NO":
                if not tracker.opt_out:
                    return replies.error(NO_IS_OPTOUT)
            case _:
                return SYNTAX_ERROR
        tracker.choose()
        return replies.OK

    # -- what the family is told ---------------------------------------------------------------------------

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        self._servers.table_applied(table)

    def answers(self) -> dict[type[Asked], Answer]:
        """Those about what clients of this worker are told for others."""
        return {Redirected: self._redirections.answer}

    def session_closed(self, session: Session) -> None:
        """A session was closed or reset."""
        tracker = self._end(session)
        if tracker is not None and tracker.target is not None:
            self._redirections.closed(tracker, session)

    def tick(self) -> None:
        """Called ten times a second."""
        self._keys.limit = self._services.settings.sessions_limit_bytes // KEYS_PART
        self._servers.tick()
        self._redirections.tick()
        self._hot.tick()

    async def close(self) -> None:
        """The worker ends."""
        self._servers.close()
        await self._redirections.close()
