"""A link follows real servers: what it spools is all that they have and do, and they are none the worse for it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis

from migrator.errors import MigrationError, SourceRefused, SourceUnavailable
from migrator.stream import link
from migrator.stream.errors import (
    CountsFollowers,
    FollowRefused,
    HistoryChanged,
    LinkClosed,
    LinkCut,
    NotFollowable,
    SnapshotCut,
    SnapshotNeeded,
    SourceReplaced,
    SpoolFull,
)
from migrator.stream.link import Link
from migrator.stream.spool import Spool
from rdb.snapshot import Snapshot, SnapshotKey
from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer, find_binary, start_redis
from slots.access import ServerAccess, ServerTls
from slots.reserved import FOLLOWER
from tests.certificates import Authority
from tests.integration.breaking_relay import BreakingRelay
from tests.integration.rdb import servers
from tests.integration.sizing.servers import speaks_tls

NAME = "slotferry.migrator.test.stream"
BYTES = 256 * 1024 * 1024
SECONDS = 90.0


@pytest.fixture(params=servers.NAMES)
async def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with servers.started(request.param, tmp_path) as running:
        servers.client_of(running).config_set("repl-diskless-sync-delay", 0)
        yield running


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with servers.started("found", tmp_path) as running:
        servers.client_of(running).config_set("repl-diskless-sync-delay", 0)
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spools", BYTES)


@asynccontextmanager
async def linked(
    address: str, spool: Spool, access: ServerAccess | None = None, run_id: str = "", history: str = ""
) -> AsyncIterator[Link]:
    """A link that has started."""
    following = Link(address, access or ServerAccess(), spool, NAME, run_id, history)
    following.start()
    try:
        yield following
    finally:
        await asyncio.to_thread(following.close)
        spool.close()


async def until(ready: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not ready():
            await asyncio.sleep(0.01)


async def failure_of(spool: Spool) -> MigrationError:
    await until(lambda: spool.failure)
    assert spool.failure is not None
    return spool.failure


async def keys_of(spool: Spool) -> list[SnapshotKey]:
    """Those of the spooled snapshot, whose checksum is right."""
    return await asyncio.to_thread(lambda: list(Snapshot(spool.snapshot.reader(), "snapshot", 1 << 20)))


async def level(client: redis.Redis, spool: Spool) -> None:
    """Wait until the spool has all that the source has written to its stream."""
    wanted = client.info("replication")["master_repl_offset"]
    async with asyncio.timeout(SECONDS):
        await spool.stream.more(wanted - 1)


def commands_of(spool: Spool, offset: int) -> list[list[bytes]]:
    """Those in the stream from an offset on."""
    reader = hiredis.Reader()
    while data := spool.stream.read(offset, 100_000):
        reader.feed(data)
        offset += len(data)
    found = []
    while (command := reader.gets()) is not False:
        found.append(command)
    return found


class Writing:
    """A client that writes in a thread until it is stopped."""

    def __init__(self, server: RedisServer) -> None:
        self._client = servers.client_of(server)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._client.set(f"written:{self.count % 1000}", self.count)
            self.count += 1

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(SECONDS)


@pytest.mark.parametrize("diskless", ["yes", "no"])
async def test_snapshot_and_stream_are_whole_while_a_client_writes(
    any_server: RedisServer, spool: Spool, diskless: str
) -> None:
    client = servers.client_of(any_server)
    client.config_set("repl-diskless-sync", diskless)
    servers.fill(client)
    with Writing(any_server) as writing:
        await until(lambda: writing.count > 100)
        async with linked(any_server.address, spool) as following:
            origin = await following.begun()
            found = await keys_of(spool)
            assert spool.snapshot.whole
            seen = writing.count
            await until(lambda: writing.count > seen + 100)
            writing.stop()
            await level(client, spool)

            assert spool.stream.end >= client.info("replication")["master_repl_offset"]
            assert (spool.stream.start, origin.run_id) == (origin.offset, client.info("server")["run_id"])
            assert origin.replication_id == client.info("replication")["master_replid"]
            changed = {argv[1]: argv[2] for argv in commands_of(spool, origin.offset) if argv[0].upper() == b"SET"}
            payloads = {key.name: key.payload for key in found}
            assert payloads.keys() | changed.keys() == set(client.keys())
            assert dict(zip(changed, client.mget(*changed), strict=True)) == changed
            pipe = client.pipeline(transaction=False)
            for key in (unchanged := list(payloads.keys() - changed.keys())):
                pipe.dump(key)
            assert pipe.execute() == [payloads[key] for key in unchanged]
            assert len(unchanged) > 1000
    assert isinstance(spool.failure, LinkClosed)
    assert spool.held == 0


async def test_it_is_no_replica_to_those_who_count_them(any_server: RedisServer, spool: Spool) -> None:
    client = servers.client_of(any_server)
    async with linked(any_server.address, spool) as following:
        await following.begun()
        await until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")

        client.set("key", "value")
        assert client.wait(1, 1500) == 0
        await level(client, spool)
        (listed,) = [one for one in client.client_list() if one["name"] == NAME]
        assert "S" in listed["flags"]
        seen = client.info("replication")["slave0"]
        assert (seen["ip"], seen["port"], seen["offset"]) == (FOLLOWER, 0, 0)
        assert seen["lag"] <= 3


async def test_sentinel_does_not_list_it(server: RedisServer, spool: Spool, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"dir {tmp_path}\nsentinel resolve-hostnames yes\nsentinel monitor group 127.0.0.1 {server.port} 1\n"
    )
    replica = await start_redis("replica", tmp_path, extra=["--replicaof", f"127.0.0.1 {server.port}"])
    async with linked(server.address, spool) as following:
        await following.begun()
        await until(lambda: server_replicas(server) == 2)
        process = await asyncio.create_subprocess_exec(
            str(find_binary()), str(configuration), "--sentinel", "--port", str(port), stdout=-3
        )
        try:
            sentinel = redis.Redis(port=port)

            def listed() -> list[Any]:
                with suppress(redis.ConnectionError):
                    return list(sentinel.sentinel_slaves("group"))
                return []

            await until(listed)
            assert [one["port"] for one in listed()] == [replica.port]
        finally:
            process.kill()
            await process.wait()
            await replica.stop()


def server_replicas(server: RedisServer) -> int:
    replication = servers.client_of(server).info("replication")
    return sum(replication.get(f"slave{number}", {}).get("state") == "online" for number in range(3))


async def test_a_master_that_would_count_it_for_its_writes_is_refused(any_server: RedisServer, spool: Spool) -> None:
    servers.client_of(any_server).config_set("min-replicas-to-write", 1)
    async with linked(any_server.address, spool):
        assert isinstance(await failure_of(spool), CountsFollowers)


@pytest.mark.long
async def test_a_replica_is_followed_with_the_offsets_of_its_master(
    server: RedisServer, spool: Spool, tmp_path: Path
) -> None:
    client = servers.client_of(server)
    servers.fill(client)
    replica = await start_redis("replica", tmp_path, extra=["--repl-diskless-sync-delay", "0"])
    try:
        of_replica = servers.client_of(replica)
        of_replica.replicaof("127.0.0.1", str(server.port))
        await until(lambda: of_replica.info("replication")["master_link_status"] == "up")
        # A master counts nothing that follows its replica.
        client.config_set("min-replicas-to-write", 1)
        history = client.info("replication")["master_replid"]
        async with linked(replica.address, spool, history=history) as following:
            origin = await following.begun()
            assert origin.replication_id == history
            client.set("key", "value")
            await level(client, spool)
            assert [b"SET", b"key", b"value"] in commands_of(spool, origin.offset)

            # It becomes the master: what it writes itself is another stream, though PSYNC would go on with it.
            await server.stop()
            of_replica.replicaof("NO", "ONE")
            of_replica.set("later", "value")
            assert isinstance(await failure_of(spool), HistoryChanged)
            assert not of_replica.info("replication")["connected_slaves"]
    finally:
        await replica.stop()


async def test_a_replica_without_its_master_is_refused(server: RedisServer, spool: Spool, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    client = servers.client_of(server)
    client.replicaof("127.0.0.1", str(port))
    async with linked(server.address, spool, history=client.info("replication")["master_replid"]):
        assert isinstance(await failure_of(spool), NotFollowable)
    again = Spool(tmp_path / "spools", BYTES)
    async with linked(server.address, again):
        assert isinstance(await failure_of(again), HistoryChanged), "a master was expected"


@pytest.mark.long
async def test_it_goes_on_after_a_cut(any_server: RedisServer, spool: Spool) -> None:
    client = servers.client_of(any_server)
    async with BreakingRelay(any_server.port) as relay, linked(relay.address, spool) as following:
        origin = await following.begun()
        await keys_of(spool)
        for number in range(3):
            client.set("before", number)
            await level(client, spool)
            fault = relay.cut()
            client.set("between", number)
            await until(lambda number=number: following.cuts > number)
            client.set("behind", number)
            fault.mend()
            await level(client, spool)

        written = [argv for argv in commands_of(spool, origin.offset) if argv[0] == b"SET"]
        assert [[argv[1], int(argv[2])] for argv in written] == [
            [name, number] for number in range(3) for name in (b"before", b"between", b"behind")
        ]
        assert spool.failure is None


async def test_what_the_source_no_longer_has_of_the_stream_ends_it(server: RedisServer, spool: Spool) -> None:
    client = servers.client_of(server)
    client.config_set("repl-backlog-size", 16 * 1024)
    async with BreakingRelay(server.port) as relay, linked(relay.address, spool) as following:
        await following.begun()
        await keys_of(spool)
        client.set("key", "value")
        await level(client, spool)
        held = spool.stream.end
        fault = relay.cut()
        for _ in range(100):
            client.set("large", b"x" * 10_000)
        fault.mend()

        failure = await failure_of(spool)
        assert isinstance(failure, SnapshotNeeded)
        assert "repl-backlog-size" in failure.to_do
        assert spool.stream.end == held
        with pytest.raises(SnapshotNeeded):
            await spool.stream.more(held)
        await until(lambda: not client.info("replication")["connected_slaves"])


async def test_a_cut_that_lasts_ends_it(server: RedisServer, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "GO_ON_SECONDS", 0.5)
    async with BreakingRelay(server.port) as relay, linked(relay.address, spool) as following:
        await following.begun()
        await keys_of(spool)
        relay.cut()
        assert isinstance(await failure_of(spool), LinkCut)


@pytest.mark.long
async def test_a_silent_source_is_lost(server: RedisServer, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE_SECONDS", 1.5)
    client = servers.client_of(server)
    async with BreakingRelay(server.port) as relay, linked(relay.address, spool) as following:
        origin = await following.begun()
        await keys_of(spool)
        relay.hold(only_present=True)
        client.set("key", "value")
        await level(client, spool)
        assert following.cuts
        assert [argv for argv in commands_of(spool, origin.offset) if argv[0] == b"SET"] == [[b"SET", b"key", b"value"]]


async def test_another_process_at_the_address_is_not_followed(
    server: RedisServer, spool: Spool, tmp_path: Path
) -> None:
    async with BreakingRelay(server.port) as relay, linked(relay.address, spool) as following:
        await following.begun()
        await keys_of(spool)
        other = await start_redis("other", tmp_path)
        relay.port = other.port
        relay.cut().mend()
        assert isinstance(await failure_of(spool), SourceReplaced)
        assert not servers.client_of(other).info("replication")["connected_slaves"]
        await other.stop()
    again = Spool(tmp_path / "spools", BYTES)
    async with linked(server.address, again, run_id="another"):
        assert isinstance(await failure_of(again), SourceReplaced)


async def test_a_cut_within_the_snapshot_ends_it(server: RedisServer, spool: Spool) -> None:
    client = servers.client_of(server)
    client.config_set("rdb-key-save-delay", 1000)
    servers.fill(client)
    async with BreakingRelay(server.port) as relay, linked(relay.address, spool) as following:
        await following.begun()
        reading = asyncio.create_task(keys_of(spool))
        await until(lambda: spool.snapshot.readable)
        relay.cut()
        assert isinstance(await failure_of(spool), SnapshotCut)
        with pytest.raises(SnapshotCut):
            await reading


async def test_it_can_be_closed_at_any_time(server: RedisServer, tmp_path: Path) -> None:
    client = servers.client_of(server)
    client.config_set("repl-diskless-sync-delay", 100)
    spool = Spool(tmp_path / "spools", BYTES)
    async with linked(server.address, spool) as following:
        waiting = asyncio.create_task(following.begun())
        await until(lambda: client.info("replication")["connected_slaves"])
    with pytest.raises(LinkClosed):
        await waiting
    await until(lambda: not client.info("replication")["connected_slaves"])
    assert not following._thread.is_alive()


async def test_a_full_spool_ends_it(server: RedisServer, tmp_path: Path) -> None:
    client = servers.client_of(server)
    small = Spool(tmp_path / "spools", 1_000_000)
    async with linked(server.address, small) as following:
        await following.begun()
        for _ in range(20):
            client.set("large", b"x" * 100_000)
        failure = await failure_of(small)
        assert isinstance(failure, SpoolFull)
        assert small.held <= 1_000_000
        await until(lambda: not client.info("replication")["connected_slaves"])
    client.config_set("repl-diskless-sync", "no")
    client.config_set("rdbcompression", "no")
    client.set("larger", random.Random(1).randbytes(2_000_000))
    small = Spool(tmp_path / "spools", 1_000_000)
    async with linked(server.address, small):
        assert isinstance(await failure_of(small), SpoolFull)
        assert small.held == 0, "its size is known before it comes"


async def test_a_slow_consumer_does_not_slow_the_source(server: RedisServer, spool: Spool) -> None:
    client = servers.client_of(server)
    client.config_set("client-output-buffer-limit", "replica 2mb 1mb 1")
    value = random.Random(1).randbytes(100_000)
    async with linked(server.address, spool) as following:
        origin = await following.begun()
        await keys_of(spool)
        for number in range(600):
            client.set("large", value)
            if number % 10 == 9:
                # Slow enough for a reader, too fast for one that stands still.
                await level(client, spool)
        assert spool.stream.end - origin.offset > 60_000_000
        assert (following.cuts, spool.stream.start) == (0, origin.offset)
        # What is read is let go of.
        offset = origin.offset
        while data := spool.stream.read(offset, 1 << 20):
            offset += len(data)
            spool.stream.release(offset)
        assert offset == spool.stream.end
        client.set("last", "value")
        await level(client, spool)
        await until(lambda: spool.held < 20_000_000)


async def test_a_user_and_what_it_may(any_server: RedisServer, tmp_path: Path) -> None:
    client = servers.client_of(any_server)
    rights = ("+psync", "+replconf", "+client", "+info")

    async def tried(*allowed: str, password: str = "secret") -> MigrationError | None:
        client.execute_command("ACL", "SETUSER", "mover", "reset", "on", ">secret", *allowed)
        spool = Spool(tmp_path / "spools", BYTES)
        async with linked(any_server.address, spool, ServerAccess(password, "mover")):
            await until(lambda: spool.failure or spool.snapshot.whole)
            return spool.failure

    assert await tried(*rights) is None
    for right in rights:
        failure = await tried(*(one for one in rights if one != right))
        assert isinstance(failure, FollowRefused)
        assert "ACL" in failure.to_do
        assert right[1:].upper() in failure.what
    failure = await tried(*rights, password="wrong one")
    assert isinstance(failure, SourceRefused)
    assert "wrong one" not in str(failure)


async def test_a_source_without_the_command_is_refused(tmp_path: Path, spool: Spool) -> None:
    server = await start_redis("renamed", tmp_path, extra=["--rename-command", "PSYNC", ""])
    try:
        async with linked(server.address, spool):
            failure = await failure_of(spool)
            assert isinstance(failure, FollowRefused)
            assert (failure.passing, "does not know PSYNC" in failure.what) == (False, True)
    finally:
        await server.stop()


async def test_a_source_that_is_not_there(spool: Spool) -> None:
    (port,) = free_ports(1)
    async with linked(f"127.0.0.1:{port}", spool) as following:
        with pytest.raises(SourceUnavailable):
            await following.begun()


@pytest.mark.long
@pytest.mark.skipif(not speaks_tls(), reason="the Redis server was built without TLS")
async def test_tls(tmp_path: Path, spool: Spool) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    (port,) = free_ports(1)
    arguments = ["--tls-port", str(port), "--tls-cert-file", issued.certificate, "--tls-key-file", issued.key]
    arguments += ["--tls-ca-cert-file", authority.file, "--tls-auth-clients", "no", "--repl-diskless-sync-delay", "0"]
    server = await start_redis("encrypted", tmp_path, extra=arguments)
    try:
        client = servers.client_of(server)
        servers.fill(client)
        access = ServerAccess(tls=ServerTls(authorities=authority.file))
        async with linked(f"127.0.0.1:{port}", spool, access) as following:
            origin = await following.begun()
            assert {key.name for key in await keys_of(spool)} == set(client.keys())
            client.set("key", b"x" * 1_000_000)
            await level(client, spool)
            assert [b"SET", b"key", b"x" * 1_000_000] in commands_of(spool, origin.offset)
        strict = Spool(tmp_path / "spools", BYTES)
        async with linked(f"127.0.0.1:{port}", strict, ServerAccess(tls=ServerTls())):
            assert isinstance(await failure_of(strict), SourceUnavailable)
    finally:
        await server.stop()
