"""A session that is to end does so between two requests, and at no other time."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import MUTED
from tests.unit.proxy.engine.inprocess import Client, Server, Visit, engine, nothing_stored, until


class Parted:
    """Takes sockets over, and ends the proxy's side of them."""

    def __init__(self) -> None:
        self.socks: list[socket.socket] = []

    def __call__(self, sock: socket.socket) -> None:
        sock.shutdown(socket.SHUT_WR)
        self.socks.append(sock)

    @property
    def count(self) -> int:
        """How many it took over; they are closed."""
        for sock in self.socks:
            sock.close()
        return len(self.socks)


async def quiet() -> None:
    """Let whatever is on its way come."""
    for _ in range(20):
        await asyncio.sleep(0.001)


Answer = Callable[[Visit, list[bytes]], Awaitable[None]]


@asynccontextmanager
async def connected(answer: Answer = nothing_stored) -> AsyncIterator[tuple[Client, Parted, Server]]:
    """A client, and the server. The client takes over the socket of its session when the session ends; it has ended
    after the block."""
    parted = Parted()
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            yield proxy.connect(), parted, server
    assert parted.count == 1


def late(going_on: asyncio.Event) -> Answer:
    """Says that there is no such key, once it goes on."""

    async def answer(visit: Visit, words: list[bytes]) -> None:
        await going_on.wait()
        visit.say(b"$-1\r\n")

    return answer


async def test_one_that_is_idle_ends_at_once() -> None:
    async with connected() as (client, parted, _):
        await client.send(("GET", "k"))
        assert await client.read(5) == b"$-1\r\n"
        client.session.retire(parted)
        assert await client.read(1) == b""
        assert client.session.closed


async def test_what_is_owed_comes_first() -> None:
    going_on = asyncio.Event()
    async with connected(late(going_on)) as (client, parted, _):
        await client.send(("GET", "k"), ("GET", "k"))
        await until(lambda: client.session.owed == 2)
        client.session.retire(parted)
        await quiet()
        assert not client.session.closed
        going_on.set()
        assert await client.read(11) == b"$-1\r\n" * 2
        assert client.session.closed


async def test_a_request_that_has_come_in_part_is_waited_for() -> None:
    async with connected() as (client, parted, _):
        request = command((b"GET", b"k"))
        await client.send_bytes(request[:9])
        await until(lambda: client.session.unparsed == 9)
        client.session.retire(parted)
        await quiet()
        assert not client.session.closed
        await client.send_bytes(request[9:])
        assert await client.read(6) == b"$-1\r\n"


async def test_a_request_that_waits_in_the_socket_is_served() -> None:
    async with connected() as (client, parted, _):
        await client.send(("GET", "k"))
        # Before the loop has looked at the socket.
        client.session.retire(parted)
        assert await client.read(6) == b"$-1\r\n"
        assert client.session.closed


@pytest.mark.parametrize("place", ["transaction", "watch"])
async def test_a_transaction_or_a_watch_is_waited_for(place: str) -> None:
    async with connected() as (client, parted, _):
        holder = client.session
        if place == "transaction":
            holder = client.session.state = SimpleNamespace(transaction=None)
        setattr(holder, place, object())
        client.session.retire(parted)
        await quiet()
        assert not client.session.closed
        setattr(holder, place, None)
        client.session.state = None
        client.session.retire(parted)
        assert await client.read(1) == b""


async def test_one_that_is_cut_takes_nothing_more_and_gets_what_it_is_owed() -> None:
    going_on = asyncio.Event()
    async with connected(late(going_on)) as (client, parted, server):
        await client.send(("GET", "k"))
        await until(lambda: client.session.owed == 1)
        client.session.cut(parted)
        await client.send(("GET", "never"))
        going_on.set()
        assert await client.read(11) == b"$-1\r\n"
        assert [words for visit in server.visits for words in visit.asked] == [[b"GET", b"k"]]


async def test_one_whose_replies_are_not_wanted_ends_when_it_is_looked_at_again() -> None:
    async with connected() as (client, parted, server):
        client.session.muted = MUTED
        await client.send(("SET", "k", "v"))
        await until(lambda: any(visit.asked for visit in server.visits))
        client.session.retire(parted)
        while not client.session.closed:
            await quiet()
            client.session.retire(parted)
