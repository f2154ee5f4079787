"""What the slow path knows of a session beyond what the engine keeps for every one."""

from typing import TYPE_CHECKING, Any

from proxy.engine.session import Session

if TYPE_CHECKING:
    from proxy.slowpath.blockingrequest import BlockingRequest
    from proxy.users import User


class SessionState:
    """Made when a session first needs it, so that an idle client costs little. Each family has its own places."""

    __slots__ = (
        "blocking",
        "blocking_seen",
        "blocking_seen_at",
        "elsewhere",
        "library",
        "library_version",
        "name",
        "subscription",
        "transaction",
        "user",
        "watch",
    )

    def __init__(self) -> None:
        self.name = b""
        self.library = b""
        self.library_version = b""
        self.user: User | None = None
        self.transaction: Any = None
        self.watch: Any = None
        self.subscription: Any = None
        self.blocking: BlockingRequest | None = None
        """The command at the front while it waits at a server, or for its slot to be served again."""
        self.blocking_seen: BlockingRequest | None = None
        """The last blocking command that was looked at and is not over: its deadline counts from its first look."""
        self.blocking_seen_at = 0
        """How many requests the session had taken by then."""
        self.elsewhere: tuple[int, int] | None = None
        """How many requests the session had taken, and the migration, when the keys that the next one names in other
        databases were seen to be absent from their source.
        """


def state_of(session: Session) -> SessionState:
    """The session's state, made if there is none yet."""
    if session.state is None:
        session.state = SessionState()
    state: SessionState = session.state
    return state
