import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from proxy.supervisor import leftovers as module
from proxy.supervisor.leftovers import Leftovers
from slots.access import ServerAccess
from tests.unit.proxy.proxy_fakes import SECONDS


@pytest.fixture
def dead_port() -> Iterator[str]:
    """An address at which nobody listens, for as long as the test runs."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@asynccontextmanager
async def leftovers(ended: asyncio.Event, password: str = "") -> AsyncIterator[Leftovers]:
    tried = Leftovers(ServerAccess(password), ended.set)
    yield tried
    await tried.close()


def connect(server: str, name: str) -> redis.Redis:
    client = redis.Redis(port=int(server.rpartition(":")[2]), client_name=name, single_connection_client=True)
    client.ping()
    return client


def names(server: str) -> set[str]:
    with redis.Redis(port=int(server.rpartition(":")[2])) as client:
        return {str(entry["name"]) for entry in client.client_list()}


async def test_connections_of_the_dead_are_ended_and_no_others(redis_server: str) -> None:
    with connect(redis_server, "slotferry.proxy.a.1.x"), connect(redis_server, "slotferry.proxy.a.12.x"):
        ended = asyncio.Event()
        async with leftovers(ended) as tried:
            tried.hold("slotferry.proxy.a.1.", {redis_server: {1, 2}})
            assert tried.groups == {1, 2}
            tried.begin("slotferry.proxy.a.1.")
            await asyncio.wait_for(ended.wait(), SECONDS)
            assert tried.groups == frozenset()
            assert tried.servers == []
        found = names(redis_server)
    assert "slotferry.proxy.a.1.x" not in found
    assert "slotferry.proxy.a.12.x" in found


async def test_an_unreachable_server_stays_and_does_not_delay_the_others(redis_server: str, dead_port: str) -> None:
    ended = asyncio.Event()
    async with leftovers(ended) as tried:
        tried.hold("p.", {redis_server: {1}, dead_port: {2}})
        tried.begin("p.")
        await asyncio.wait_for(ended.wait(), SECONDS)
        assert tried.groups == {2}
        assert tried.servers == [dead_port]
        assert not await tried.wait(0.01)


async def test_a_server_that_comes_back_is_dealt_with(redis_server: str) -> None:
    """Here the server works again after a while: it refuses the connection until a password is set."""
    ended = asyncio.Event()
    with redis.Redis(port=int(redis_server.rpartition(":")[2])) as admin:
        async with leftovers(ended, password="pw") as tried:
            tried.hold("p.", {redis_server: {1}})
            tried.begin("p.")
            assert not await tried.wait(0.05)
            admin.config_set("requirepass", "pw")
            assert await tried.wait(SECONDS)
            assert ended.is_set()


async def test_a_connection_that_is_reset_meanwhile_is_tried_again(
    redis_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given uvloop, writing to a connection that was reset just now raises RuntimeError."""
    real, errors = module.end_connections, [RuntimeError("the handler is closed")]

    async def end_connections(client: Any, prefix: str) -> int:
        if errors:
            raise errors.pop()
        return await real(client, prefix)

    monkeypatch.setattr(module, "end_connections", end_connections)
    async with leftovers(asyncio.Event()) as tried:
        tried.hold("p.", {redis_server: {1}})
        tried.begin("p.")
        assert await tried.wait(SECONDS)
        assert not errors


async def test_what_is_only_held_is_not_ended(redis_server: str) -> None:
    async with leftovers(asyncio.Event()) as tried:
        tried.hold("p.", {redis_server: {1}})
        assert not await tried.wait(0.01)
        assert tried.groups == {1}


async def test_servers_that_left_the_table_are_forgotten(dead_port: str) -> None:
    async with leftovers(asyncio.Event()) as tried:
        tried.hold("p.", {dead_port: {1}})
        tried.begin("p.")
        tried.keep_only({dead_port})
        assert tried.groups == {1}
        tried.keep_only(set())
        assert tried.groups == frozenset()
        assert await tried.wait(SECONDS)
