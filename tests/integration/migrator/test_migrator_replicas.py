"""Replicas of the target confirm keys before they are dropped at the source, where an operator wants that."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from migrator import move, options
from migrator import pair as ending
from migrator.checks import check
from migrator.connection import Connection
from migrator.errors import ReplicasMissing, TooFewReplicas
from migrator.options import Confirmation
from migrator.pace import Pace
from migrator.pieces import copying
from slotferry.redis_server import RedisServer, start_redis
from slots import permits
from slots.access import ServerAccess
from slots.reserved import STATE, WANTED
from tests.integration.migrator.pairs import INSTANCE, Pair, assert_moved, client_of, fill, permit_at, while_under_way


@pytest.fixture
async def replicas(fragile_pair: Pair, tmp_path: Path) -> AsyncIterator[list[RedisServer]]:
    """Two replicas of the target, in sync with it."""
    started = [await start_redis(f"replica-{number}", tmp_path) for number in range(2)]
    async with client_of(fragile_pair.target) as target:
        await target.config_set("repl-diskless-sync-delay", 0)
        for server in started:
            async with client_of(server) as redis:
                await redis.replicaof("127.0.0.1", fragile_pair.target.port)
        async with asyncio.timeout(30):
            while len(await online(target)) < 2:
                await asyncio.sleep(0.01)
    yield started
    for server in started:
        os.kill(server.pid, signal.SIGCONT)
        await server.stop()


async def online(target: Redis) -> list[str]:
    """The replicas that take what the server sends."""
    found = await target.info("replication")
    return [name for name, value in found.items() if name.startswith("slave") and value["state"] == "online"]


async def calls(server: Redis, command: str) -> int:
    """How often a server has run a command."""
    return int((await server.info("commandstats")).get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def blocked(server: Redis) -> int:
    """How many clients wait at a server. A WAIT is counted when it begins."""
    return int((await server.info("clients"))["blocked_clients"])


async def paused_call(pair: Pair, source: Redis, target: Redis) -> asyncio.Task[None]:
    """A call that is paused, and has its permit. Before it moves anything, it waits until replicas have what earlier
    calls wrote."""
    waits = await calls(target, "wait")
    pair.pace = Pace(paused=True)
    call = asyncio.create_task(pair.migrate())

    async def begun() -> bool:
        return bool(await permit_at(source)) and await calls(target, "wait") > waits and not await blocked(target)

    await while_under_way(call, begun)
    return call


async def small_keys_wait(pair: Pair, source: Redis, target: Redis, replica: RedisServer) -> asyncio.Task[None]:
    """A call whose small keys wait for a replica that stands still."""
    call = await paused_call(pair, source, target)
    os.kill(replica.pid, signal.SIGSTOP)
    pair.pace.resume()

    async def waits() -> bool:
        return await blocked(target) > 0

    await while_under_way(call, waits)
    return call


MEGABYTE = 1024 * 1024
LINK_BYTES_PER_SECOND = 2 * MEGABYTE


@asynccontextmanager
async def behind_a_slow_link(pair: Pair, folder: Path) -> AsyncIterator[None]:
    """A replica that gets :data:`LINK_BYTES_PER_SECOND` from the target, and is in sync with it."""

    async def up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(MEGABYTE):
            writer.write(data)

    async def down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        free_at = now()
        while data := await reader.read(MEGABYTE // 16):
            writer.write(data)
            # A sleep that takes longer makes the next one shorter, so that the link is no slower than it says.
            free_at = max(free_at, now() - 0.5) + len(data) / LINK_BYTES_PER_SECOND
            await asyncio.sleep(max(0.0, free_at - now()))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_target, to_target = await asyncio.open_connection("127.0.0.1", pair.target.port)
        ways = [asyncio.create_task(way) for way in (up(reader, to_target), down(from_target, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        to_target.close()
        await asyncio.gather(*ways, return_exceptions=True)

    link = await asyncio.start_server(serve, "127.0.0.1", 0)
    replica = await start_redis("replica", folder)
    try:
        async with client_of(pair.target) as target, client_of(replica) as redis:
            await target.config_set("repl-diskless-sync-delay", 0)
            await redis.replicaof("127.0.0.1", link.sockets[0].getsockname()[1])
            async with asyncio.timeout(30):
                while not await online(target):
                    await asyncio.sleep(0.01)
                await target.wait(1, 0)
        yield
    finally:
        await replica.stop()
        link.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hash", "string", "whole"])
async def test_a_big_key_moves_as_fast_as_a_replica_follows(
    fragile_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """given a replica to which the key takes longer to go than a step may, one call moves the key."""
    pair = fragile_pair
    pair.confirmation = Confirmation(1)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 2.0)
    # A hash is confirmed as it goes: no wait may be longer because of its bytes.
    monkeypatch.setattr(options, "LEAST_BYTES_PER_SECOND", 1e12 if kind == "hash" else LINK_BYTES_PER_SECOND)
    if kind == "whole":
        monkeypatch.setattr(copying, "KINDS", {})
    async with (
        behind_a_slow_link(pair, tmp_path),
        client_of(pair.source) as source,
        client_of(pair.target) as target,
    ):
        if kind == "string":
            await source.set("big", "x" * 8 * MEGABYTE)
        else:
            # It does not compress in DUMP.
            await source.hset("big", mapping={f"field:{number}": os.urandom(1024) for number in range(8192)})

        await pair.migrate()

        assert not await source.exists("big")
        assert await target.memory_usage("big") > 8 * MEGABYTE


async def test_small_keys_get_time_for_a_string_beside_them(
    pair: Pair, source: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a string whose SET is whole at the target, other steps allow for it even before its mover knows that."""
    allowed: list[float] = []
    original = Connection.stream

    async def stream(connection: Connection, parts: AsyncIterator[bytes]) -> object:
        reply = await original(connection, parts)
        allowed.append(pair.confirmation.seconds(0))
        return reply

    class Unneeded(Confirmation):
        async def wait(self, target: Connection, size: int) -> None: ...

    monkeypatch.setattr(Connection, "stream", stream)
    pair.confirmation = Unneeded(1)
    await source.set("big", "x" * 8 * MEGABYTE)
    await pair.migrate()
    assert allowed == [4.0]
    assert pair.confirmation.seconds(0) == 2.0


async def test_a_copy_that_no_replica_confirms_ends_early_and_leaves_no_claim(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a replica that stands still, a client can delete the key at the source after the call."""
    pair = fragile_pair
    pair.confirmation = Confirmation(2)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 60.0)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.hset("big", mapping={f"field:{number}": "x" * 1024 for number in range(8192)})
        call = await paused_call(pair, source, target)
        os.kill(replicas[1].pid, signal.SIGSTOP)
        monkeypatch.setattr(options, "CONFIRM_SECONDS", 0.1)
        pair.pace.resume()
        with pytest.raises(TooFewReplicas):
            await call
        assert await calls(target, "hset"), "the copy had begun"
        assert not [field for field in await source.hkeys(STATE) if field.startswith(b"claim:")]
        assert (await target.info("stats"))["total_net_input_bytes"] < 4 * MEGABYTE
        assert not await target.exists("big")


@pytest.mark.long
async def test_a_key_that_goes_whole_and_is_confirmed_slowly_goes_once(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a scan that finds it again and again meanwhile, its mover is not taken for dead."""
    pair = fragile_pair
    pair.confirmation = Confirmation(2)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 60.0)
    monkeypatch.setattr(move, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(copying, "KINDS", {})
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.rpush("big", *range(3000))
        call = await paused_call(pair, source, target)
        async with asyncio.timeout(60):
            permit = await permit_at(source)
            os.kill(replicas[1].pid, signal.SIGSTOP)
            await source.rpush(WANTED, "0:big")
            while not await target.exists("big"):
                await asyncio.sleep(0.01)
            pair.pace.resume()
            looks = await calls(source, "evalsha")
            while await calls(source, "evalsha") < looks + 20:
                await asyncio.sleep(0.01)
            assert await permit_at(source) == permit
            os.kill(replicas[1].pid, signal.SIGCONT)
            await call
        assert await calls(source, "dump") == 1
        assert not await source.exists("big")


@pytest.mark.long
async def test_replicas_have_what_the_source_has_deleted(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given replicas that stop in the middle, the source keeps what they do not have, and all goes on with them."""
    pair = fragile_pair
    pair.confirmation = Confirmation(replicas=2)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 10.0)
    async with (
        client_of(pair.source) as source,
        client_of(pair.target) as target,
        client_of(replicas[0]) as first,
        client_of(replicas[1]) as second,
    ):
        await fill(source, 20_000)
        await source.hset("big", mapping={f"field:{number}": "value" for number in range(3000)})
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 2000)
        os.kill(replicas[1].pid, signal.SIGSTOP)
        monkeypatch.setattr(options, "CONFIRM_SECONDS", 2.0)
        with pytest.raises(TooFewReplicas, match="has 1 replicas that took the last keys"):
            await call
        left = {key for key in await source.keys("*") if key.startswith(b"key:")}
        os.kill(replicas[1].pid, signal.SIGCONT)
        for redis in (first, second):
            async with asyncio.timeout(30):
                while (await redis.info("replication"))["master_link_status"] != "up":
                    await asyncio.sleep(0.01)
        await target.wait(2, 30_000)
        there = {key for key in await second.keys("*") if key.startswith(b"key:")}
        assert len(there | left) == 20_000, "what the source has deleted, the replica that stopped has"

        monkeypatch.setattr(options, "CONFIRM_SECONDS", 10.0)
        await pair.migrate()
        await assert_moved(source, target, 20_000)
        assert await target.hlen("big") == 3000
        await target.wait(2, 30_000)
        assert await first.dbsize() == await second.dbsize() == await target.dbsize()


async def test_what_no_replica_has_is_not_dropped(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a replica that stands still from the start, no key leaves the source, small or big."""
    pair = fragile_pair
    pair.confirmation = Confirmation(replicas=2)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 0.1)
    os.kill(replicas[1].pid, signal.SIGSTOP)
    async with client_of(pair.source) as source:
        for fill_some in (lambda: fill(source, 10), lambda: source.rpush("big", *range(3000))):
            await source.flushall()
            await fill_some()
            names = await source.keys("*")
            with pytest.raises(TooFewReplicas):
                await pair.migrate()
            assert await source.exists(*names) == len(names)


async def test_a_key_that_a_client_asked_for_and_replicas_do_not_have_yet_is_waited_for(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given that it alone is left, scans that find it again and again do not end the call."""
    pair = fragile_pair
    pair.confirmation = Confirmation(replicas=2)
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 60.0)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.rpush("big", *range(3000))
        call = await paused_call(pair, source, target)
        async with asyncio.timeout(60):
            os.kill(replicas[1].pid, signal.SIGSTOP)
            await source.rpush(WANTED, "0:big")
            while not await target.exists("big"):
                await asyncio.sleep(0.01)
            scans = await calls(source, "scan")
            pair.pace.resume()
            while await calls(source, "scan") == scans:
                await asyncio.sleep(0.01)
        # It waits as long as the replica stands still. So many looks at the server are time for many scans.
        for _ in range(200):
            assert await source.exists("big")
            assert not call.done()
        os.kill(replicas[1].pid, signal.SIGCONT)
        await call
        assert not await source.exists("big")
        assert await target.llen("big") == 3000


async def test_a_target_with_too_few_replicas_is_found_before(fragile_pair: Pair, replicas: list[RedisServer]) -> None:
    async def needed(min_replicas: int) -> int:
        found = await check(
            fragile_pair.source.address,
            fragile_pair.target.address,
            share=1.0,
            databases=16,
            access=ServerAccess(""),
            instance=INSTANCE,
            min_replicas=min_replicas,
        )
        return found.min_replicas

    assert await needed(0) == 0
    assert await needed(2) == 2
    with pytest.raises(ReplicasMissing, match="has 2 replicas online, and migration_min_replicas is 3"):
        await needed(3)


async def test_a_call_allows_for_what_an_earlier_one_wrote(
    fragile_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a call that is cancelled while a replica takes a string, the next call is not too impatient."""
    pair = fragile_pair
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 2.0)
    monkeypatch.setattr(options, "LEAST_BYTES_PER_SECOND", LINK_BYTES_PER_SECOND)
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.1)
    async with behind_a_slow_link(pair, tmp_path), client_of(pair.source) as source, client_of(pair.target) as target:
        await source.set("big", b"x" * 12 * MEGABYTE)
        pair.confirmation = Confirmation(1)
        call = asyncio.create_task(pair.migrate())

        async def written() -> bool:
            return bool((await target.info("keyspace")).get("db0", {}).get("expires"))

        await while_under_way(call, written)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await source.delete("big")
        await fill(source, 100)
        pair.confirmation = Confirmation(1)
        await pair.migrate()
        await assert_moved(source, target, 100)


async def test_small_keys_get_time_for_a_key_beside_them_that_goes_whole(
    fragile_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a key of 8 MB, whose bytes stand before theirs in the replicas' stream."""
    pair = fragile_pair
    allowed: list[float] = []
    original = Connection.send

    async def send(connection: Connection, commands: bytes, *rest: Any) -> list[Any]:
        reply = await original(connection, commands, *rest)
        if len(commands) > 4 * MEGABYTE:
            allowed.append(pair.confirmation.seconds(0))
        return reply

    class Unneeded(Confirmation):
        async def wait(self, target: Connection, size: int) -> None:
            """There are no replicas."""

        async def caught_up(self, target: Connection) -> None:
            """There are no replicas."""

    monkeypatch.setattr(Connection, "send", send)
    monkeypatch.setattr(copying, "KINDS", {})
    pair.confirmation = Unneeded(1)
    async with client_of(pair.source) as source:
        await source.hset("big", mapping={f"field:{number}": os.urandom(1024) for number in range(8192)})
        await pair.migrate()
    assert allowed
    assert min(allowed) > 3.5


async def test_a_call_ends_with_the_error_that_it_met(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a proxy that renews the permit while small keys wait for replicas, and a big key that a client wants."""
    pair = fragile_pair
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 60.0)
    pair.confirmation = Confirmation(2)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 3000)
        await source.rpush("big", *range(3000))
        call = await small_keys_wait(pair, source, target, replicas[1])
        await permits.renew(source, target, pair.target.address, await permit_at(source))
        await source.rpush(WANTED, "0:big")

        async def ended() -> bool:
            # Their time is over.
            for client in await target.client_list():
                if client["cmd"] == "wait":
                    await target.client_unblock(int(client["id"]))
            return call.done()

        await while_under_way(call, ended)
        with pytest.raises(TooFewReplicas):
            await call


async def test_a_key_that_a_client_wants_is_claimed_while_small_keys_wait_for_replicas(
    fragile_pair: Pair, replicas: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a proxy that has renewed the permit, its renewal here does not stand behind their WAIT."""
    pair = fragile_pair
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 120.0)
    pair.confirmation = Confirmation(2)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 3000)
        await source.rpush("big", *range(3000))
        call = await small_keys_wait(pair, source, target, replicas[1])
        await permits.renew(source, target, pair.target.address, await permit_at(source))
        await source.rpush(WANTED, "0:big")

        async def claimed() -> bool:
            return b"claim:0:big" in await source.hkeys(STATE)

        await while_under_way(call, claimed)
        assert await blocked(target)
        os.kill(replicas[1].pid, signal.SIGCONT)
        await call
