"""From accept to session: TLS and the Unix socket, and their limits."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from proxy.engine.backend import command
from proxy.worker.clients.arrivals import MOST_ARRIVALS
from slots.messages.channel import Drain
from tests.certificates import Authority
from tests.integration.worker.blocked import blocked_at
from tests.integration.worker.harness import LIMIT, WorkerHarness, WorkerProcess
from tests.integration.worker.places import (
    answer,
    closed,
    counted,
    logged,
    opened,
    refused,
    spoil,
    tls_client,
    tls_settings,
    trusting,
    until_logged,
)
from tests.integration.worker.replicated import eventually

StartWorker = Callable[..., Awaitable[WorkerHarness]]
PING = command(("PING",))
LARGE = 3_000_000
RECORD = 16384
"""The most bytes that one record of TLS has."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# TLS


@pytest.mark.parametrize("protocol", [2, 3])
async def test_clients_with_tls(start_worker: StartWorker, authority: Authority, protocol: int) -> None:
    worker = await start_worker(**tls_settings(authority.issue("proxy")))
    async with (
        tls_client(worker, authority, protocol=protocol) as client,
        worker.client(protocol=protocol) as plain,
    ):
        value = os.urandom(LARGE)
        assert await client.set("k", value)
        assert await client.get("k") == value
        assert await plain.get("k") == value
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(500):
                pipeline.set(f"k{number}", str(number) * 50).get(f"k{number}")
            replies = await pipeline.execute()
        assert replies[1::2] == [str(number).encode() * 50 for number in range(500)]


async def test_tls_only(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(listen="", **tls_settings(authority.issue("proxy")))
    async with tls_client(worker, authority) as client:
        assert await client.ping()
        assert (await client.info("server"))["redis_mode"] == "standalone"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions(start_worker: StartWorker, authority: Authority, version: ssl.TLSVersion) -> None:
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    async with opened(worker.settings.tls_listen, context) as (reader, writer):
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        writer.write(PING)
        assert await answer(reader) == b"+PONG\r\n"


async def test_the_end_of_the_stream_is_said(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))

    def quit_and_read() -> bytes:
        host, _, port = worker.settings.tls_listen.rpartition(":")
        with (
            socket.create_connection((host, int(port)), LIMIT) as sock,
            trusting(authority).wrap_socket(sock, server_hostname=host, suppress_ragged_eofs=False) as client,
        ):
            client.sendall(command(("QUIT",)))
            received = b""
            while piece := client.recv(100):
                received += piece
            return received

    assert await asyncio.to_thread(quit_and_read) == b"+OK\r\n"


async def shake_hands(
    tls: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """The handshake without its last message, which is in ``outgoing``."""
    while True:
        try:
            tls.do_handshake()
            return
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            async with asyncio.timeout(LIMIT):
                incoming.write(await reader.read(65536))


async def read_tls(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, reader: asyncio.StreamReader, size: int) -> bytes:
    """At least so many bytes, unless the connection ends before."""
    received = b""
    async with asyncio.timeout(LIMIT):
        while len(received) < size and not reader.at_eof():
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                # One record at a time.
                while True:
                    received += tls.read(65536)
    return received


async def test_a_request_right_behind_the_handshake(start_worker: StartWorker, authority: Authority) -> None:
    """What comes in one piece with the end of the handshake is not lost."""
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with opened(worker.settings.tls_listen) as (reader, writer):
        await shake_hands(tls, incoming, outgoing, reader, writer)
        tls.write(PING * 2)
        writer.write(outgoing.read())
        assert await read_tls(tls, incoming, reader, 14) == b"+PONG\r\n" * 2


async def test_what_comes_behind_a_request_that_waits_is_not_forgotten(
    start_worker: StartWorker, authority: Authority
) -> None:
    """TLS takes whole records off the socket: what is left of a record does not make the socket readable again."""
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with opened(worker.settings.tls_listen) as (reader, writer), worker.client() as other:
        await shake_hands(tls, incoming, outgoing, reader, writer)
        waiting = command(("BLPOP", "list", 0))
        tls.write(waiting)
        writer.write(outgoing.read())
        await blocked_at(worker.servers[0])
        # Two records in one piece, of which the second does not fit into what is read at once.
        behind = [command(("SET", "a", "b")), command(("SET", "c", "x" * (RECORD - 40)))]
        for request in behind:
            assert len(request) <= RECORD
            tls.write(request)
        writer.write(outgoing.read())

        async def taken() -> bool:
            [entry] = [entry for entry in await other.client_list() if entry["cmd"] == "blpop"]
            return int(entry["qbuf"]) > len(waiting)

        await eventually(taken, "what comes behind")
        assert await other.rpush("list", "v") == 1
        expected = b"*2\r\n$4\r\nlist\r\n$1\r\nv\r\n" + b"+OK\r\n" * 2
        assert await read_tls(tls, incoming, reader, len(expected)) == expected


async def test_a_client_that_shakes_hands_a_byte_at_a_time(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with opened(worker.settings.tls_listen) as (reader, writer), worker.client() as other:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    writer.write(bytes([byte]))
                    await writer.drain()
                    # Others are served meanwhile.
                    assert await other.ping()
                async with asyncio.timeout(LIMIT):
                    incoming.write(await reader.read(65536))
        tls.write(PING)
        writer.write(outgoing.read())
        await counted(worker, clients=2, arriving=0)


@pytest.mark.parametrize("asked", ["optional", "required"])
async def test_client_certificates(start_worker: StartWorker, authority: Authority, tmp_path: Path, asked: str) -> None:
    settings = tls_settings(
        authority.issue("proxy"), tls_client_ca=authority.file, tls_client_certificates=asked, handshake_seconds=5
    )
    worker = await start_worker(servers=1, **settings)
    own = authority.issue("client")
    async with tls_client(worker, authority, ssl_certfile=own.certificate, ssl_keyfile=own.key) as client:
        assert await client.ping()
    strange = Authority(tmp_path, "stranger").issue("impostor")
    async with opened(worker.settings.tls_listen, trusting(authority, strange)) as (reader, writer):
        writer.write(PING)
        assert await refused(reader)
    assert "certificate verify failed" in (await until_logged(worker, "connection_failed"))[0]["reason"]
    async with opened(worker.settings.tls_listen, trusting(authority)) as (reader, writer):
        writer.write(PING)
        if asked == "optional":
            assert await answer(reader) == b"+PONG\r\n"
        else:
            assert await refused(reader)


@pytest.mark.long
async def test_a_renewed_certificate_is_shown_without_a_restart(
    start_worker: StartWorker, authority: Authority
) -> None:
    issued = authority.issue("first", file="proxy")
    worker = await start_worker(servers=1, **tls_settings(issued))

    async def shown() -> str:
        async with opened(worker.settings.tls_listen, trusting(authority)) as (_, writer):
            return str(writer.get_extra_info("peercert")["subject"][0][0][1])

    async with tls_client(worker, authority, single_connection_client=True) as early:
        await early.ping()
        assert await shown() == "first"
        authority.issue("second", file="proxy")
        async with asyncio.timeout(LIMIT):
            while await shown() != "second":
                await asyncio.sleep(0.1)
        spoil(issued.certificate)
        async with asyncio.timeout(LIMIT):
            while not logged(worker, "certificates_not_loaded"):
                assert await shown() == "second"
                await asyncio.sleep(0.1)
        assert await shown() == "second"
        # A connection from before goes on.
        assert await early.ping()


async def test_what_is_no_tls(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(servers=1, **tls_settings(authority.issue("proxy")))
    async with opened(worker.settings.tls_listen) as (reader, writer):
        writer.write(PING)
        assert b"PONG" not in await closed(reader)
    async with opened(worker.settings.tls_listen):
        pass  # one that only looks
    events = await until_logged(worker, "connection_failed")
    assert events[0]["at"] == "tls_listen"
    assert events[0]["reason"].startswith("no TLS: ")
    await counted(worker, arriving=0, clients=0)


async def test_a_certificate_that_cannot_be_used_ends_the_worker_with_a_reason(
    tmp_path: Path, authority: Authority
) -> None:
    issued = authority.issue("proxy")
    spoil(issued.key)
    harness = WorkerHarness(tmp_path, **tls_settings(issued))
    ours, theirs = socket.socketpair()
    process = WorkerProcess(tmp_path / "worker.log", theirs.fileno())
    process.start()
    theirs.close()
    start = {
        "type": "start",
        "settings": harness.settings.to_wire(),
        "index": 0,
        "incarnation": 1,
        "instance": "0" * 32,
        "product": {"name": "p", "number_of_slots": 1, "slot_function": "crc32", "databases": 1},
        "listen_fds": {},
    }
    ours.sendall(json.dumps(start).encode() + b"\n")
    with ours:
        async with asyncio.timeout(LIMIT):
            while process.running:
                await asyncio.sleep(0.02)
    (event,) = logged(harness, "worker_cannot_start")
    assert issued.key in event["reason"]


# Limits


async def test_a_handshake_takes_no_longer_than_it_may(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(servers=1, handshake_seconds=0.3, **tls_settings(authority.issue("proxy")))
    async with opened(worker.settings.tls_listen) as (reader, _), worker.client() as other:
        assert await closed(reader) == b""
        assert await other.ping()
    (event,) = await until_logged(worker, "connection_failed")
    assert event["reason"] == "no TLS within 0.3 s"


@pytest.mark.long
async def test_handshakes_beyond_the_limit_wait_their_turn(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(servers=1, handshake_seconds=60, **tls_settings(authority.issue("proxy")))
    async with contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(opened(worker.settings.tls_listen)) for _ in range(MOST_ARRIVALS)]
        await counted(worker, arriving=MOST_ARRIVALS)
        late = asyncio.create_task(stack.enter_async_context(opened(worker.settings.tls_listen, trusting(authority))))
        # Those without TLS are not held up.
        async with worker.client() as plain:
            assert await plain.ping()
        await counted(worker, arriving=MOST_ARRIVALS)
        assert not late.done()
        silent[0][1].close()
        reader, writer = await late
        writer.write(PING)
        assert await answer(reader) == b"+PONG\r\n"


@pytest.mark.long
async def test_arrivals_count_as_clients(start_worker: StartWorker, authority: Authority) -> None:
    worker = await start_worker(
        servers=1, max_clients=2, handshake_seconds=60, **tls_settings(authority.issue("proxy"))
    )
    async with opened(worker.settings.tls_listen), opened(worker.settings.listen):
        await counted(worker, arriving=1, clients=1)
        async with opened(worker.settings.listen) as (reader, _):
            assert await closed(reader) == b"-ERR max number of clients reached\r\n"
        async with opened(worker.settings.tls_listen) as (reader, _):
            assert await closed(reader) == b""
        await counted(worker, refused=2)


@pytest.mark.long
async def test_what_arrives_is_closed_when_the_worker_drains(start_worker: StartWorker, authority: Authority) -> None:
    patient = {"handshake_seconds": 60, "backend_connect_seconds": 60, "backend_reply_seconds": 60}
    worker = await start_worker(servers=1, **patient, **tls_settings(authority.issue("proxy")))
    os.kill(worker.servers[0].pid, signal.SIGSTOP)
    try:
        async with opened(worker.settings.listen) as (_, writer), opened(worker.settings.tls_listen) as (reader, _):
            # A session that the worker has to wait for.
            writer.write(command(("GET", "k")))
            await counted(worker, arriving=1, clients=1)
            await worker.under_way()
            worker.channel.send(Drain())
            assert await closed(reader) == b""
            assert worker.process.running
    finally:
        os.kill(worker.servers[0].pid, signal.SIGCONT)


# The Unix socket


async def test_the_unix_socket(start_worker: StartWorker, tmp_path: Path) -> None:
    path = str(tmp_path / "proxy.sock")
    worker = await start_worker(servers=1, unix_socket=path, unix_socket_permissions="770")
    async with redis.asyncio.Redis(unix_socket_path=path) as client:
        value = os.urandom(LARGE)
        await client.set("k", value)
        assert await client.get("k") == value
        (entry,) = [entry for entry in await client.client_list() if entry["cmd"] == "client|list"]
        assert entry["addr"] == entry["laddr"] == f"{path}:0"
    assert (os.stat(path).st_mode & 0o777) == 0o770
    assert worker.settings.listen


async def test_a_unix_socket_only(start_worker: StartWorker, tmp_path: Path) -> None:
    path = str(tmp_path / "proxy.sock")
    await start_worker(servers=1, listen="", unix_socket=path)
    async with redis.asyncio.Redis(unix_socket_path=path) as client:
        assert await client.ping()
        assert await client.info()
