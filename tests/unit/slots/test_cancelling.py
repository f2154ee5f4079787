"""A cancellation in the instant in which redis-py has sent a command."""

import asyncio
from collections.abc import Iterable

import pytest
from redis.asyncio.connection import Connection

from slots.access import ServerAccess


async def test_who_is_cancelled_while_it_sends_ends(monkeypatch: pytest.MonkeyPatch, redis_address: str) -> None:
    """...and what it sends after that to clean up is sent, and answered with nothing that was owed."""
    host, _, port = redis_address.rpartition(":")
    client = ServerAccess().client(host, int(port), socket_timeout=30)
    cleaned: list[bytes] = []

    async def ask() -> None:
        try:
            for _ in range(3):
                await client.execute_command("PING")
        finally:
            monkeypatch.undo()
            cleaned.append(await client.echo("cleaned"))

    sent = Connection._send_packed_command

    async def send(self: Connection, command: Iterable[bytes]) -> None:
        await sent(self, command)
        asking.cancel()

    async with asyncio.timeout(20), client:
        await client.ping()
        asking = asyncio.create_task(ask())
        monkeypatch.setattr(Connection, "_send_packed_command", send)
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert cleaned == [b"cleaned"]
