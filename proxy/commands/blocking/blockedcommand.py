"""One command at a server on a connection of its own, which ends early when told to.

A command that blocks is ended with CLIENT UNBLOCK over a connection that sessions share. The two connections have no
common order, so the server may get the CLIENT UNBLOCK before it has read the command. So it is sent again until the
command's own reply has come. That reply is the truth: if an element was popped at that moment, the reply has it. Only
``-UNBLOCKED`` says that nothing was run.

The connection goes back to the pool once every CLIENT UNBLOCK for it has been answered, too. A late one would hit the
command of the next session. If the outcome of one is unknown, the connection is closed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.engine.backend import command
from proxy.engine.router import Router
from proxy.servers.everywhere import ask
from proxy.servers.owncommand import OwnCommand
from proxy.servers.ownconnections import OwnConnection, OwnConnections

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Pauses between two CLIENT UNBLOCK; each is twice the one before."""

ERROR = b"ERROR"
TIMEOUT = b"TIMEOUT"


class BlockedCommand(OwnCommand):
    """A command that is ended at the server when its client leaves, or when :meth:`stop` is called.

    Args:
        own: takes the connection back.
        router: gives the connection for CLIENT UNBLOCK.
        unblock_seconds: how long the end may take before the connection is closed.
        start: starts a task and keeps a reference to it.
        connection: the connection, which is the command's from now on.
        slot: the slot that is held; -1 for none.
    """

    def __init__(
        self,
        own: OwnConnections,
        router: Router,
        unblock_seconds: float,
        start: Callable[[Coroutine[Any, Any, None]], Any],
        connection: OwnConnection,
        slot: int,
    ) -> None:
        super().__init__(own, router.loop, connection, slot)
        self._router = router
        self._unblock_seconds = unblock_seconds
        self._start = start
        self._ended: asyncio.Event | None = None
        self._unblocked: asyncio.Future[bool] | None = None
        self.stopped = False
        """Whether :meth:`stop` was called; then nothing more may be sent."""

    def _let_go(self) -> None:
        if self._ended is None:
            super()._let_go()
        else:
            self._ended.set()

    def _leave(self) -> None:
        self.stop()

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
            self._start(self._unblock(reason, self._ended, self._unblocked))

    async def unblocked(self) -> bool:
        """Whether it was ended by :meth:`stop`, and not by its own reply. Waits until that is known."""
        if self._unblocked is not None:
            return await asyncio.shield(self._unblocked)
        return self.stopped

    async def _unblock(self, reason: bytes, ended: asyncio.Event, unblocked: "asyncio.Future[bool]") -> None:
        connection = self._connection
        request = command(("CLIENT", "UNBLOCK", connection.client_id, reason))
        certain = True
        heard = False
        try:
            async with asyncio.timeout(self._unblock_seconds):
                pause = FIRST_PAUSE_SECONDS
                while not self.over and not heard:
                    certain_before, certain = certain, False
                    reply = await ask(self._router.shared_backend(connection.address), request)
                    certain = certain_before and reply.startswith(b":")
                    heard = reply == b":1\r\n"
                    if not heard:
                        await _pause(ended, pause)
                        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                await ended.wait()
        except TimeoutError:
            # drained: the lost connection is ended by the server before a lock there is acknowledged.
            self._own.discard(
                connection,
                f"did not end a blocked command within {self._unblock_seconds:g} s; it may still run there",
            )
        finally:
            unblocked.set_result(heard)
            if certain:
                self._own.give_back(connection)
            else:
                self._own.discard(connection, "may still be told to unblock")


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return
