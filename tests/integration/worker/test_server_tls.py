"""TLS between worker and servers, and between the servers themselves."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions

from migrator.connection import Timeouts
from migrator.errors import SourceUnavailable
from migrator.move import migrate
from migrator.pace import Pace
from migrator.progress import Progress
from proxy.supervisor.leftovers import Leftovers
from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer, find_binary, start_redis
from slots.access import ServerAccess, ServerTls
from slots.connections import proxy_prefix
from slots.keyslots import KeySlots
from slots.reserved import RESERVED_KEYS
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.certificates import Authority
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness, slot_of
from topom.servers.redis_servers import RedisServers

StartWorker = Callable[..., Awaitable[WorkerHarness]]


def speaks_tls() -> bool:
    """Whether the Redis server was built with TLS: otherwise it stumbles over the first of these options."""
    tried = subprocess.run([find_binary(), "--tls-port", "0", "--port", "none"], capture_output=True, timeout=20)
    return b"tls-port" not in tried.stdout + tried.stderr


pytestmark = pytest.mark.skipif(not speaks_tls(), reason="the Redis server here was built without TLS")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_options(authority: Authority, *more: str) -> list[str]:
    """A server that speaks TLS with clients, which have to show a certificate, and with other servers."""
    issued = authority.issue("server")
    return [
        *("--tls-cert-file", issued.certificate, "--tls-key-file", issued.key, "--tls-ca-cert-file", authority.file),
        *("--tls-cluster", "yes", *more),
    ]


def proxy_settings(authority: Authority, **more: Any) -> dict[str, Any]:
    issued = authority.issue("proxy")
    return {
        "redis_tls": True,
        "redis_tls_ca": authority.file,
        "redis_tls_certificate": issued.certificate,
        "redis_tls_key": issued.key,
        **more,
    }


def access_of(authority: Authority, password: str = "", user: str = "") -> ServerAccess:
    issued = authority.issue("control")
    return ServerAccess(password, user, ServerTls(authority.file, issued.certificate, issued.key))


@pytest.mark.parametrize("protocol", [2, 3])
async def test_requests_over_tls(start_worker: StartWorker, authority: Authority, protocol: int) -> None:
    worker = await start_worker(server_tls=server_options(authority), **proxy_settings(authority))
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with worker.client(protocol=protocol) as client:
        value = os.urandom(3_000_000)
        await client.set("large", value)
        assert await client.get("large") == value
        await client.mset({f"k{number}": number for number in range(200)})
        assert await client.mget([f"k{number}" for number in range(200)]) == [b"%d" % number for number in range(200)]
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(500):
                pipeline.set(f"p{number}", "x" * 1000).strlen(f"p{number}")
            assert (await pipeline.execute())[1::2] == [1000] * 500


async def test_a_user_with_a_password_over_tls(start_worker: StartWorker, authority: Authority) -> None:
    rule = ("--user", "proxy", "on", ">inner", "~*", "&*", "+@all")
    worker = await start_worker(
        server_tls=server_options(authority, *rule, "--requirepass", "other"),
        **proxy_settings(authority, redis_user="proxy", redis_password="inner"),
    )
    for protocol in (2, 3):
        async with worker.client(protocol=protocol) as client:
            assert await client.set("k", "v")
            assert await client.get("k") == b"v"
    # A key that moves: the source logs in at the target as the same user, over TLS.
    await worker.act([slot_of("k")], SlotState.PREPARED)
    await worker.act([slot_of("k")], SlotState.MIGRATING)
    async with worker.client() as client, worker.direct(2, password="other") as target:
        assert await client.get("k") == b"v"
        assert await target.get("k") == b"v"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"redis_tls": False}, "closed the connection"),
        ({"redis_tls_certificate": "", "redis_tls_key": ""}, ""),
        ({"redis_tls_ca": ""}, "certificate verify failed"),
    ],
)
async def test_what_does_not_fit_is_said(
    start_worker: StartWorker, authority: Authority, spoil: dict[str, Any], reason: str
) -> None:
    worker = await start_worker(servers=1, server_tls=server_options(authority), **proxy_settings(authority) | spoil)
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=f"server {worker.addresses[0]} .*{reason}"):
            await client.get("k")


@pytest.mark.parametrize(("verify", "works"), [(True, False), (False, True)])
async def test_the_servers_host_is_verified(
    start_worker: StartWorker, authority: Authority, verify: bool, works: bool
) -> None:
    issued = authority.issue("elsewhere", host="192.0.2.1")
    options = [
        "--tls-cert-file",
        issued.certificate,
        "--tls-key-file",
        issued.key,
        "--tls-ca-cert-file",
        authority.file,
    ]
    worker = await start_worker(
        servers=1, server_tls=options, **proxy_settings(authority, redis_tls_verify_host=verify)
    )
    async with worker.client() as client:
        if works:
            assert await client.set("k", "v")
        else:
            with pytest.raises(redis.exceptions.ResponseError, match=r"127\.0\.0\.1"):
                await client.get("k")


@pytest.mark.long
async def test_a_server_that_does_not_shake_hands_costs_a_second_at_most(
    start_worker: StartWorker, authority: Authority
) -> None:
    worker = await start_worker(
        servers=1, server_tls=server_options(authority), **proxy_settings(authority, backend_connect_seconds=1.0)
    )
    pid = worker.servers[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        async with worker.client() as client:
            async with asyncio.timeout(LIMIT):
                with pytest.raises(redis.exceptions.ResponseError, match=r"did not accept a connection within 1"):
                    await client.get("k")
    finally:
        os.kill(pid, signal.SIGCONT)
    async with worker.client() as client, asyncio.timeout(LIMIT):
        while True:
            try:
                assert await client.set("k", "v")
                break
            except redis.exceptions.ResponseError:
                await asyncio.sleep(0.05)


@pytest.mark.long
async def test_a_renewed_certificate_is_shown_to_servers(start_worker: StartWorker, authority: Authority) -> None:
    """The proxy's first certificate is one that servers do not take; the second is."""
    other = Authority(Path(authority.file).parent, "other")
    issued = other.issue("strange", file="renewed")
    settings = proxy_settings(authority, redis_tls_certificate=issued.certificate, redis_tls_key=issued.key)
    worker = await start_worker(servers=1, server_tls=server_options(authority), **settings)
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=f"server {worker.addresses[0]}"):
            await client.get("k")
        authority.issue("proxy", file="renewed")
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    assert await client.get("k") is None
                    break
                except redis.exceptions.ResponseError:
                    await asyncio.sleep(0.05)


@pytest.mark.long
async def test_a_lost_connection_is_ended_over_tls(start_worker: StartWorker, authority: Authority) -> None:
    """drained: the server is asked to end what was lost, by a connection of redis-py."""
    worker = await start_worker(
        server_tls=server_options(authority), **proxy_settings(authority, backend_reply_seconds=1.0)
    )
    key_slot = slot_of("k")
    async with worker.client() as client:
        await client.set("k", "v")
        os.kill(worker.servers[0].pid, signal.SIGSTOP)
        try:
            with pytest.raises(redis.exceptions.ResponseError, match=r"did not reply within 1"):
                await client.set("k", "late")
            epoch = worker.push([Slot(key_slot, 1, Action(SlotState.PREPARED, 2))])
            # It may still run there: the lock is refused.
            assert (await worker.verdict(epoch)).type == "nack"
        finally:
            os.kill(worker.servers[0].pid, signal.SIGCONT)
        async with asyncio.timeout(LIMIT):
            while True:
                epoch = worker.push([Slot(key_slot, 1, Action(SlotState.PREPARED, 2))])
                if (await worker.verdict(epoch)).type == "ack":
                    break
    assert "lost_connection_ended" in (worker.directory / "worker.log").read_text()


# The control plane


@contextlib.asynccontextmanager
async def tls_servers(tmp_path: Path, authority: Authority, count: int, *more: str) -> AsyncIterator[list[RedisServer]]:
    started: list[RedisServer] = []
    try:
        for number in range(count):
            port = free_ports(1)[0]
            options = [*server_options(authority, *more), "--tls-port", str(port)]
            server = await start_redis(f"tls-{number}", tmp_path, extra=options)
            server.tls_address = f"127.0.0.1:{port}"  # type: ignore[attr-defined]
            started.append(server)
        yield started
    finally:
        for server in started:
            await server.stop()


def address_of(server: RedisServer) -> str:
    return str(server.tls_address)  # type: ignore[attr-defined]


@pytest.mark.parametrize("user", ["", "mover"])
async def test_the_migrator_over_tls(tmp_path: Path, authority: Authority, user: str) -> None:
    rules = ("--user", "mover", "on", ">pw", "~*", "&*", "+@all", "--requirepass", "pw")
    async with tls_servers(tmp_path, authority, 2, *rules) as (source, target):
        async with redis.asyncio.Redis(port=source.port, password="pw") as client:
            await client.mset({f"k{number}": number for number in range(2000)})
        progress = Progress()
        await migrate(
            address_of(source),
            address_of(target),
            range(1024),
            key_slots=KeySlots("crc32", 1024),
            access=access_of(authority, "pw", user),
            pace=Pace(),
            progress=progress,
            instance=INSTANCE,
        )
        async with redis.asyncio.Redis(port=target.port, password="pw") as client:
            assert await client.dbsize() - await client.exists(*RESERVED_KEYS) == 2000
            assert progress.keys_moved == 2000


async def test_the_migrator_and_a_server_that_nobody_vouches_for(tmp_path: Path, authority: Authority) -> None:
    async with tls_servers(tmp_path, authority, 1) as (server,):
        with pytest.raises(SourceUnavailable, match="certificate verify failed"):
            await migrate(
                address_of(server),
                "127.0.0.1:1",
                range(1),
                key_slots=KeySlots("crc32", 1024),
                access=ServerAccess(tls=ServerTls()),
                pace=Pace(),
                progress=Progress(),
                instance=INSTANCE,
                timeouts=Timeouts(connect_seconds=5),
            )


async def test_topom_asks_and_fences_over_tls(tmp_path: Path, authority: Authority) -> None:
    rules = ("--user", "topom", "on", ">pw", "~*", "&*", "+@all", "--requirepass", "other")
    async with tls_servers(tmp_path, authority, 1, *rules) as (server,):
        servers = RedisServers(access_of(authority, "pw", "topom"), 5.0)
        address = address_of(server)
        name = f"{proxy_prefix(INSTANCE)}1.1."
        async with redis.asyncio.Redis(
            port=server.port, password="other", client_name=name, single_connection_client=True
        ) as victim:
            await victim.ping()
            assert (await servers.status([address]))[address].role == "master"
            assert await servers.unreachable([address]) == {}
            assert (await servers.fence({address: [INSTANCE]}))[address].refusal is None
        async with redis.asyncio.Redis(port=server.port, password="other") as client:
            assert name not in {entry["name"] for entry in await client.client_list()}
        # One whose certificate is not taken.
        strange = ServerTls(authority.file, *Authority(tmp_path, "stranger").issue("impostor").__dict__.values())
        impostor = RedisServers(ServerAccess("pw", "topom", strange), 5.0)
        assert address in await impostor.unreachable([address])
        await servers.close()
        await impostor.close()


async def test_leftovers_are_ended_over_tls(tmp_path: Path, authority: Authority) -> None:
    ended = asyncio.Event()
    async with tls_servers(tmp_path, authority, 1) as (server,):
        leftovers = Leftovers(access_of(authority), ended.set)
        name = f"{proxy_prefix(INSTANCE)}7.1."
        async with redis.asyncio.Redis(port=server.port, client_name=name, single_connection_client=True) as left:
            await left.ping()
            leftovers.hold(f"{proxy_prefix(INSTANCE)}7.", {address_of(server): {1}})
            leftovers.begin(f"{proxy_prefix(INSTANCE)}7.")
            async with asyncio.timeout(LIMIT):
                await ended.wait()
        async with redis.asyncio.Redis(port=server.port) as client:
            assert name not in {entry["name"] for entry in await client.client_list()}
        await leftovers.close()


def test_nothing_but_the_given_authority_is_trusted(authority: Authority) -> None:
    """Also by redis-py, which by itself would trust the system's authorities beside it."""
    client = access_of(authority).client("127.0.0.1", 1)
    connection = client.connection_pool.make_connection()
    context: ssl.SSLContext = connection._connection_arguments()["ssl"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [dict(part[0] for part in ca["subject"]) for ca in context.get_ca_certs()] == [{"commonName": "authority"}]
