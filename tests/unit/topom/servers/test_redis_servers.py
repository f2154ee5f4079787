"""topom's own connections to the servers: how long they hold callers up, and when a server counts as empty."""

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from slotferry.redis_server import start_redis
from slots import connections
from slots.access import ServerAccess
from slots.reserved import LEADER, STATE
from tests.unit.topom.topom_fakes import Bench
from topom.cluster.rules import MOST_PROXIES
from topom.cluster.state import PoolServer
from topom.errors import ServersUnreachable
from topom.placement.pool import Pool
from topom.servers import redis_servers
from topom.servers.detector import Condition
from topom.servers.identities import Identities
from topom.servers.lastcopy import As, HoldsKeys, NotToFollow, ServerFailed
from topom.servers.redis_servers import Fencing, RedisServers
from topom.servers.replication import ServerReplication

ADDRESS = "127.0.0.1:1"


@pytest.mark.parametrize(
    "error", [RuntimeError("the handler is closed"), ConnectionResetError("reset"), TimeoutError()]
)
async def test_a_connection_that_ends_at_any_moment_is_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """given uvloop, writing to a connection that was reset just now raises RuntimeError."""

    async def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(Redis, "execute_command", fail)
    servers = RedisServers(ServerAccess(), 1.0)
    assert await servers.status([ADDRESS]) == {ADDRESS: None}
    reason = (await servers.fence({ADDRESS: ["1" * 32]}))[ADDRESS].refusal
    assert reason
    assert set(await servers.unreachable([ADDRESS])) == {ADDRESS}
    await servers.close()


def pool_of(bench: Bench, servers: RedisServers) -> Pool:
    identities = Identities(bench.ledger, ServerReplication(servers), lambda server: Condition.ALIVE)
    return Pool(bench.ledger, servers, identities)


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    server = await start_redis("redis", tmp_path)
    yield server.address
    await server.stop()


async def test_slotferrys_own_marks_are_no_keys(address: str) -> None:
    """A lost proxy is fenced at a server before the server is filled: the server still counts as empty."""
    servers, bench = RedisServers(ServerAccess(), 5.0), await Bench().start()
    pool = pool_of(bench, servers)
    host, _, port = address.rpartition(":")
    async with Redis(host=host, port=int(port)) as marks, Redis(host=host, port=int(port), db=3) as client:
        assert (await servers.fence({address: ["1" * 32]}))[address].refusal is None
        await marks.hset(LEADER, "term", "1")
        assert await marks.dbsize() == 2
        assert (await pool.content(address)).why_not_wipe(address) == ""
        found = (await servers.status([address]))[address]
        assert found is not None
        assert found.keys == 0
        assert not found.has_a_past
        await pool.add(PoolServer(address))
        await pool.remove(address)
        # When: somebody has a key there.
        await client.set("a", "1")
        assert (await pool.content(address)).keys == 1
        with pytest.raises(HoldsKeys, match="holds 1 key,"):
            await pool.add(PoolServer(address))
        # When: it is not known which keys are marks.
        await client.delete("a")
        await marks.execute_command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", "-exists")
        limited = RedisServers(ServerAccess("secret", "some"), 5.0)
        assert (await pool_of(bench, limited).content(address)).keys == 2
        await limited.close()
    await servers.close()


async def test_a_server_that_loads_its_data_does_not_count_as_empty(tmp_path: Path) -> None:
    """It says how many keys it has loaded, none at first. When it is told to follow it has all of them."""
    slowly = ("--loading-process-events-interval-bytes", "1024", "--key-load-delay", "20000", "--rdbcompression", "no")
    server = await start_redis("redis", tmp_path, extra=slowly)
    servers, bench = RedisServers(ServerAccess(), 5.0), await Bench().start()
    pool = pool_of(bench, servers)
    host, _, port = server.address.rpartition(":")
    try:
        async with Redis(host=host, port=int(port)) as client:
            await client.mset({f"key{number}": "x" * 900 for number in range(300)})
            await client.save()
            await server.stop()
            server.start()
            async with asyncio.timeout(20):
                while (reason := await servers.guarded(server.address, loads)) != "it loads":
                    assert reason is not None
                    await asyncio.sleep(0.01)
            with pytest.raises(ServersUnreachable, match="is loading its data"):
                await pool.content(server.address)
            await client.config_set("key-load-delay", 0)
            await server.ready()
            assert (await pool.content(server.address)).keys == 300
    finally:
        await servers.close()
        await server.stop()


async def loads(client: Redis) -> None:
    """Raises an error with this reason if the server is loading its data."""
    if (await client.info("persistence"))["loading"]:
        raise RuntimeError("it loads")


async def test_many_at_once_wait_for_their_turn_at_a_server(address: str) -> None:
    """A call that comes when all connections are in use is not refused; the marks of many take one connection."""
    servers = RedisServers(ServerAccess(), 5.0)
    instances = [f"{number:032x}" for number in range(250)]
    try:
        fencing = (await servers.fence({address: instances}))[address]
        host, _, port = address.rpartition(":")
        async with Redis(host=host, port=int(port)) as direct:
            assert fencing == Fencing((await direct.info("server"))["run_id"])
        assert await servers.unmarked(instances, address) == {}
        many = [*(servers.unreachable([address]) for _ in range(40)), *(servers.unmarked(["x"], address) for _ in "ab")]
        assert await asyncio.gather(*many) == [{}] * 40 + [{"x": "the mark is gone"}] * 2
    finally:
        await servers.close()


async def test_the_process_that_is_told_is_the_one_that_was_decided_about(tmp_path: Path) -> None:
    """run-id: a server that was restarted after the look and before it is told is left as it is."""
    first, second = [await start_redis(name, tmp_path) for name in ("first", "second")]
    servers = RedisServers(ServerAccess(), 5.0)
    replication = ServerReplication(servers)
    require = replication.require

    async def require_amid_restart(address: str, master: str, told_as: As, sure: str = "") -> str:
        run_id = await require(address, master, told_as, sure)
        await second.kill()
        second.start()
        await second.ready()
        return run_id

    try:
        before = (await replication.read(second.address)).run_id
        replication.require = require_amid_restart  # type: ignore[method-assign]
        with pytest.raises(ServerFailed, match=f"restarted meanwhile: its run id was {before}"):
            await replication.follow(second.address, first.address, As.NEW)
        assert (await replication.look(second.address)).is_master
        with pytest.raises(ServerFailed, match="restarted meanwhile"):
            await replication.make_master(second.address, before)
        # When: it is the same process.
        replication.require = require  # type: ignore[method-assign]
        with pytest.raises(ServerFailed, match="leads to another server"):
            await replication.follow(second.address, first.address, As.NEW, decided=before)
        assert (await replication.look(second.address)).is_master
        told = await replication.follow(second.address, first.address, As.NEW)
        assert told == (await replication.read(second.address)).run_id != before
        assert (await replication.look(second.address)).follows(first.address)
        with pytest.raises(NotToFollow, match="one server under two names"):
            await replication.follow(first.address, first.address.replace("127.0.0.1", "localhost"), As.SPARE)
        # Nothing of this stays in a connection that is used again.
        assert await servers.unreachable([first.address, second.address]) == {}
        await replication.make_master(second.address, told)
        assert (await replication.look(second.address)).is_master
    finally:
        await servers.close()
        await first.stop()
        await second.stop()


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--replica-serve-stale-data", "no"), ("--min-replicas-to-write", "1")])
async def test_one_way_a_new_master_accepts_nothing_by_a_permit_of_before(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """It may have been a master once, and a late mover may bring it keys."""
    master = await start_redis("master", tmp_path)
    replica = await start_redis("replica", tmp_path, extra=options)
    servers = RedisServers(ServerAccess(), 5.0)
    replication = ServerReplication(servers)
    try:
        async with Redis(port=master.port) as direct:
            await direct.hset(STATE, mapping={"permit": "a b c", "accepts": "c b a", "claim:0:key": "somebody"})  # type: ignore[misc]
        await replication.follow(replica.address, master.address, As.NEW)
        async with Redis(port=replica.port) as direct, asyncio.timeout(20):
            while not (await replication.look(replica.address)).link_up:
                await asyncio.sleep(0.02)
            while not await direct.exists(STATE):
                await asyncio.sleep(0.02)
            await master.kill()
            while (await replication.look(replica.address)).link_up:
                await asyncio.sleep(0.02)
            await replication.make_master(replica.address)
            assert (await replication.look(replica.address)).is_master
            left = set(await direct.hkeys(STATE))  # type: ignore[misc]
            # If it may not take writes without replicas of its own, it has to have one first.
            assert left == ({b"permit", b"accepts", b"claim:0:key"} if "1" in options else {b"claim:0:key"})
    finally:
        await servers.close()
        await master.stop()
        await replica.stop()


async def test_as_many_proxies_as_there_may_be_are_fenced_at_once(address: str) -> None:
    """Even at a server without users, which has only the hash."""
    instances = [f"{number:032x}" for number in range(MOST_PROXIES)]
    servers = RedisServers(ServerAccess(), 10.0)
    outcome = (await servers.fence({address: instances}))[address]
    assert (outcome.refusal, bool(outcome.process)) == (None, True)
    assert connections.MOST_FENCED >= 2 * MOST_PROXIES, "the oldest marks go, but not those of the same call"
    assert await servers.unmarked(instances, address) == {}
    await servers.close()


@pytest.mark.parametrize(("fences", "comes_up"), [(10 * connections.AT_A_TIME, True), (connections.AT_A_TIME, False)])
async def test_each_batch_of_fences_has_the_time_of_one_question(
    address: str, monkeypatch: pytest.MonkeyPatch, fences: int, comes_up: bool
) -> None:
    async def fence(client: Redis, instances: Collection[str], by: str) -> str:
        await asyncio.sleep(0.3)
        return "process"

    monkeypatch.setattr(connections, "fence", fence)
    servers = RedisServers(ServerAccess(), 0.1)
    outcome = (await servers.fence({address: [f"{number:032x}" for number in range(fences)]}))[address]
    assert outcome == (Fencing("process") if comes_up else Fencing("", "no answer within 0.1 s"))
    await servers.close()


async def test_a_server_that_is_being_looked_at_keeps_its_connection(address: str) -> None:
    """given that it is none of the cluster's yet, and a page whose look closes all others."""
    servers = RedisServers(ServerAccess(), 10.0)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def look(client: Redis) -> None:
        answer = asyncio.create_task(client.execute_command("BLPOP", "nothing", "0.3"))
        await asyncio.sleep(0.05)
        began.set()
        await go_on.wait()
        await answer

    looking = asyncio.create_task(servers.guarded(address, look))
    await began.wait()
    await servers.keep_only(())
    go_on.set()
    assert await looking is None
    # Nobody uses it any more.
    await servers.keep_only(())
    assert await servers.read(address) is not None
    await servers.close()


async def test_connections_are_closed_by_two_calls_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = RedisServers(ServerAccess(), 1.0)
    addresses = [f"127.0.0.1:{port}" for port in range(1, 5)]
    await servers.status(addresses)
    close = Redis.aclose

    async def slowly(client: Redis) -> None:
        await asyncio.sleep(0.01)
        await close(client)

    monkeypatch.setattr(Redis, "aclose", slowly)
    await asyncio.gather(servers.keep_only(()), servers.keep_only(()))
    await servers.close()


async def test_all_connections_are_closed_although_who_asked_for_it_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = RedisServers(ServerAccess(), 1.0)
    await servers.status([f"127.0.0.1:{port}" for port in range(1, 5)])
    close = Redis.aclose
    began, go_on = asyncio.Event(), asyncio.Event()
    closed: list[Redis] = []

    async def slowly(client: Redis) -> None:
        began.set()
        await go_on.wait()
        await close(client)
        closed.append(client)

    monkeypatch.setattr(Redis, "aclose", slowly)
    asking = asyncio.create_task(servers.keep_only(()))
    await began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled()
    go_on.set()
    await servers.close()
    assert len(closed) == 4


@pytest.fixture
async def hanging(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Lets every reading of a server hang; has a place for each one that began."""
    began = asyncio.Semaphore(0)

    async def hang(client: Redis) -> Any:
        began.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(redis_servers, "read", hang)
    return began


async def test_what_topom_does_waits_for_no_status_of_dead_servers(address: str, hanging: asyncio.Semaphore) -> None:
    servers = RedisServers(ServerAccess(), 60.0)
    dead = [f"127.0.0.1:{port}" for port in range(1, 2 * redis_servers.AT_ONCE)]
    looking = asyncio.create_task(servers.status(dead))
    try:
        async with asyncio.timeout(30):
            for _ in range(redis_servers.SHOWN_AT_ONCE):
                await hanging.acquire()
            assert (await servers.fence({address: ["1" * 32]}))[address].refusal is None
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await servers.close()


async def test_once_closed_a_call_that_goes_on_opens_no_connection(hanging: asyncio.Semaphore) -> None:
    servers = RedisServers(ServerAccess(), 0.1)
    wanted = [f"127.0.0.1:{port}" for port in range(1, redis_servers.SHOWN_AT_ONCE + 10)]
    looking = asyncio.create_task(servers.status(wanted))
    await hanging.acquire()
    await servers.close()
    assert await looking == dict.fromkeys(wanted)
    assert servers._clients == {}
    assert await servers.guarded(ADDRESS, connections.fence) == "this topom does not lead any more"


async def test_all_that_ask_while_servers_do_not_answer_are_given_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """given that the answer takes longer than it is fresh."""
    monkeypatch.setattr(redis_servers, "FRESH_SECONDS", 0.2)
    servers = RedisServers(ServerAccess(), 1.0)
    asked: list[str] = []

    async def read(address: str) -> None:
        asked.append(address)
        await asyncio.sleep(0.3)

    monkeypatch.setattr(servers, "read", read)
    answers = await asyncio.gather(*(servers.status([ADDRESS]) for _ in range(5)))
    assert answers == [{ADDRESS: None}] * 5
    assert asked == [ADDRESS]
    await servers.close()


async def test_the_answer_of_many_servers_is_fresh_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_servers, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(redis_servers, "FRESH_SECONDS_A_SERVER", 1.0)
    servers = RedisServers(ServerAccess(), 1.0)
    asked: list[str] = []

    async def read(address: str) -> None:
        asked.append(address)

    monkeypatch.setattr(servers, "read", read)
    wanted = [f"127.0.0.1:{port}" for port in range(1, 101)]
    for _ in range(2):
        await servers.status(wanted)
    assert asked == wanted
    await servers.close()


async def test_who_leads_leaves_its_mark_at_servers_where_slots_change_their_owner(tmp_path: Path) -> None:
    server = await start_redis("redis", tmp_path)
    leads = True
    try:
        servers = RedisServers(ServerAccess(), 5.0, lambda: leads, lambda: "who it is")
        both = [server.address, ADDRESS]
        assert await servers.used_by(both) == {server.address: ""}, "nobody is at the other one"
        assert (await servers.use(both)).keys() == {ADDRESS}
        assert await servers.used_by(both) == {server.address: "who it is"}
        async with Redis(port=server.port) as client:
            # It has no memory left, so what it says counts and what is written does not.
            await client.config_set("maxmemory", 1)
            full = "it is at its maxmemory; raise that or free memory"
            assert (await servers.use(both))[server.address] == full
            await client.config_set("maxmemory", 0)
            await client.hdel(LEADER, "by")
            leads = False
            assert (await servers.use(both)).keys() == {*both}
            assert await servers.used_by(both) == {server.address: ""}
            leads = True
            await client.delete(LEADER)
            await client.set(LEADER, "odd")
            assert await servers.used_by(both) == {}, "a key of another type is put aside first"
        await servers.close()
    finally:
        await server.stop()
