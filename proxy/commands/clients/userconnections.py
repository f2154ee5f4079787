"""Where a user may come from, and how many connections it may have at this worker."""

from collections import defaultdict

from proxy.commands import replies
from proxy.commands.state import SessionState
from proxy.engine.session import Session
from proxy.users import User


class UserConnections:
    """The connections of those users of whom only so many are let in, by their sessions' numbers."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        self.refused = 0
        """Clients that were not let in although the password was right."""

    def refusal(self, session: Session, user: User) -> bytes | None:
        """Why a user is not let in here; None if it is."""
        if not user.may_come_from(session.peer):
            problem = f"from {session.peer.rpartition(':')[0] or 'here'}: it is not one of its addresses"
        elif user.connections is not None and self._others(session, user) >= user.connections:
            problem = f"once more: it has {user.connections} connections at this worker, its limit"
        else:
            return None
        self.refused += 1
        return replies.error(f"NOPERM user {user.name} may not log in {problem}")

    def enter(self, session: Session, user: User) -> None:
        """A session has this user from now on, which was let in."""
        self.leave(session)
        if user.connections is not None:
            self._numbers[user.name].add(session.id)

    def leave(self, session: Session) -> None:
        """A session has no user any more."""
        state: SessionState | None = session.state
        if state is not None and state.user is not None:
            self._numbers[state.user.name].discard(session.id)

    def _others(self, session: Session, user: User) -> int:
        held = self._numbers[user.name]
        return len(held) - (session.id in held)

    def forget(self) -> None:
        """There are other users: their sessions enter anew."""
        self._numbers.clear()
