"""CLIENT subcommands that concern the session itself. For other clients see `clientlist`.

Connections to the servers are shared, so a client cannot change *its connection to the server*. A subcommand that is
impossible for that reason, or that means nothing here, gets an error that says so, instead of an OK.
"""

from proxy.commands import replies
from proxy.commands.arguments import NOT_AN_INTEGER, SYNTAX_ERROR, integer, printable
from proxy.commands.family import Family, Handler
from proxy.commands.state import state_of
from proxy.engine.outcomes import MUTED, MUTED_ONCE, NO_REPLY, Outcome
from proxy.engine.session import Session

NOT_TRACKING = (
    b"-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled\r\n"
)
TRACKING_REFUSED = (
    b"-ERR CLIENT TRACKING ON is refused by Slotferry: connections to the servers are shared by all clients, so no "
    b"server can tell what one of them has read\r\n"
)
NO_TOUCH_REFUSED = (
    b"-ERR CLIENT NO-TOUCH ON is refused by Slotferry: connections to the servers are shared by all clients, and it "
    b"would hold for all of them\r\n"
)
TRACKING_OPTIONS = {b"REDIRECT": 1, b"BCAST": 0, b"OPTIN": 0, b"OPTOUT": 0, b"NOLOOP": 0, b"PREFIX": 1}
"""How many arguments each takes."""


def on_or_off(word: bytes) -> bool | None:
    """ON or OFF; None for anything else."""
    return {b"ON": True, b"OFF": False}.get(word.upper())


class ClientCommands(Family):
    """The family's handlers."""

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "CLIENT|ID": self.number,
            "CLIENT|GETNAME": self.name,
            "CLIENT|SETNAME": self.set_name,
            "CLIENT|SETINFO": self.set_info,
            "CLIENT|REPLY": self.reply,
            "CLIENT|NO-EVICT": self.no_evict,
            "CLIENT|NO-TOUCH": self.no_touch,
            "CLIENT|TRACKING": self.tracking,
            "CLIENT|TRACKINGINFO": self.tracking_info,
            "CLIENT|GETREDIR": self.redirection,
            "CLIENT|CACHING": self.caching,
            "CLIENT|UNPAUSE": self.unpause,
        }

    # -- the session's identity -----------------------------------------------------------------------------

    def number(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT ID."""
        return replies.integer(session.id)

    def name(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT GETNAME."""
        name = session.state.name if session.state is not None else b""
        return replies.bulk(name) if name else replies.null(session.protocol)

    def set_name(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT SETNAME name."""
        if not printable(argv[2]):
            return b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
        state_of(session).name = argv[2]
        return replies.OK

    def set_info(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT SETINFO LIB-NAME name | LIB-VER version."""
        attribute = argv[2].upper()
        if attribute not in (b"LIB-NAME", b"LIB-VER"):
            return replies.error(f"ERR Unrecognized option '{replies.shown(argv[2])}'")
        if not printable(argv[3]):
            return replies.error(
                f"ERR {attribute.decode().lower()} cannot contain spaces, newlines or special characters."
            )
        if attribute == b"LIB-NAME":
            state_of(session).library = argv[3]
        else:
            state_of(session).library_version = argv[3]
        return replies.OK

    # -- what a session wants for itself -------------------------------------------------------------------------

    def reply(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT REPLY ON|OFF|SKIP."""
        match argv[2].upper():
            case b"ON":
                session.muted = 0
                return replies.OK
            case b"OFF":
                session.muted = MUTED
                return NO_REPLY
            case b"SKIP":
                if session.muted != MUTED:
                    session.muted = MUTED_ONCE
                return NO_REPLY
            case _:
                return SYNTAX_ERROR

    def no_evict(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT NO-EVICT ON|OFF: the proxy never evicts clients."""
        return SYNTAX_ERROR if on_or_off(argv[2]) is None else replies.OK

    def no_touch(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT NO-TOUCH ON|OFF."""
        match on_or_off(argv[2]):
            case None:
                return SYNTAX_ERROR
            case True:
                return NO_TOUCH_REFUSED
            case _:
                return replies.OK

    # -- tracking ------------------------------------------------------------------------------------------

    def tracking(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT TRACKING ON|OFF [option ...]: tracking is always off."""
        position = 3
        while position < len(argv):
            arguments = TRACKING_OPTIONS.get(argv[position].upper())
            if arguments is None or position + arguments >= len(argv):
                return SYNTAX_ERROR
            if argv[position].upper() == b"REDIRECT" and integer(argv[position + 1]) is None:
                return NOT_AN_INTEGER
            position += 1 + arguments
        match on_or_off(argv[2]):
            case None:
                return SYNTAX_ERROR
            case True:
                return TRACKING_REFUSED
            case _:
                return replies.OK

    def tracking_info(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT TRACKINGINFO: tracking is off."""
        flags = replies.array([replies.bulk("off")])
        if session.protocol == 3:
            flags = b"~" + flags[1:]
        return replies.mapping(
            {"flags": flags, "redirect": replies.integer(-1), "prefixes": replies.array([])}, session.protocol
        )

    def redirection(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT GETREDIR: there is none, as tracking is off."""
        return replies.integer(-1)

    def caching(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT CACHING YES|NO, which needs tracking to be on."""
        return NOT_TRACKING

    def unpause(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT UNPAUSE: no client is paused."""
        return replies.OK
