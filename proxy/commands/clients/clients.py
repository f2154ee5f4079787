"""CLIENT subcommands that concern the session itself. For other clients see `clientlist`.

Connections to the servers are shared, so a client cannot change *its connection to the server*. A subcommand that is
impossible for that reason, or that means nothing here, gets an error that says so, instead of an OK.
"""

from proxy.commands import replies
from proxy.commands.arguments import SYNTAX_ERROR, printable
from proxy.commands.family import Family, Handler
from proxy.commands.state import state_of
from proxy.engine.outcomes import MUTED, MUTED_ONCE, NO_REPLY, Outcome
from proxy.engine.session import Session

NO_TOUCH_REFUSED = (
    b"-ERR CLIENT NO-TOUCH ON is refused by Slotferry: connections to the servers are shared by all clients, and it "
    b"would hold for all of them\r\n"
)


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

    def unpause(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT UNPAUSE: no client is paused."""
        return replies.OK
