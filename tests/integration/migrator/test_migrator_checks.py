"""Whether a target can take slots is found out before any slot is touched, with real servers of two versions."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from migrator.checks import check, watch
from migrator.connection import Connection, Timeouts
from migrator.errors import (
    MigrationError,
    NotApart,
    NotEnoughMemory,
    NotMaster,
    Refusal,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
    TooFewDatabases,
)
from migrator.withdrawing import withdraw
from slotferry.redis_server import RedisServer, embedded_binary, find_binary, start_redis
from slots.access import ServerAccess
from slots.reserved import SWEPT
from tests.integration.migrator.pairs import INSTANCE, Pair, client_of, run_id_at

StartServer = Callable[..., Awaitable[RedisServer]]

MEBIBYTE = 1024 * 1024
ACCESS = ServerAccess()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartServer]:
    """Starts servers with more options, of this version or that, and ends them."""
    started: list[RedisServer] = []

    async def start(*options: str, binary: Path | None = None, databases: int = 16) -> RedisServer:
        name = f"redis-{len(started)}"
        started.append(await start_redis(name, tmp_path, binary=binary, extra=options, databases=databases))
        return started[-1]

    yield start
    for server in started:
        # One that cannot save to its disk would not end by itself.
        await server.kill()


async def checked(
    source: RedisServer | None,
    target: RedisServer,
    share: float = 1.0,
    databases: int = 16,
    password: str = "",
) -> list[str]:
    """Notes of a check."""
    found = await check(
        source.address if source else None,
        target.address,
        share=share,
        databases=databases,
        access=ServerAccess(password),
        instance=INSTANCE,
        timeouts=Timeouts(connect_seconds=5.0),
    )
    return list(found.notes)


async def test_a_server_is_not_a_target_of_itself(start: StartServer) -> None:
    """Not by another name either: the step that drops keys would delete those that have just moved there."""
    server, other = await start(), await start()
    with pytest.raises(NotApart, match=f"127.0.0.1:{server.port} and target localhost:{server.port} are one"):
        await check(
            server.address,
            f"localhost:{server.port}",
            share=1.0,
            databases=16,
            access=ServerAccess(),
            instance=INSTANCE,
        )
    found = await check(
        server.address, other.address, share=1.0, databases=16, access=ServerAccess(), instance=INSTANCE
    )
    async with client_of(server) as giving, client_of(other) as taking:
        assert found.source_run_id == (await giving.info("server"))["run_id"]
        assert found.target_run_id == (await taking.info("server"))["run_id"]
    assert found.source_run_id != found.target_run_id


async def failure(*arguments: Any, **options: Any) -> MigrationError:
    """The check's failure; it left nothing at a target that could say so."""
    with pytest.raises(MigrationError) as raised:
        await checked(*arguments, **options)
    return raised.value


async def fill_up(server: RedisServer, size: int = 2 * MEBIBYTE) -> None:
    """Set keys of 100 KB, together ``size`` bytes or a little more."""
    async with client_of(server) as redis:
        for number in range(size // 100_000 + 1):
            await redis.set(f"large:{number}", b"x" * 100_000)


async def configure(server: RedisServer, **settings: object) -> None:
    async with client_of(server) as redis:
        for name, value in settings.items():
            await redis.config_set(name.replace("_", "-"), value)


async def used(server: RedisServer) -> int:
    async with client_of(server) as redis:
        return int((await redis.info("memory"))["used_memory"])


async def test_a_check_that_passes_leaves_nothing_behind(pair: Pair) -> None:
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.set("key", "value")
        assert await checked(pair.source, pair.target) == []
        assert (await source.keys("*"), await target.keys("*")) == ([b"key"], [])
        for server in (source, target):
            assert [entry for entry in await server.client_list() if "check" in entry["name"]] == []


@pytest.mark.parametrize("left", [False, True])
async def test_hidden_a_source_that_a_copy_has_left_at_its_end_is_told(pair: Pair, left: bool) -> None:
    async with client_of(pair.source) as source:
        if left:
            await source.hset(SWEPT, "left", 1)
    found = await check(
        pair.source.address, pair.target.address, share=1.0, databases=16, access=ServerAccess(), instance=INSTANCE
    )
    assert found.hides is left


async def test_no_client_of_the_target_sees_the_key_of_a_trial(pair: Pair) -> None:
    async with client_of(pair.target) as client, client.monitor() as monitor:
        await checked(pair.source, pair.target)
        await client.echo("over")
        said = []
        while (one := await monitor.next_command())["command"] != "ECHO over":
            said.append(str(one["command"]).split(" ")[0].upper())
    first = said.index("RESTORE")
    assert said[first - 1 : first + 3] == ["MULTI", "RESTORE", "UNLINK", "EXEC"]


async def test_a_target_before_redis_4_is_refused(start: StartServer) -> None:
    """given a server without UNLINK, which came with it."""
    source, target = await start(), await start("--rename-command", "UNLINK", "")
    with pytest.raises(TargetRefused, match="it lacks a command that is needed: it is too old"):
        await checked(source, target)
    assert await checked(None, target) == []


async def test_slots_without_a_source_need_no_more_than_a_master(pair: Pair) -> None:
    assert await checked(None, pair.target) == []


@pytest.mark.parametrize("which", ["newest", "embedded"])
async def test_a_full_source_is_no_hindrance(start: StartServer, which: str) -> None:
    binary = find_binary() if which == "newest" else embedded_binary()
    source, target = await start(binary=binary), await start(binary=binary)
    await fill_up(source)
    await configure(source, maxmemory=await used(source) - MEBIBYTE, maxmemory_policy="noeviction")
    async with client_of(source) as redis:
        with pytest.raises(OutOfMemoryError):
            await redis.set("one more", "")
    assert await checked(source, target) == []


async def test_a_target_that_is_a_replica(start: StartServer) -> None:
    source, target = await start(), await start()
    async with client_of(target) as redis:
        await redis.replicaof("127.0.0.1", source.port)
    found = await failure(source, target)
    assert isinstance(found, NotMaster)
    assert f"target {target.address} is a replica of {source.address}" in str(found)
    assert "master first" in str(found)
    found = await failure(target, source)
    assert isinstance(found, NotMaster)
    assert f"source {target.address} is a replica" in str(found)


async def test_a_target_of_an_older_version(start: StartServer) -> None:
    older = embedded_binary()
    if older is None or older == find_binary():
        pytest.skip("there is one version only")
    source, target = await start(), await start(binary=older)
    found = await failure(source, target)
    assert isinstance(found, TargetRefused)
    assert found.refusal is Refusal.VERSION
    assert "upgrade it" in str(found)
    assert await checked(target, source) == [], "the other way it can be read"


async def test_memory_is_compared_with_what_the_slots_take(start: StartServer) -> None:
    source, target = await start(), await start()
    await fill_up(source, 8 * MEBIBYTE)
    await configure(target, maxmemory=await used(target) + 4 * MEBIBYTE)
    found = await failure(source, target)
    assert isinstance(found, NotEnoughMemory)
    assert re.search(r"the slots take about \d+ MiB", str(found))
    assert "raise its maxmemory" in str(found)
    assert await checked(source, target, share=0.25) == []


async def test_a_target_that_is_full_for_any_key(start: StartServer) -> None:
    source, target = await start(), await start()
    await fill_up(target)
    await configure(target, maxmemory=MEBIBYTE)
    found = await failure(source, target, share=0.0)
    assert isinstance(found, NotEnoughMemory)


async def test_a_target_that_would_evict(start: StartServer) -> None:
    source, target = await start(), await start()
    await fill_up(source, 8 * MEBIBYTE)
    limit = await used(target) + 4 * MEBIBYTE
    await configure(target, maxmemory=limit, maxmemory_policy="allkeys-lru")
    found = await failure(source, target)
    assert isinstance(found, NotEnoughMemory)
    assert "would evict keys (allkeys-lru)" in str(found)
    (note,) = await checked(source, target, share=0.25)
    assert "evicts keys (allkeys-lru) when its memory is used up" in note
    # Caches lose keys at any time, and are full as a rule.
    await configure(source, maxmemory=100 * MEBIBYTE, maxmemory_policy="allkeys-lfu")
    (note,) = await checked(source, target)
    assert "will evict keys (allkeys-lru) to take these" in note


async def test_databases(start: StartServer) -> None:
    source, target = await start(), await start(databases=4)
    (note,) = await checked(source, target)
    assert "fewer than the 16 databases that clients may use" in note
    async with client_of(source, 7) as redis:
        await redis.set("key", "value")
    found = await failure(source, target)
    assert isinstance(found, TooFewDatabases)
    assert "has no database 7" in str(found)


async def test_a_target_that_misses_replicas(start: StartServer) -> None:
    source, target = await start(), await start("--min-replicas-to-write", "1")
    found = await failure(source, target)
    assert isinstance(found, TargetRefused)
    assert found.refusal is Refusal.REPLICAS
    assert "min-replicas-to-write" in str(found)


async def fail_to_save(server: RedisServer) -> None:
    """Take away the folder that a server saves to, and have it try."""
    async with client_of(server) as redis:
        shutil.rmtree(Path((await redis.config_get("dir"))["dir"]))
        await redis.config_set("save", "3600 1")
        await redis.bgsave()
        async with asyncio.timeout(20):
            while (await redis.info("persistence"))["rdb_last_bgsave_status"] != "err":
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("which", ["newest", "embedded"])
async def test_a_source_that_cannot_save(start: StartServer, which: str) -> None:
    source = await start(binary=find_binary() if which == "newest" else embedded_binary())
    target = await start()
    await fail_to_save(source)
    found = await failure(source, target)
    assert isinstance(found, SourceRefused)
    assert found.refusal is Refusal.PERSISTENCE


async def test_a_target_that_cannot_save(start: StartServer) -> None:
    source, target = await start(), await start()
    await fail_to_save(target)
    found = await failure(source, target)
    assert isinstance(found, TargetRefused)
    assert found.refusal is Refusal.PERSISTENCE
    async with client_of(target) as redis:
        await redis.config_set("stop-writes-on-bgsave-error", "no")
    assert await checked(source, target) == []


async def test_a_target_that_is_down_or_wants_another_password(start: StartServer) -> None:
    source, target = await start(), await start("--requirepass", "other")
    found = await failure(source, target)
    assert isinstance(found, TargetRefused)
    assert found.refusal is Refusal.AUTHENTICATION
    await target.stop()
    assert isinstance(await failure(source, target), TargetUnavailable)
    assert isinstance(await failure(target, source), SourceUnavailable)


async def test_the_user_of_the_documentation_has_the_rights(start: StartServer) -> None:
    text = (Path(__file__).parents[3] / "docs" / "server-access.md").read_text()
    (rules,) = re.findall(r"^user slotferry on >inner (.* -@admin .*)$", text, re.MULTILINE)
    source, target = await start(), await start()
    for server in (source, target):
        async with client_of(server) as redis:
            await redis.execute_command("ACL", "SETUSER", "slotferry", "on", ">inner", *rules.split())
    access = ServerAccess("inner", "slotferry")
    for name in (source.address, target.address):
        connection = await Connection.open(
            name,
            name="test",
            access=access,
            unavailable=TargetUnavailable,
            refused=TargetRefused,
            timeouts=Timeouts(),
        )
        assert await connection.call("MODULE", "LIST") == []
        connection.close()
    found = await check(source.address, target.address, share=1.0, databases=16, access=access, instance=INSTANCE)
    assert found.notes == ()
    await withdraw(source.address, target.address, access=access, instance=INSTANCE)


async def test_a_user_that_may_not_run_scripts_at_the_source(start: StartServer) -> None:
    source, target = await start(), await start()
    async with client_of(source) as redis:
        await redis.execute_command("ACL", "SETUSER", "default", "-eval")
    found = await failure(source, target)
    assert isinstance(found, SourceRefused)
    assert found.refusal is Refusal.PERMISSION


async def test_run_id_servers_are_watched_until_slots_are_handed_over(start: StartServer) -> None:
    """given a server that restarts, then it is not the one that was checked, however fast it is back."""
    source, target = await start(), await start()
    found = await check(source.address, target.address, share=1.0, databases=16, access=ACCESS, instance=INSTANCE)
    run_ids = await run_id_at(source), await run_id_at(target)
    assert (found.source_run_id, found.target_run_id) == run_ids
    for server, unavailable in ((target, TargetUnavailable), (source, SourceUnavailable)):
        async with watch(source.address, target.address, access=ACCESS, instance=INSTANCE) as watched:
            await watched.same()
            await server.kill()
            server.start()
            await server.ready()
            with pytest.raises(unavailable):
                await watched.same()
        async with watch(source.address, target.address, access=ACCESS, instance=INSTANCE) as watched:
            assert watched.run_ids != run_ids
            run_ids = watched.run_ids
            await watched.same()
    async with watch(None, target.address, access=ACCESS, instance=INSTANCE) as watched:
        assert watched.run_ids == ("", run_ids[1])
        await watched.same()
