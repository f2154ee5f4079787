"""A channel or a pattern, and which of a worker's sessions get its messages.

A subscribed session gets a message at once. A session whose subscription is not confirmed yet gets messages published
since its request, but not before the confirmation. A session that is leaving gets messages until its leaving is
confirmed.
"""

from collections.abc import Iterator

from proxy.engine.session import Session

LEAVING = -1


class Topic:
    """A channel or a pattern with present, former or future subscribers."""

    __slots__ = ("_listeners", "_order", "asked", "changing", "ending", "hiding", "said", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """Sessions that are subscribed or about to be, without those that are about to leave."""
        self.asked = False
        """Whether the latest order to the servers was to subscribe to it."""
        self.said = 0
        """How many sessions the servers were told of, of a channel that was asked for."""
        self.ending = 0
        """How many orders to end it the servers have not confirmed yet."""
        self.changing: dict[Session, int] = {}
        """Sessions that join without a confirmation yet, with the first mark after which messages are for them; or
        LEAVING."""
        self.hiding: dict[Session, None] = {}
        """Sessions that get its messages at once, and do not see the prefix of their user."""
        self._listeners: set[Session] = set()
        self._order: tuple[Session, ...] | None = None

    def join(self, session: Session, mark: int) -> None:
        """The session is subscribed, and hears what comes from a server that has answered this mark."""
        self.changing[session] = mark

    def joined(self, session: Session) -> None:
        """The session's subscription is about to be confirmed, unless the session has gone meanwhile."""
        if self.changing.pop(session, LEAVING) != LEAVING:
            if session.hides:
                self.hiding[session] = None
                return
            self._listeners.add(session)
            self._order = None

    def leave(self, session: Session) -> None:
        """The session leaves, and hears all messages published until now."""
        self.remove(session)
        self.changing[session] = LEAVING

    def remove(self, session: Session) -> None:
        """The session gets nothing more."""
        self.changing.pop(session, None)
        self.hiding.pop(session, None)
        self._listeners.discard(session)
        self._order = None

    @property
    def listeners(self) -> tuple[Session, ...]:
        """Sessions that get its messages at once, as they are."""
        if self._order is None:
            self._order = tuple(self._listeners)
        return self._order

    def joining(self) -> Iterator[Session]:
        """Sessions whose subscription is not confirmed yet."""
        return (session for session, mark in self.changing.items() if mark != LEAVING)

    @property
    def is_over(self) -> bool:
        """Whether no session needs it any more, and no message of it can arrive."""
        return not (self.wanted or self.asked or self.ending or self.changing or self.hiding or self._listeners)
