"""Runs one command at a server on a connection of its own, and ends the command early when told to.

A command that blocks is ended with CLIENT UNBLOCK over a connection that sessions share. The two connections have no
common order, so the server may get the CLIENT UNBLOCK before it has read the command. So it is sent again until the
command's own reply has come. That reply is the truth: if an element was popped at that moment, the reply has it. Only
``-UNBLOCKED`` says that nothing was run.

The connection goes back to the pool once every CLIENT UNBLOCK for it has been answered, too. A late one would hit the
command of the next session. If the outcome of one is unknown, the connection is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from proxy.engine.backend import command
from proxy.engine.router import Router
from proxy.servers.everywhere import ask
from proxy.servers.ownconnections import OwnConnection, OwnConnections

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Pauses between two CLIENT UNBLOCK; each is twice the one before."""

ERROR = b"ERROR"
TIMEOUT = b"TIMEOUT"

Talk = Callable[[OwnConnection], Awaitable[bytes]]
"""Sends the requests, and gives the reply that counts."""


class StoppedError(Exception):
    """The command was stopped before any of it was sent."""


class BlockedCommand:
    """One command that may wait at a server.

    Args:
        own: gives the connection of the command.
        router: gives the connection for CLIENT UNBLOCK.
        unblock_seconds: how long the end may take before the connection is closed.
        start: starts a task and keeps a reference to it.
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
        """Have ``talk`` use the connection; give its reply.

        Raises:
            OwnConnectionError: no connection is available.
            StoppedError: :meth:`stop` was called before anything was sent.
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
        idle = self._own.take_idle(address, database, protocol)
        if idle is not None:
            return idle
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
        """Whether :meth:`stop` was called; then ``talk`` sends nothing more."""
        return self._stopped is not None

    @property
    def over(self) -> bool:
        """Whether the server has nothing left to run of it."""
        return self._over.is_set()

    def stop(self, reason: bytes = ERROR) -> None:
        """End the command: if it was sent, it is unblocked, else it is not sent.

        ``reason`` is the argument of CLIENT UNBLOCK, and decides which reply comes.
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
        """Whether it was ended by :meth:`stop`, and not by its own reply. Waits until that is known."""
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
            # drained: the lost connection is settled at the server before a lock there is acknowledged.
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
