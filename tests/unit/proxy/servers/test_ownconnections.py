"""Sessions' own connections at a server that cannot end a wait."""

import asyncio

import pytest

from proxy.engine.requests import Loop
from proxy.servers.ownconnections import OwnConnectionError, OwnConnections
from proxy.settings import ProxySettings
from tests.unit.proxy.engine.inprocess import options


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
        async with asyncio.timeout(10):
            with pytest.raises(OwnConnectionError, match=f"server {address} is older than Redis 5, which"):
                await own.take(address, 0, 2)
    assert len(own) == 0
    server.close()
