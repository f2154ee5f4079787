"""One command on a connection of a session's own, followed to its end, even if the client leaves.

**drained**: the command's slot is held until its server has nothing left to run of it: until the reply has come, or the
connection is known to be lost.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from proxy.engine.outcomes import Reply
from proxy.engine.requests import Loop
from proxy.servers.ownconnections import OwnConnection, OwnConnections


class OwnCommand:
    """A command; ``with`` it, a connection is used, and given back in the end. If the client leaves before the reply
    has come, the connection is closed.

    Args:
        own: takes the connection back.
        loop: the worker's loop, which counts what is under way for a slot.
        connection: the connection, which is the command's from now on.
        slot: the slot that is held; -1 for none.
    """

    def __init__(self, own: OwnConnections, loop: Loop, connection: OwnConnection, slot: int) -> None:
        self._own = own
        self._loop = loop
        self._connection = connection
        self._slot = slot
        self._sent = False
        self.over = False
        """Whether the server has nothing left to run of it."""

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def begin(self) -> Self:
        """From now on the slot is held, until the end. Without ``with``, call :meth:`leave` if the client leaves."""
        if self._slot >= 0:
            self._loop.hold_slot(self._slot)
        return self

    def leave(self) -> None:
        """Nobody waits for the reply any more."""
        if self.over:
            return
        if self._sent:
            self._leave()
        else:
            self._end()

    def ask(self, payload: bytes, seconds: float, before: int = 0) -> Reply[bytes]:
        """Send the command, as :meth:`send`; gives its reply."""
        reply: Reply[bytes] = Reply(loop=self._loop.event_loop)
        self.send(payload, seconds, reply.give, before)
        return reply

    def send(self, payload: bytes, seconds: float, heard: Callable[[bytes], None], before: int = 0) -> None:
        """Send the command; ``heard`` gets its reply, even if the client has left.

        Args:
            payload: the command in RESP, behind requests that have ``before`` replies, which are dropped.
            seconds: how long the reply may take; ``math.inf`` for no limit.
            heard: called once.
            before: see ``payload``.

        Raises:
            MemoryError: nothing was sent.
        """

        # Not in the handler: the client may leave, and this has to be done all the same.
        def came(reply: bytes) -> None:
            try:
                self._end()
            finally:
                heard(reply)

        self._connection.call(payload, came, seconds, before)
        self._sent = True

    def _end(self) -> None:
        """Nothing is left of it at the server."""
        self.over = True
        if self._slot >= 0:
            self._loop.release_slot(self._slot)
        self._let_go()

    def _let_go(self) -> None:
        """Nothing is under way on the connection."""
        self._own.give_back(self._connection)

    def _leave(self) -> None:
        """The client has left."""
        self._own.discard(self._connection, "was given up, because its client has left")
