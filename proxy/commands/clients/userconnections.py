"""Where a user may come from, and how many connections it may have.

The supervisor says how many this worker may let in (:mod:`slots.connectionshares`), and is told how many there are, and
how many were refused.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from proxy.commands import replies
from proxy.commands.state import SessionState
from proxy.engine.session import Session
from proxy.users import User
from slots.messages.load import Connections

REMEMBERED = 10
"""Messages, one a second, for which a refused client is remembered: it has to come again to be let in."""
UNUSED = 2
"""Messages for which there has been room, so that no refused client is expected any more."""


class _Counted:
    """The connections of one user.

    Attributes:
        limit: at all proxies together.
        share: how many the worker may let in.
        sessions: their numbers.
    """

    def __init__(self) -> None:
        self.limit = 0
        self.share = 0
        self.sessions: set[int] = set()
        self._refused: deque[int] = deque([0], maxlen=REMEMBERED)
        self._with_room = 0

    def refuse(self) -> None:
        self._refused[-1] += 1

    def let_in(self, session: int) -> None:
        if session not in self.sessions:
            self.sessions.add(session)
            # It may be one that was refused before, each time that it came.
            self._refused = deque((max(count - 1, 0) for count in self._refused), REMEMBERED)

    def take(self) -> Connections:
        opened = len(self.sessions)
        self._with_room = self._with_room + 1 if opened < self.share else 0
        if self._with_room > UNUSED:
            self._refused.clear()
        wanted = max(self._refused, default=0)
        self._refused.append(0)
        return Connections(self.limit, opened, wanted, self.share, max(self.share, opened))


class UserConnections:
    """The connections of those users of whom only so many are let in."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}
        self._shares: Mapping[str, int] = {}
        self.refused = 0
        """Clients that were not let in although the password was right."""

    def change(self, users: Iterable[User]) -> None:
        """There are these users from now on. Their sessions enter anew."""
        before, self._counted = self._counted, {}
        for user in users:
            if user.connections is not None:
                counted = before.get(user.name) or _Counted()
                counted.limit = user.connections
                counted.sessions.clear()
                self._counted[user.name] = counted
        self.share(self._shares)

    def share(self, shares: Mapping[str, int]) -> None:
        """From now on, so many of a user may be let in at this worker; none if that is not said."""
        self._shares = shares
        for name, counted in self._counted.items():
            counted.share = shares.get(name, 0)

    def take(self) -> dict[str, Connections]:
        """What the supervisor is told each second."""
        return {name: counted.take() for name, counted in self._counted.items()}

    def refusal(self, session: Session, user: User) -> bytes | None:
        """Why a user is not let in here; None if it is."""
        if not user.may_come_from(session.peer):
            problem = f"from {session.peer.rpartition(':')[0] or 'here'}: it is not one of its addresses"
        elif self._is_full(session, user):
            problem = f"once more: of its {user.connections} connections at all proxies together, none is free here"
        else:
            return None
        self.refused += 1
        return replies.error(f"NOPERM user {user.name} may not log in {problem}")

    def _is_full(self, session: Session, user: User) -> bool:
        counted = self._counted.get(user.name)
        if counted is None or session.id in counted.sessions:
            return False
        if len(counted.sessions) < min(
            counted.share, counted.limit
        ):  # the limit may be a newer one than the share is of
            return False
        counted.refuse()
        return True

    def enter(self, session: Session, user: User) -> None:
        """A session has this user from now on, which was let in."""
        self.leave(session)
        if (counted := self._counted.get(user.name)) is not None:
            counted.let_in(session.id)

    def leave(self, session: Session) -> None:
        """A session has no user any more."""
        state: SessionState | None = session.state
        if state is not None and state.user is not None and (counted := self._counted.get(state.user.name)) is not None:
            counted.sessions.discard(session.id)
