"""Where the target may have a copy of a key, the permit of before does not hold: nobody deletes the source's by it.

Who deletes a key at the source has asked the target before whether it has one of that name, under the same permit.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import hiredis
import pytest
import redis.exceptions

from migrator.claims import drop_claims
from migrator.connection import Connection
from migrator.errors import SourceRefused, SourceUnavailable
from slots.access import ServerAccess
from slots.connections import RedisClient
from slots.moving import DELETE, MOVE, STATE, move_arguments, run_id_of
from tests.integration.migrator.pairs import Pair, client_of

pytestmark = pytest.mark.parametrize("carried", [False])
"""Whoever moves keys, sent or carried: the scripts at the source are the same."""

Answer = Callable[[int], bytes]
"""What a target says to the nth RESTORE."""


@asynccontextmanager
async def fake_target(answer: Answer) -> AsyncIterator[int]:
    """The port of a target that is of one mind with ``answer``."""
    restores = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal restores
        requests = hiredis.Reader()
        try:
            while data := await reader.read(65536):
                requests.feed(data)
                while (argv := requests.gets()) is not False:
                    said = b"+OK\r\n"
                    if argv[0].upper().startswith(b"RESTORE"):
                        said = answer(restores)
                        restores += 1
                    writer.write(said)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def permit_at(source: RedisClient) -> str:
    """One that holds at a source with the key ``key``."""
    permit = f"{run_id_of(await source.execute_command('INFO', 'server'))} target {'0' * 40} random"
    await source.set("key", "value")
    await source.hset(STATE, "permit", permit)
    return permit


async def move(source: RedisClient, permit: str, port: int, host: str = "127.0.0.1") -> str:
    """The error by which a move fails."""
    arguments = move_arguments(
        permit,
        (host, port),
        0,
        500,
        check=True,
        most_elements=100,
        most_bytes=10_000,
        enough_bytes=10_000,
        wanted=False,
        keeps_target=False,
        login=(),
    )
    try:
        await source.execute_command("EVAL", MOVE, 1, "key", *arguments)
    except redis.exceptions.ResponseError as error:
        return str(error)
    raise AssertionError("it was moved")


async def is_deleted(source: RedisClient, permit: str) -> bool:
    """Whether the key can be deleted by a permit."""
    with suppress(redis.exceptions.ResponseError):
        await source.execute_command("EVAL", DELETE, 2, STATE, "key", permit, 0, 0)
    return not await source.exists("key")


async def test_a_target_that_is_not_reached_may_have_the_key(pair: Pair) -> None:
    """MIGRATE repeats itself over a new connection if one breaks off, and then what it says is of the new one."""
    async with client_of(pair.source) as source:
        permit = await permit_at(source)
        error = await move(source, permit, 1, host="255.255.255.255")
        assert "IOERR" in error
        assert "connecting" in error
        assert not await is_deleted(source, permit)


async def test_a_target_that_has_the_key_and_does_not_let_it_be_replaced(pair: Pair) -> None:
    said = [b"-BUSYKEY Target key name already exists.\r\n", b"-OOM command not allowed\r\n"]
    async with client_of(pair.source) as source, fake_target(said.__getitem__) as port:
        permit = await permit_at(source)
        assert "OOM" in await move(source, permit, port)
        assert not await is_deleted(source, permit)


async def test_a_target_that_takes_nothing_has_nothing(pair: Pair) -> None:
    """It is this for which the permit has to last: else nothing could be deleted while a target is full."""
    async with client_of(pair.source) as source, fake_target(lambda number: b"-OOM command not allowed\r\n") as port:
        permit = await permit_at(source)
        assert "OOM" in await move(source, permit, port)
        assert await is_deleted(source, permit)


async def test_a_claim_that_is_dropped_may_have_left_a_copy(pair: Pair) -> None:
    async with client_of(pair.source) as source:
        connection = await Connection.open(
            pair.source.address,
            name="test",
            access=ServerAccess(),
            unavailable=SourceUnavailable,
            refused=SourceRefused,
            timeouts=pair.timeouts,
        )
        permit = await permit_at(source)
        await drop_claims(connection)
        assert await source.hget(STATE, "permit") == permit.encode()
        await source.hset(STATE, "claim:0:key", "somebody who is gone")
        await drop_claims(connection)
        assert not await is_deleted(source, permit)
        assert await source.hkeys(STATE) == [b"unsettled"]
        connection.close()
