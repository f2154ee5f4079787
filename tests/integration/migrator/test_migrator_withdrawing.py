"""After a withdrawal, no late step from source to target can do anything: the former permit is at neither."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from migrator.errors import NotApart, SourceUnavailable, TargetUnavailable
from migrator.pair import WRITING
from migrator.withdrawing import withdraw
from slotferry.redis_server import RedisServer
from slots import permits
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.reserved import IN_PIECES, STATE, WANTED
from tests.integration.migrator.pairs import INSTANCE, Pair
from tests.integration.migrator.steps import drop, place, take, taken

OTHER = "f" * 32


class Bare:
    """A connection that says nothing but what it is told to."""

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


async def connect(stack: AsyncExitStack, server: RedisServer, name: str) -> Bare:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    stack.callback(writer.close)
    bare = Bare(reader, writer)
    assert await bare.send(f"CLIENT SETNAME {name}")
    return bare


async def withdrawn(pair: Pair) -> None:
    await withdraw(pair.source.address, pair.target.address, access=ServerAccess(), instance=INSTANCE)


async def test_no_step_of_before_does_anything(pair: Pair, source: Redis, target: Redis) -> None:
    await source.set("key", "value")
    permit = await permits.renew(source, target, pair.target.address)
    found = await taken(source, permit, b"key")
    await source.rpush(WANTED, "0:big")
    await source.hset(STATE, "claim:0:big", f"{IN_PIECES}a mover")
    await withdrawn(pair)
    assert not await source.exists(STATE, WANTED)
    assert not await target.exists(STATE)
    assert await take(source, permit, b"key") is None
    assert await place(target, permit, found) is None
    assert await drop(source, permit, b"key") is None
    assert await source.get("key") == b"value"
    assert not await target.exists("key")


async def test_nothing_is_placed_late_though_the_source_did_not_answer(
    pair: Pair, source: Redis, target: Redis
) -> None:
    await source.set("key", "value")
    permit = await permits.renew(source, target, pair.target.address)
    found = await taken(source, permit, b"key")
    await withdraw(None, pair.target.address, access=ServerAccess(), instance=INSTANCE)
    assert await place(target, permit, found) is None
    assert not await target.exists("key", STATE)
    # Before the slot comes back, it answers again.
    await withdraw(pair.source.address, None, access=ServerAccess(), instance=INSTANCE)
    assert await drop(source, permit, b"key") is None
    assert await source.get("key") == b"value"


async def test_what_moves_the_other_way_goes_on(pair: Pair, source: Redis, target: Redis) -> None:
    """given servers that give slots to each other, only one of the two ways is withdrawn."""
    await target.set("key", "value")
    back = await permits.renew(target, source, pair.source.address)
    found = await taken(target, back, b"key")
    await withdrawn(pair)
    assert await place(source, back, found) == (1, b"")
    assert await drop(target, back, b"key") == 1


async def test_migrators_that_were_left_behind_are_ended_and_nobody_else(pair: Pair, stack: AsyncExitStack) -> None:
    left = [
        await connect(stack, pair.source, f"{migrator_prefix(OTHER)}1"),
        await connect(stack, pair.target, f"{WRITING}{OTHER}.1"),
    ]
    others = [
        await connect(stack, pair.target, "client"),
        await connect(stack, pair.source, f"{WRITING}{OTHER}.2"),
        await connect(stack, pair.target, f"{migrator_prefix(OTHER)}2"),
    ]
    await withdrawn(pair)
    assert [await one.ended() for one in left] == [True] * 2
    assert [await one.ended() for one in others] == [False] * 3


async def test_run_id_a_server_is_not_settled_with_itself(pair: Pair) -> None:
    with pytest.raises(NotApart, match="under two names"):
        await withdraw(pair.source.address, f"localhost:{pair.source.port}", access=ServerAccess(), instance=INSTANCE)


async def test_servers_that_are_down(fragile_pair: Pair) -> None:
    await fragile_pair.target.stop()
    with pytest.raises(TargetUnavailable):
        await withdrawn(fragile_pair)
    await fragile_pair.source.stop()
    with pytest.raises(SourceUnavailable):
        await withdrawn(fragile_pair)
