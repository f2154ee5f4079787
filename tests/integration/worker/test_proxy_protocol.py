"""A load balancer in front: headers of both versions, by hand and from a real HAProxy."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from proxy.engine.backend import command
from proxy.worker.clients.proxyprotocol import SIGNATURE
from slotferry.processes import ManagedProcess, free_ports
from tests.certificates import Authority
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.places import (
    answer,
    closed,
    counted,
    logged,
    opened,
    tls_settings,
    trusting,
    until_logged,
)

StartWorker = Callable[..., Awaitable[WorkerHarness]]
PING = command(("PING",))
LARGE = 3_000_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


HEADERS = [
    (b"PROXY TCP4 192.0.2.9 198.51.100.2 4711 6379\r\n", "192.0.2.9:4711"),
    (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1"),
    (SIGNATURE + b"\x21\x11\0\x0f" + bytes([192, 0, 2, 9, 1, 2, 3, 4, 18, 103, 0, 1, 4, 0, 0]), "192.0.2.9:4711"),
    (b"PROXY UNKNOWN\r\n", None),
    (SIGNATURE + b"\x20\0\0\0", None),
]


async def peer_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """The address that CLIENT INFO shows."""
    writer.write(command(("CLIENT", "INFO")))
    size = int((await answer(reader))[1:])
    async with asyncio.timeout(LIMIT):
        text = (await reader.readexactly(size + 2)).decode()
    return dict(field.partition("=")[::2] for field in text.split())["addr"]


def own_address(writer: asyncio.StreamWriter) -> str:
    host, port = writer.get_extra_info("sockname")
    return f"{host}:{port}"


@pytest.mark.parametrize(("header", "peer"), HEADERS)
async def test_proxy_headers(start_worker: StartWorker, authority: Authority, header: bytes, peer: str | None) -> None:
    worker = await start_worker(servers=1, proxy_protocol=True, **tls_settings(authority.issue("proxy")))
    # In one piece with a request.
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(header + PING)
        assert await answer(reader) == b"+PONG\r\n"
        assert await peer_of(reader, writer) == (peer or own_address(writer))
    # In pieces.
    async with opened(worker.settings.listen) as (reader, writer):
        for byte in header:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await peer_of(reader, writer) == (peer or own_address(writer))
    # Before TLS.
    async with opened(worker.settings.tls_listen) as (reader, writer):
        writer.write(header)
        async with asyncio.timeout(LIMIT):
            await writer.start_tls(trusting(authority), server_hostname="127.0.0.1")
        assert await peer_of(reader, writer) == (peer or own_address(writer))


async def test_connections_without_a_header_are_closed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, proxy_protocol=True, handshake_seconds=0.3)
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(PING)
        assert await closed(reader) == b""
    events = await until_logged(worker, "connection_failed")
    assert "does not begin as a header does" in events[0]["reason"]
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(b"PROXY TCP4 1")
        assert await closed(reader) == b""
    await counted(worker, clients=0, arrivals_failed=2)


async def test_a_load_balancer_that_only_looks_is_not_logged(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, proxy_protocol=True)
    for _ in range(3):
        async with opened(worker.settings.listen):
            pass
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(b"PROXY UNKNOWN\r\n" + PING)
        assert await answer(reader) == b"+PONG\r\n"
    await counted(worker, connections=4, arriving=0, clients=0, arrivals_failed=0)
    assert logged(worker, "connection_failed") == []


async def test_the_unix_socket_wants_no_header(start_worker: StartWorker, tmp_path: Path) -> None:
    path = str(tmp_path / "proxy.sock")
    await start_worker(servers=1, proxy_protocol=True, unix_socket=path)
    async with redis.asyncio.Redis(unix_socket_path=path) as client:
        assert await client.ping()


async def test_without_the_setting_a_header_is_no_header(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(HEADERS[0][0])
        assert await answer(reader) == (
            b"-ERR unknown command 'PROXY', with args beginning with: 'TCP4' '192.0.2.9' "
            b"'198.51.100.2' '4711' '6379' \r\n"
        )


HAPROXY = """
global
    stats socket {directory}/haproxy.stats
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen front
    bind {front}
    server proxy {back} {option} check inter 100ms
"""


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy here")
@pytest.mark.parametrize("option", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options unique-id"])
@pytest.mark.parametrize("tls", [False, True])
async def test_through_haproxy(
    start_worker: StartWorker, authority: Authority, tmp_path: Path, option: str, tls: bool
) -> None:
    worker = await start_worker(servers=1, proxy_protocol=True, **tls_settings(authority.issue("proxy")))
    front = f"127.0.0.1:{free_ports(1)[0]}"
    back = worker.settings.tls_listen if tls else worker.settings.listen
    config = tmp_path / "haproxy.cfg"
    config.write_text(HAPROXY.format(directory=tmp_path, front=front, back=back, option=option))
    haproxy = ManagedProcess("haproxy", ["haproxy", "-db", "-f", str(config)], tmp_path / "haproxy.log")
    haproxy.start()
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    async with opened(front, trusting(authority) if tls else None) as (reader, writer):
                        writer.write(PING)
                        assert await reader.readline() == b"+PONG\r\n"
                        # Not HAProxy's address, but that of its client.
                        assert await peer_of(reader, writer) == own_address(writer)
                    break
                except (ConnectionError, AssertionError):
                    assert haproxy.running, haproxy.tail()
                    await asyncio.sleep(0.05)
        host, port = front.split(":")
        more = {"ssl": True, "ssl_ca_certs": authority.file} if tls else {}
        async with redis.asyncio.Redis(host=host, port=int(port), **more) as client:
            value = os.urandom(LARGE)
            await client.set("k", value)
            assert await client.get("k") == value
    finally:
        await haproxy.stop()
