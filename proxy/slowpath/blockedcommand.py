"""One command at a server on a connection that nobody else uses, and how it is ended before its time.

A command that blocks is ended with CLIENT UNBLOCK over a connection that sessions share. The two connections know
nothing of each other's order, so the server may be told to unblock before it has read the command: it is told again
until the command's own reply has come. What comes is the truth: an element that was popped just then is a reply like
any other, and only ``-UNBLOCKED`` says that nothing was run.

The connection goes back to the pool once every CLIENT UNBLOCK for it has been answered too; a late one would hit
whatever the next session waits for. One of unknown outcome costs the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from proxy.engine.backend import command
from proxy.engine.router import Router
from proxy.ownconnections import OwnConnection, OwnConnections
from proxy.slowpath.everywhere import ask

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Pauses between two CLIENT UNBLOCK, doubled each time."""

ERROR = b"ERROR"
TIMEOUT = b"TIMEOUT"

Talk = Callable[[OwnConnection], Awaitable[bytes]]
"""Sends what there is to send, and gives the reply that counts."""


class StoppedError(Exception):
    """The command was stopped before any of it was sent."""


class BlockedCommand:
    """One command that may wait at a server.

    Args:
        own: where the connection comes from.
        router: where the connection comes from that tells the server to unblock.
        unblock_seconds: how long ending it may take before its connection is given up.
        start: starts a task and holds on to it.
    """

    def __init__(
        self,
        own: OwnConnections,
        router: Router,
        unblock_seconds: float,
        start: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self._own = own
        self._router = router
        self._unblock_seconds = unblock_seconds
        self._start = start
        self._taking: asyncio.Task[OwnConnection] | None = None
        self._connection: OwnConnection | None = None
        self._over = asyncio.Event()
        self._stopped: bytes | None = None
        self._unblocking: asyncio.Future[bool] | None = None

    async def run(self, address: str, database: int, protocol: int, talk: Talk) -> bytes:
        """Have ``talk`` talk with a server; its reply.

        Raises:
            OwnConnectionError: there is no connection to be had.
            StoppedError: :meth:`stop` came before anything was sent.
        """
        try:
            connection = await self._take(address, database, protocol)
        except BaseException:
            self._over.set()
            raise
        self._connection = connection
        try:
            return await talk(connection)
        finally:
            self._over.set()
            if self._unblocking is None:
                self._own.give_back(connection)

    async def _take(self, address: str, database: int, protocol: int) -> OwnConnection:
        if self._stopped is not None:
            raise StoppedError
        self._taking = asyncio.create_task(self._own.take(address, database, protocol))
        try:
            connection = await self._taking
        except asyncio.CancelledError:
            if self._stopped is not None:
                raise StoppedError from None
            raise
        if self._stopped is not None:
            self._own.give_back(connection)
            raise StoppedError
        return connection

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called; one that talks sends nothing more then."""
        return self._stopped is not None

    @property
    def over(self) -> bool:
        """Whether the server runs nothing of it any more."""
        return self._over.is_set()

    def stop(self, reason: bytes = ERROR) -> None:
        """End the command: it is not sent if it has not been, and unblocked if it was.

        ``reason`` is CLIENT UNBLOCK's, and tells which reply it gives.
        """
        if self._stopped is not None or self.over:
            return
        self._stopped = reason
        if self._connection is not None:
            self._unblocking = asyncio.get_running_loop().create_future()
            self._start(self._unblock(self._connection, reason, self._unblocking))
        elif self._taking is not None:
            self._taking.cancel()

    async def unblocked(self) -> bool:
        """Whether it was ended by :meth:`stop`, and not by its own reply; waits until that is known."""
        if self._unblocking is not None:
            return await asyncio.shield(self._unblocking)
        return self._stopped is not None

    async def _unblock(self, connection: OwnConnection, reason: bytes, ended: "asyncio.Future[bool]") -> None:
        request = command(("CLIENT", "UNBLOCK", connection.client_id, reason))
        certain = True
        unblocked = False
        try:
            async with asyncio.timeout(self._unblock_seconds):
                pause = FIRST_PAUSE_SECONDS
                while not self.over and not unblocked:
                    certain_before, certain = certain, False
                    reply = await ask(self._router.shared_backend(connection.address), request)
                    certain = certain_before and reply.startswith(b":")
                    unblocked = reply == b":1\r\n"
                    if not unblocked:
                        await self._pause(pause)
                        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                await self._over.wait()
        except TimeoutError:
            # drained: the backend's loss is settled at the server before a lock there is acknowledged.
            self._own.discard(
                connection,
                f"did not end a blocked command within {self._unblock_seconds:g} s; it may still run there",
            )
        finally:
            ended.set_result(unblocked)
            if certain:
                self._own.give_back(connection)
            else:
                self._own.discard(connection, "may still be told to unblock")

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
