"""Connections of sessions' own: given out once, kept within limits, never used again once something is wrong."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from proxy.engine.backend import command
from proxy.engine.requests import Loop
from proxy.servers import ownconnections
from proxy.servers.backends import BackendOptions
from proxy.servers.ownconnections import OwnConnectionError, OwnConnections
from proxy.settings import ProxySettings
from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer, ask, start_redis

LIMIT = 60.0
CLIENT_ID = command(("CLIENT", "ID"))
BLOCK = command(("BLPOP", "nothing", "0"))


class Pool(OwnConnections):
    """The connections under test, and what they tell the worker."""

    def __init__(self, **settings: Any) -> None:
        chosen = ProxySettings(**settings)
        self.lost: list[tuple[str, str]] = []
        self.options = BackendOptions(
            chosen, "f" * 32, 1, lambda *loss: self.lost.append(loss), lambda address: None, lambda address: None
        )
        self.loop = Loop(asyncio.get_running_loop(), 16)
        super().__init__(self.loop, self.options, chosen)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Let time pass as a worker does until a condition holds."""
        async with asyncio.timeout(LIMIT):
            while True:
                self.loop.tick()
                self.tick()
                met = condition()
                if met if isinstance(met, bool) else await met:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    started = await start_redis("redis", tmp_path)
    yield started
    await started.stop()


async def open_at(server: RedisServer) -> list[dict[str, str]]:
    """The server's connections, without the one that asks."""
    async with redis.asyncio.Redis(port=server.port) as client:
        return [entry for entry in await client.client_list() if entry["name"].startswith("slotferry.")]


async def test_what_was_given_back_is_given_out_again_to_its_like(server: RedisServer) -> None:
    pool = Pool()
    first = await pool.take(server.address, 3, 2)
    assert await first.ask(CLIENT_ID) == b":%d\r\n" % first.client_id
    assert (await open_at(server))[0]["db"] == "3"
    second = await pool.take(server.address, 3, 2)
    assert second is not first
    pool.give_back(first)
    assert (pool.in_use, pool.idle) == (1, 1)
    for kind in ((server.address, 3, 3), (server.address, 0, 2)):
        other = await pool.take(*kind)
        assert other is not first
        assert other.kind == kind
    assert await pool.take(server.address, 3, 2) is first
    assert pool.idle == 0


async def test_no_more_than_the_limit(server: RedisServer) -> None:
    pool = Pool(own_connections=2)
    first = await pool.take(server.address, 0, 2)
    await pool.take(server.address, 0, 2)
    with pytest.raises(OwnConnectionError, match=r"^ERR max number of blocked clients .* all 2 connections") as raised:
        await pool.take(server.address, 0, 2)
    assert raised.value.reply.startswith(b"-ERR max number of blocked clients")
    pool.give_back(first)
    # An idle connection of another kind makes room.
    await pool.take(server.address, 1, 2)
    assert len(pool) == 2
    await pool.until(lambda: _count(server, 2))


async def _count(server: RedisServer, count: int) -> bool:
    return len(await open_at(server)) == count


async def test_those_that_nobody_needs_end(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    taken = [await pool.take(server.address, 0, 2) for _ in range(4)]
    for connection in taken:
        pool.give_back(connection)
    assert (pool.in_use, pool.idle) == (0, 4)
    # Those that were used last are used first.
    used = [await pool.take(server.address, 0, 2) for _ in range(2)]
    assert set(used) == set(taken[2:])
    monkeypatch.setattr(ownconnections, "IDLE_SECONDS", 0.01)
    await pool.until(lambda: pool.idle == 0)
    assert pool.in_use == 2
    assert not any(connection.lost for connection in used)


async def test_a_lost_connection_is_not_given_out(server: RedisServer) -> None:
    pool = Pool()
    connection = await pool.take(server.address, 0, 2)
    pool.give_back(connection)
    await ask(server.address, "CLIENT", "KILL", "ID", str(connection.client_id))
    await pool.until(lambda: connection.lost)
    assert await pool.take(server.address, 0, 2) is not connection
    # Nor does it connect again for a session that uses it: the session's state at the server is gone.
    connection = await pool.take(server.address, 0, 2)
    await ask(server.address, "CLIENT", "KILL", "ID", str(connection.client_id))
    await pool.until(lambda: connection.lost)
    assert (await connection.ask(CLIENT_ID)).startswith(b"-ERR server %b closed" % server.address.encode())
    assert connection.backend.connects == 1
    pool.give_back(connection)
    assert pool.idle == 0


async def test_one_with_a_reply_outstanding_is_ended_and_told_of(server: RedisServer) -> None:
    pool = Pool()
    connection = await pool.take(server.address, 0, 2)
    name = connection.backend.name
    waiting = asyncio.ensure_future(connection.ask(BLOCK, math.inf))
    await pool.until(lambda: connection.backend.queued == 1)
    await pool.until(lambda: _blocked(server))
    assert pool.in_flight == 1
    pool.give_back(connection)
    assert len(pool) == 0
    assert pool.lost == [(server.address, name)]
    assert (await waiting).startswith(b"-ERR server")


async def _blocked(server: RedisServer) -> bool:
    return any("b" in entry["flags"] for entry in await open_at(server))


async def test_the_limit_of_a_reply(server: RedisServer) -> None:
    pool = Pool(backend_reply_seconds=0.2)
    connection = await pool.take(server.address, 0, 2)
    waiting = asyncio.ensure_future(connection.ask(BLOCK))
    await pool.until(lambda: connection.lost)
    assert b"did not reply within 0.2 s" in await waiting
    # The longest limit holds for all that is under way.
    connection = await pool.take(server.address, 0, 2)
    asks = [asyncio.ensure_future(connection.ask(BLOCK, seconds)) for seconds in (math.inf, None)]
    await pool.until(lambda: connection.backend.queued == 2)
    assert connection.backend.reply_seconds == math.inf
    await ask(server.address, "RPUSH", "nothing", "a", "b")
    assert [reply[-8:] for reply in await asyncio.gather(*asks)] == [b"\n$1\r\na\r\n", b"\n$1\r\nb\r\n"]
    await connection.ask(CLIENT_ID)
    assert connection.backend.reply_seconds == 0.2


async def test_a_server_that_left_the_table(server: RedisServer) -> None:
    pool = Pool(backend_reply_seconds=0.2)
    idle, used, stuck = [await pool.take(server.address, 0, 2) for _ in range(3)]
    pool.give_back(idle)
    waiting = asyncio.ensure_future(stuck.ask(BLOCK, math.inf))
    await pool.until(lambda: _blocked(server))
    pool.keep_servers({"127.0.0.1:1"})
    assert pool.idle == 0
    # A session that uses one may still finish with it.
    assert await used.ask(CLIENT_ID) == b":%d\r\n" % used.client_id
    pool.give_back(used)
    assert pool.idle == 0
    await pool.until(lambda: pool.in_use == 0)
    assert b"is no longer in the slot table" in await waiting
    # It may come back.
    connection = await pool.take(server.address, 0, 2)
    pool.keep_servers(())
    pool.keep_servers({server.address})
    pool.give_back(connection)
    assert pool.idle == 1


async def test_all_end_when_the_proxy_takes_another_name(server: RedisServer) -> None:
    pool = Pool()
    connection = await pool.take(server.address, 0, 2)
    pool.give_back(await pool.take(server.address, 0, 2))
    waiting = asyncio.ensure_future(connection.ask(BLOCK, math.inf))
    await pool.until(lambda: _blocked(server))
    pool.reset("was left")
    assert len(pool) == 0
    assert b"was left" in await waiting
    await pool.take(server.address, 0, 2)


async def test_whoever_gives_up_waiting_for_a_connection_leaves_it_to_the_next(server: RedisServer) -> None:
    pool = Pool()
    taking = asyncio.create_task(pool.take(server.address, 0, 2))
    while not pool.in_use:
        await asyncio.sleep(0)
    taking.cancel()
    await pool.until(lambda: pool.idle == 1)
    assert taking.cancelled()
    assert pool.in_use == 0
    assert pool.lost == []


async def test_a_server_that_cannot_be_reached_is_not_tried_for_everyone() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    pool = Pool(backend_retry_seconds_min=30.0, backend_retry_seconds_max=30.0)
    for _ in range(3):
        with pytest.raises(OwnConnectionError, match=f"^ERR server {address} cannot be connected to"):
            await pool.take(address, 0, 2)
    assert len(pool) == 0
    # One connection was tried, so the next name is the second.
    assert pool.options.new_name().endswith(".2.")
