"""Connections of redis-py whose users end when they are cancelled.

redis-py sends within ``asyncio.wait_for``. Before Python 3.12 that drops a cancellation that comes in the same instant
as the result. The cancelled task would then go on for ever, and so would the wait for its end: a topom that had lost
its lease could not end what it did as the leader.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection

from slots.replies import understood


class _Heeding(AbstractConnection):
    """Raises a cancellation that was dropped. The command was already sent, so the connection is closed: its reply is
    owed."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        task = asyncio.current_task()
        # A task that handles its cancellation may send commands to clean up.
        before = task.cancelling() if task is not None else 0
        await super().send_packed_command(command, check_health)
        if task is not None and task.cancelling() > before:
            await self.disconnect(nowait=True)
            raise asyncio.CancelledError

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """A reply, which is text where text was asked for."""
        with understood("a command"):
            return await super().read_response(*arguments, **options)


class HeedingConnection(_Heeding, Connection):
    """A connection in the clear."""


class HeedingTlsConnection(_Heeding, SSLConnection):
    """A connection over TLS."""
