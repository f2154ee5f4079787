"""After settling, nothing that was sent from source to target can arrive: the target has ended what could carry it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from cli.redis_server import RedisServer
from migrator.errors import SourceUnavailable, TargetUnavailable, Unsettled
from migrator.settle import settle
from slots import moving
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from tests.integration.migrator.pairs import INSTANCE, Pair, client_of


class Bare:
    """A connection that says nothing but what it is told to, as a MIGRATE's does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, command: str) -> bytes:
        self.writer.write(f"{command}\r\n".encode())
        return await self.reader.readline()

    async def ended(self) -> bool:
        """Whether the server has closed it; an answer to PING tells that it has not."""
        try:
            return not await self.send("PING")
        except ConnectionError:
            return True


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as one:
        yield one


async def connect(stack: AsyncExitStack, server: RedisServer, *commands: str) -> Bare:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    stack.callback(writer.close)
    bare = Bare(reader, writer)
    for command in commands:
        assert await bare.send(command)
    return bare


async def settled(pair: Pair) -> None:
    await settle(pair.source.address, pair.target.address, access=ServerAccess(), instance=INSTANCE)


async def test_what_could_carry_keys_is_ended_and_nothing_else(pair: Pair, stack: AsyncExitStack) -> None:
    # What MIGRATE's connection did last; a RESTORE that was refused is one, too.
    carriers = [
        await connect(stack, pair.target),
        await connect(stack, pair.target, "SELECT 3"),
        await connect(stack, pair.target, "SELECT 0", "RESTORE key 0 nonsense"),
    ]
    others = [
        await connect(stack, pair.target, "GET key"),
        await connect(stack, pair.target, "CLIENT SETNAME client", "SELECT 3"),
        await connect(stack, pair.source, "SELECT 3"),
    ]
    await settled(pair)
    assert [await one.ended() for one in carriers] == [True] * 3
    assert [await one.ended() for one in others] == [False] * 3


async def test_the_connection_that_a_source_keeps_is_ended_and_made_anew(pair: Pair) -> None:
    migrate = ["MIGRATE", "127.0.0.1", pair.target.port, "key", 0, 1000]
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        for _ in range(2):
            await source.set("key", "value")
            assert await source.execute_command(*migrate) in (b"OK", "OK", True)
            carriers = [entry for entry in await target.client_list() if entry["cmd"].startswith("restore")]
            assert len(carriers) == 1
            await settled(pair)
            assert not [entry for entry in await target.client_list() if entry["cmd"].startswith("restore")]
            assert await target.delete("key") == 1


async def test_migrators_that_were_left_behind_are_ended_at_the_source(pair: Pair, stack: AsyncExitStack) -> None:
    left = await connect(stack, pair.source, f"CLIENT SETNAME {migrator_prefix('f' * 32)}1")
    await settled(pair)
    assert await left.ended()


async def test_connections_that_keep_coming_are_said(
    pair: Pair, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SETTLE_SECONDS", 0.0)
    await connect(stack, pair.target, "SELECT 3")
    with pytest.raises(Unsettled, match="CLIENT SETNAME"):
        await settled(pair)


async def test_servers_that_are_down(fragile_pair: Pair) -> None:
    await fragile_pair.target.stop()
    with pytest.raises(TargetUnavailable):
        await settled(fragile_pair)
    await fragile_pair.source.stop()
    with pytest.raises(SourceUnavailable):
        await settled(fragile_pair)
