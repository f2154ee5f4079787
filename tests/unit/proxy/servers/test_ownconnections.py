"""Sessions' own connections at a server that cannot end a wait."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from proxy.engine.backend import Backend
from proxy.engine.requests import Loop
from proxy.engine.router import OPEN
from proxy.servers import ownconnections
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError, OwnConnections
from proxy.settings import ProxySettings
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, nothing_stored, options, until


async def serve_old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Redis 3.2, as far as a connection's beginning goes."""
    while line := await reader.readline():
        words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
        match words[:2]:
            case [b"CLIENT", b"ID"]:
                writer.write(b"-ERR Syntax error, try CLIENT (LIST | KILL | GETNAME | SETNAME | PAUSE | REPLY)\r\n")
            case [b"ACL", _]:
                writer.write(b"-ERR unknown command 'ACL'\r\n")
            case _:
                writer.write(b"+OK\r\n")
    writer.close()


async def test_a_server_before_redis_5_is_named_and_can_be_tried_again_at_once() -> None:
    server = await asyncio.start_server(serve_old, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    own = OwnConnections(Loop(asyncio.get_running_loop(), 16), options(), ProxySettings())
    for _ in range(2):
        async with asyncio.timeout(60):
            with pytest.raises(OwnConnectionError, match=f"server {address} is older than Redis 5, which"):
                await own.take(address, 0, 2)
    assert len(own) == 0
    server.close()


class Numbering(Server):
    """It tells a connection's number once it may."""

    def __init__(self) -> None:
        super().__init__(nothing_stored)
        self.asked_for_number = False
        self.let_go = asyncio.Event()

    async def greet(self, visit: Visit, words: list[bytes]) -> None:
        if words != [b"CLIENT", b"ID"]:
            await super().greet(visit, words)
            return
        self.asked_for_number = True
        await self.let_go.wait()
        visit.say(b":7\r\n")


async def test_one_owner_a_slot_that_moves_while_its_connection_is_made() -> None:
    """The keys' way is looked at again, and the connection to the former server is kept for others."""
    async with Numbering() as former, Numbering() as newer:
        newer.let_go.set()
        with engine(former.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
            client = proxy.connect()
            found: list[str] = []

            async def handler() -> bytes:
                connection, _ = await own.take_for(client.session, [b"k"])
                found.append(connection.address)
                own.give_back(connection)
                return b"+OK\r\n"

            proxy.slow_path.handlers[b"NOSUCH"] = handler
            await client.send(("NOSUCH",))
            await until(lambda: former.asked_for_number)
            proxy.route(OPEN, newer.address)
            proxy.router.next_generation()
            former.let_go.set()
            assert await client.read(5) == b"+OK\r\n"
            assert found == [newer.address]
            assert (own.in_use, own.idle) == (0, 2)
            own.reset("the test is over")


async def test_a_caller_that_is_cancelled_as_its_connection_is_there_takes_none() -> None:
    async with Numbering() as server:
        with engine(server.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
            task = own.make(server.address, 0, 2)
            caller = asyncio.create_task(own.made(task))
            # It is called before the caller goes on.
            task.add_done_callback(lambda _: caller.cancel())
            server.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert not task.cancelled()
            assert (own.in_use, own.idle) == (0, 1)
            own.reset("the test is over")


async def test_a_client_that_leaves_as_its_connection_is_there_takes_none() -> None:
    async with Numbering() as server:
        with engine(server.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
            client = proxy.connect()

            def leave(task: "asyncio.Task[OwnConnection]", slot: int) -> None:
                task.add_done_callback(lambda _: client.session.close())

            async def handler() -> bytes:
                await own.take_for(client.session, [b"k"], leave)
                return b"+OK\r\n"

            proxy.slow_path.handlers[b"NOSUCH"] = handler
            await client.send(("NOSUCH",))
            await until(lambda: server.asked_for_number)
            server.let_go.set()
            await until(lambda: client.session.closed and own.in_use == 0)
            assert own.idle == 1
            own.reset("the test is over")


async def test_bounded_a_connection_that_cannot_be_made_for_want_of_memory_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoMemory(Backend):
        def call(self, payload: bytes, callback: Callable[[bytes], None], before: int = 0) -> None:
            raise MemoryError

    monkeypatch.setattr(ownconnections, "Backend", NoMemory)
    own = OwnConnections(Loop(asyncio.get_running_loop(), 16), options(), ProxySettings())
    with pytest.raises(MemoryError):
        await own.take("127.0.0.1:1", 0, 2)
    assert len(own) == 0


async def test_bounded_servers_that_stay_out_of_the_table() -> None:
    """Their connections that are in use have their time from when they left, however many tables follow."""
    async with Server(nothing_stored) as server:
        own = OwnConnections(Loop(asyncio.get_running_loop(), 16), options(), ProxySettings())
        connection = await own.take(server.address, 0, 2)
        own.keep_servers(())
        since = connection.orphaned_at
        await asyncio.sleep(0.01)
        own.keep_servers(())
        assert connection.orphaned_at == since
        own.reset("the test is over")


async def test_a_server_that_comes_back_into_the_table_is_tried_at_once() -> None:
    tried: list[None] = []

    def new_name() -> str:
        tried.append(None)
        return "name."

    settings = ProxySettings(backend_retry_seconds_min=60.0, backend_retry_seconds_max=60.0)
    own = OwnConnections(Loop(asyncio.get_running_loop(), 16), options(new_name=new_name), settings)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    for before in (1, 1):
        with pytest.raises(OwnConnectionError, match="cannot be connected to"):
            await own.take(address, 0, 2)
        assert len(tried) == before
    own.keep_servers(())
    with pytest.raises(OwnConnectionError, match="cannot be connected to"):
        await own.take(address, 0, 2)
    assert len(tried) == 2


async def test_a_connection_that_is_ended_from_here_while_it_is_made_says_nothing_about_its_server() -> None:
    async with Numbering() as server:
        own = OwnConnections(Loop(asyncio.get_running_loop(), 16), options(), ProxySettings())
        making = own.make(server.address, 0, 2)
        await until(lambda: server.asked_for_number)
        own.leave([server.address], "has another master")
        with pytest.raises(OwnConnectionError, match="has another master"):
            await making
        server.let_go.set()
        connection = await own.take(server.address, 0, 2)
        assert connection.client_id == 7
        own.reset("the test is over")
