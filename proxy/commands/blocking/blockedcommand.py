"""One command at a server on a connection of its own, which ends early when told to.

A command that blocks is ended with CLIENT UNBLOCK over a connection that sessions share. The two connections have no
common order, so the server may get the CLIENT UNBLOCK before it has read the command. So it is sent again until the
command's own reply has come. That reply is the truth: if an element was popped at that moment, the reply has it. Only
``-UNBLOCKED`` says that nothing was run.

**drained**: once sent, a command is followed to its end, even if its client leaves; its slot is held until then.

The connection goes back to the pool once every CLIENT UNBLOCK for it has been answered, too. A late one would hit the
command of the next session. If the outcome of one is unknown, the connection is closed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from proxy.engine.backend import command
from proxy.engine.outcomes import Reply
from proxy.engine.router import Router
from proxy.servers.everywhere import ask
from proxy.servers.ownconnections import OwnConnection, OwnConnections

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Pauses between two CLIENT UNBLOCK; each is twice the one before."""

ERROR = b"ERROR"
TIMEOUT = b"TIMEOUT"


class Unblocking:
    """What blocked commands of one worker need to be ended.

    Args:
        own: takes the commands' connections back.
        router: gives the connections for CLIENT UNBLOCK.
        seconds: how long the end of a command may take before its connection is closed.
        start: starts a task and keeps a reference to it.
    """

    def __init__(
        self, own: OwnConnections, router: Router, seconds: float, start: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        self.own = own
        self.router = router
        self.seconds = seconds
        self.start = start


class BlockedCommand:
    """One command that may wait at a server; ``with`` it, a connection is used for it, and left in the end.

    Args:
        unblocking: what it needs to be ended.
        connection: the connection, which is the command's from now on.
        slot: the slot that is held until the server has nothing left to run of it; -1 for none.
    """

    __slots__ = ("_connection", "_ended", "_sent", "_slot", "_unblocked", "_unblocking", "over", "stopped")

    def __init__(self, unblocking: Unblocking, connection: OwnConnection, slot: int) -> None:
        self._unblocking = unblocking
        self._connection = connection
        self._slot = slot
        self._sent = False
        self._ended: asyncio.Event | None = None
        self._unblocked: asyncio.Future[bool] | None = None
        self.over = False
        """Whether the server has nothing left to run of it."""
        self.stopped = False
        """Whether :meth:`stop` was called; then nothing more may be sent."""

    def __enter__(self) -> Self:
        if self._slot >= 0:
            self._unblocking.router.loop.hold_slot(self._slot)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._sent:
            self._end()
        elif not self.over:
            # The client has left.
            self.stop()

    def ask(self, payload: bytes, seconds: float, before: int = 0) -> Reply[bytes]:
        """Send the command; gives its reply.

        Args:
            payload: the command in RESP, behind requests that have ``before`` replies, which are dropped.
            seconds: how long the reply may take; ``math.inf`` for no limit.
        """
        reply: Reply[bytes] = Reply(loop=self._unblocking.router.loop.event_loop)

        # Not in the handler: the client may leave, and this has to be done all the same.
        def came(text: bytes) -> None:
            self._end()
            reply.give(text)

        self._connection.call(payload, came, seconds, before)
        self._sent = True
        return reply

    def _end(self) -> None:
        self.over = True
        if self._slot >= 0:
            # drained: the server has answered, or the connection is known to be lost.
            self._unblocking.router.loop.release_slot(self._slot)
        if self._ended is None:
            self._unblocking.own.give_back(self._connection)
        else:
            self._ended.set()

    def stop(self, reason: bytes = ERROR) -> None:
        """End the command: if it was sent, it is unblocked.

        ``reason`` is the argument of CLIENT UNBLOCK, and decides which reply comes.
        """
        if self.stopped or self.over:
            return
        self.stopped = True
        if self._sent:
            self._ended = asyncio.Event()
            self._unblocked = asyncio.get_running_loop().create_future()
            self._unblocking.start(self._unblock(reason, self._ended, self._unblocked))

    async def unblocked(self) -> bool:
        """Whether it was ended by :meth:`stop`, and not by its own reply. Waits until that is known."""
        if self._unblocked is not None:
            return await asyncio.shield(self._unblocked)
        return self.stopped

    async def _unblock(self, reason: bytes, ended: asyncio.Event, unblocked: "asyncio.Future[bool]") -> None:
        connection, own = self._connection, self._unblocking.own
        request = command(("CLIENT", "UNBLOCK", connection.client_id, reason))
        certain = True
        heard = False
        try:
            async with asyncio.timeout(self._unblocking.seconds):
                pause = FIRST_PAUSE_SECONDS
                while not self.over and not heard:
                    certain_before, certain = certain, False
                    reply = await ask(self._unblocking.router.shared_backend(connection.address), request)
                    certain = certain_before and reply.startswith(b":")
                    heard = reply == b":1\r\n"
                    if not heard:
                        await _pause(ended, pause)
                        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                await ended.wait()
        except TimeoutError:
            # drained: the lost connection is settled at the server before a lock there is acknowledged.
            own.discard(
                connection,
                f"did not end a blocked command within {self._unblocking.seconds:g} s; it may still run there",
            )
        finally:
            unblocked.set_result(heard)
            if certain:
                own.give_back(connection)
            else:
                own.discard(connection, "may still be told to unblock")


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return
