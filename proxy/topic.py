"""A channel or a pattern, and which of a worker's sessions get its messages.

A session that is subscribed gets a message at once. One whose subscription is not confirmed yet hears what was
published since it was asked for, but is not to see it before the confirmation. One that is leaving gets what arrives
until its leaving is confirmed.
"""

from collections.abc import Iterator

from proxy.engine.session import Session

LEAVING = -1


class Topic:
    """A channel or a pattern that somebody is subscribed to, was, or is about to be."""

    __slots__ = ("_listeners", "_order", "asked", "ending", "unsettled", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """Sessions that are subscribed or about to be, without those about to leave."""
        self.asked = False
        """Whether the latest that the servers were told is to subscribe to it."""
        self.ending = 0
        """How often the servers were told to end it and have not said that they have."""
        self.unsettled: dict[Session, int] = {}
        """Who joins and has no confirmation yet, with the first mark after which messages are for it; or LEAVING."""
        self._listeners: set[Session] = set()
        self._order: tuple[Session, ...] | None = None

    def join(self, session: Session, mark: int) -> None:
        """It is subscribed, and hears what comes from a server that has answered this mark."""
        self.unsettled[session] = mark

    def joined(self, session: Session) -> None:
        """Its subscription is about to be confirmed; unless it has gone meanwhile."""
        if self.unsettled.pop(session, LEAVING) != LEAVING:
            self._listeners.add(session)
            self._order = None

    def leave(self, session: Session) -> None:
        """It gives the subscription up, and hears what has been published until now."""
        self.remove(session)
        self.unsettled[session] = LEAVING

    def remove(self, session: Session) -> None:
        """It gets nothing more."""
        self.unsettled.pop(session, None)
        self._listeners.discard(session)
        self._order = None

    @property
    def listeners(self) -> tuple[Session, ...]:
        """Who gets its messages at once."""
        if self._order is None:
            self._order = tuple(self._listeners)
        return self._order

    def joining(self) -> Iterator[Session]:
        """Whose subscription is not confirmed yet."""
        return (session for session, mark in self.unsettled.items() if mark != LEAVING)

    @property
    def is_over(self) -> bool:
        """Whether nobody has anything to do with it any more, and nothing more of it can arrive."""
        return not (self.wanted or self.asked or self.ending or self.unsettled or self._listeners)
