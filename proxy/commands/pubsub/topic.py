"""A channel or a pattern, and which of a worker's sessions get its messages.

A subscribed session gets a message at once. A session whose subscription is not confirmed yet gets messages published
since its request, but not before the confirmation. A session that is leaving gets messages until its leaving is
confirmed. It may leave before its joining is confirmed, and join again before its leaving is. Then what comes between
goes behind the confirmation of the later joining, where the client expects messages, too.
"""

from proxy.engine.session import Session


class Leaving:
    """A session on its way out, whose leaving is not confirmed yet.

    ``joining``: the mark of its joining before, if that is not confirmed yet, either.
    """

    __slots__ = ("joining", "kept", "mark")

    def __init__(self, joining: int | None) -> None:
        self.joining = joining is not None
        """Whether its joining before is yet to be confirmed."""
        self.mark = joining or 0
        """The first one after which messages are for it."""
        self.kept: list[bytes] | None = [] if self.joining else None
        """Messages that it gets with the confirmation, behind what it waits for. None: it hears them at once."""


class Topic:
    """A channel or a pattern with present, former or future subscribers."""

    __slots__ = ("_listeners", "_order", "asked", "ending", "hiding", "joining", "leaving", "said", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """Sessions that are subscribed or about to be, without those that are about to leave."""
        self.asked = False
        """Whether the latest order to the servers was to subscribe to it."""
        self.said = 0
        """How many sessions the servers were told of, of a channel that was asked for."""
        self.ending = 0
        """How many orders to end it the servers have not confirmed yet."""
        self.joining: dict[Session, int] = {}
        """Sessions that join without a confirmation yet, with the first mark after which messages are for them."""
        self.leaving: dict[Session, Leaving] = {}
        self.hiding: dict[Session, None] = {}
        """Sessions that get its messages at once, and do not see the prefix of their user."""
        self._listeners: set[Session] = set()
        self._order: tuple[Session, ...] | None = None

    def join(self, session: Session, mark: int) -> None:
        """The session is subscribed, and hears what comes from a server that has answered this mark. If it is leaving,
        it never stops to hear."""
        leaving = self.leaving.get(session)
        self.joining[session] = mark if leaving is None else leaving.mark

    def joined(self, session: Session) -> None:
        """The session's subscription is about to be confirmed, unless the session has gone meanwhile."""
        leaving = self.leaving.get(session)
        if leaving is not None and leaving.joining:
            leaving.joining = False
        elif self.joining.pop(session, None) is not None:
            if session.hides:
                self.hiding[session] = None
                return
            self._listeners.add(session)
            self._order = None

    def leave(self, session: Session) -> None:
        """The session leaves, and hears all messages published until now."""
        leaving = Leaving(self.joining.get(session))
        self.remove(session)
        self.leaving[session] = leaving

    def left(self, session: Session) -> list[bytes]:
        """The session's leaving is about to be confirmed; gives the messages to pass on before."""
        leaving = self.leaving.pop(session, None)
        return (leaving.kept or []) if leaving is not None else []

    def remove(self, session: Session) -> None:
        """The session gets nothing more."""
        self.joining.pop(session, None)
        self.leaving.pop(session, None)
        self.hiding.pop(session, None)
        self._listeners.discard(session)
        self._order = None

    @property
    def listeners(self) -> tuple[Session, ...]:
        """Sessions that get its messages at once, as they are."""
        if self._order is None:
            self._order = tuple(self._listeners)
        return self._order

    @property
    def is_over(self) -> bool:
        """Whether no session needs it any more, and no message of it can arrive."""
        changing = self.joining or self.leaving
        return not (self.wanted or self.asked or self.ending or changing or self.hiding or self._listeners)
