"""The slow path's state of a session, beyond the state that the engine keeps for every session."""

from typing import TYPE_CHECKING, Any

from proxy.engine.session import Session
from slots.users import DEFAULT

if TYPE_CHECKING:
    from proxy.commands.blocking.blockingrequest import BlockingRequest
    from proxy.users import User


class SessionState:
    """Made when a session first needs it, so that an idle client costs little. Each family has fields of its own."""

    __slots__ = (
        "blocking",
        "library",
        "library_version",
        "name",
        "subscription",
        "transaction",
        "user",
    )

    def __init__(self) -> None:
        self.name = b""
        self.library = b""
        self.library_version = b""
        self.user: User | None = None
        self.transaction: Any = None
        self.subscription: Any = None
        self.blocking: BlockingRequest | None = None
        """The command at the front while it waits at a server, or for its slot to be served again."""


def user_name(session: Session) -> str:
    """The user of a session."""
    state: SessionState | None = session.state
    return state.user.name if state is not None and state.user is not None else DEFAULT


def state_of(session: Session) -> SessionState:
    """The session's state, made if there is none yet."""
    if session.state is None:
        session.state = SessionState()
    state: SessionState = session.state
    return state
