"""A server is swept of keys of slots that it does not own: of those alone, and never by what comes late."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from migrator.connection import Timeouts
from migrator.errors import ForeignKeys, ServerUnavailable, Superseded, SweepOvertaken
from migrator.pace import Pace, PaceSettings
from migrator.sweep import Swept, look, stop, sweep
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from slots.reserved import HIDDEN, LEADER, POSITION, RESERVED, SWEPT
from tests.integration.breaking_relay import BreakingRelay, Direction
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS, client_of, fill, slot_of

DATA = "d" * 32
HALF = NUMBER_OF_SLOTS // 2
FOREIGN = bytes(slot >= HALF for slot in range(NUMBER_OF_SLOTS))
"""The server owns the first half of the slots."""


class Warranted:
    """What a topom would say."""

    def __init__(self, known: bool = True) -> None:
        self.known = known
        self.asked: list[tuple[int, bool]] = []
        self.on_hold: Callable[[int], None] = lambda removed: None

    def foreign(self) -> bytes:
        return FOREIGN

    async def begin(self, keys: int, known: bool) -> bytes:
        self.asked.append((keys, known))
        if not known and self.known:
            raise ForeignKeys(f"{keys} keys")
        return FOREIGN

    def hold(self, removed: int) -> None:
        self.on_hold(removed)


async def swept(
    server: RedisServer,
    warrant: Warranted | None = None,
    *,
    data: str = DATA,
    pace: Pace | None = None,
    term: int = 0,
    timeouts: Timeouts | None = None,
    address: str = "",
) -> Swept:
    return await sweep(
        address or server.address,
        data,
        warrant or Warranted(),
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
        access=ServerAccess(),
        pace=pace or Pace(),
        instance=INSTANCE,
        timeouts=timeouts,
        term=term,
    )


@pytest.fixture
async def server(servers: tuple[RedisServer, RedisServer]) -> RedisServer:
    async with client_of(servers[0]) as redis:
        await redis.flushall()
    return servers[0]


async def numbers(redis: Redis) -> set[int]:
    """The numbers of the keys that are there, without Slotferry's own."""
    return {int(key[4:]) for key in await redis.keys("*") if not key.startswith(RESERVED)}


def owned(count: int) -> set[int]:
    return {number for number in range(count) if slot_of(b"key:%d" % number) < HALF}


async def test_a_server_before_redis_4_is_swept(tmp_path: Path) -> None:
    """given a server without UNLINK, which came with it."""
    server = await start_redis("older", tmp_path, extra=("--rename-command", "UNLINK", ""))
    async with client_of(server) as redis, client_of(server, database=9) as ninth:
        await fill(redis, 300)
        await fill(ninth, 100)
        assert await swept(server, Warranted(known=False)) == Swept(300 - len(owned(300)) + 100 - len(owned(100)))
        assert (await numbers(redis), await numbers(ninth)) == (owned(300), owned(100))
        assert (await look(redis)).is_swept(DATA)
    await server.stop()


async def test_keys_of_others_go_from_every_database_and_all_else_stays(server: RedisServer) -> None:
    async with client_of(server) as redis, client_of(server, database=9) as ninth:
        # An empty server is swept at once, and its data is known from then on.
        assert await swept(server) == Swept(0)
        assert (await look(redis)).is_swept(DATA)
        await fill(redis, 3000)
        await fill(ninth, 500)
        foreign = next(number for number in range(3000, 4000) if slot_of(b"key:%d" % number) >= HALF)
        await redis.hset(f"key:{foreign}", mapping={str(field): "value" for field in range(10_000)})
        await redis.set(RESERVED + b"other", "1")
        # As after a restart.
        await redis.hset(SWEPT, "swept", "another life")
        assert not (await look(redis)).is_swept(DATA)
        warrant = Warranted()
        removed = (3000 - len(owned(3000))) + (500 - len(owned(500))) + 1
        assert await swept(server, warrant) == Swept(removed)
        assert warrant.asked == [(removed, True)]
        assert (await numbers(redis), await numbers(ninth)) == (owned(3000), owned(500))
        assert await redis.get(RESERVED + b"other") == b"1"
        assert (await look(redis)).is_swept(DATA)
        assert set(await redis.hkeys(SWEPT)) == {b"swept", b"data"}
        # It is swept: nothing is looked at again.
        await fill(redis, 10)
        assert await swept(server, warrant) == Swept(0)
        assert len(warrant.asked) == 1


async def test_data_that_nobody_knows_is_not_touched(server: RedisServer) -> None:
    async with client_of(server) as redis:
        await fill(redis, 100)
        for data in ("", "e" * 32):
            await redis.delete(SWEPT)
            if data:
                await redis.hset(SWEPT, mapping={"data": data, "swept": (await look(redis)).life})
            warrant = Warranted()
            with pytest.raises(ForeignKeys):
                await swept(server, warrant)
            assert warrant.asked == [(100 - len(owned(100)), False)]
            assert len(await numbers(redis)) == 100
            assert not (await look(redis)).is_swept(DATA)
        # Unless an operator says so.
        await swept(server, Warranted(known=False))
        assert await numbers(redis) == owned(100)
        assert (await look(redis)).is_swept(DATA)


async def test_a_server_with_older_data_is_swept_anew(tmp_path: Path) -> None:
    """Also when its data says that it was swept: that was another process."""
    server = await start_redis("sweep", tmp_path)
    try:
        async with client_of(server) as redis:
            await swept(server)
            await fill(redis, 1000)
            await redis.save()
            before = await look(redis)
            assert before.is_swept(DATA)
            await redis.delete(*(f"key:{number}" for number in range(1000) if number not in owned(1000)))
            await server.kill()
            server.start()
            await server.ready()
            after = await look(redis)
            assert (after.swept_in, after.data) == (before.life, DATA)
            assert not after.is_swept(DATA)
            assert await swept(server) == Swept(1000 - len(owned(1000)))
            assert await numbers(redis) == owned(1000)
    finally:
        await server.stop()


@pytest.mark.long
async def test_a_master_that_has_followed_another_is_swept_anew(servers: tuple[RedisServer, RedisServer]) -> None:
    """Its process is the same, and so is its mark, but its data is the other server's."""
    first, second = servers
    async with client_of(first) as redis, client_of(second) as other:
        await redis.flushall()
        await swept(first)
        life = (await look(redis)).life
        await other.flushall()
        await fill(other, 100)
        await other.hset(SWEPT, mapping={"swept": life, "data": DATA})
        try:
            await redis.execute_command("REPLICAOF", "127.0.0.1", second.port)
            async with asyncio.timeout(30):
                while len(await numbers(redis)) < 100:
                    await asyncio.sleep(0.05)
        finally:
            await redis.execute_command("REPLICAOF", "NO", "ONE")
        assert (await redis.hgetall(SWEPT))[b"swept"] == life.encode()
        assert not (await look(redis)).is_swept(DATA)
        assert await swept(first) == Swept(100 - len(owned(100)))


async def test_what_is_late_deletes_nothing(server: RedisServer) -> None:
    """A script of a sweep is on its way for so long that the slots arrive at the server before it does."""
    async with client_of(server) as redis, BreakingRelay(server.port) as relay:
        await swept(server)
        await fill(redis, 2000)
        await redis.hset(SWEPT, "swept", "another life")
        faults = []

        def hold(removed: int) -> None:
            if removed and not faults:
                faults.append(relay.hold(directions=frozenset({Direction.TO_SERVER})))

        warrant = Warranted()
        warrant.on_hold = hold
        with pytest.raises(ServerUnavailable):
            await swept(server, warrant, address=relay.address, timeouts=Timeouts(reply_seconds=0.3))
        assert await numbers(redis) > owned(2000)
        # Another sweep comes to its end, and the slots come here with the same keys.
        await swept(server)
        assert await numbers(redis) == owned(2000)
        await fill(redis, 2000)
        calls = (await redis.info("commandstats"))["cmdstat_eval"]["calls"]
        for fault in faults:
            fault.mend()
        async with asyncio.timeout(30):
            while (await redis.info("commandstats"))["cmdstat_eval"]["calls"] == calls:
                await asyncio.sleep(0.01)
        assert len(await numbers(redis)) == 2000
        assert (await look(redis)).is_swept(DATA)


@pytest.mark.parametrize("how", ["stopped", "begun anew"])
async def test_a_sweep_that_is_overtaken_ends(server: RedisServer, how: str) -> None:
    async with client_of(server) as redis, client_of(server) as other:
        await swept(server)
        await fill(redis, 3000)
        await redis.hset(SWEPT, "swept", "another life")
        pace = Pace(PaceSettings(keys_per_second=1000))
        task = asyncio.create_task(swept(server, pace=pace))
        async with asyncio.timeout(30):
            while len(await numbers(other)) == 3000:
                await asyncio.sleep(0.01)
        if how == "stopped":
            await stop(server.address, access=ServerAccess(), instance=INSTANCE)
        else:
            await swept(server)
        with pytest.raises(SweepOvertaken):
            await task
        assert (await look(redis)).is_swept(DATA) is (how == "begun anew")
        assert await numbers(redis) >= owned(3000)


async def test_the_warrant_is_asked_before_each_step(server: RedisServer) -> None:
    async with client_of(server) as redis:
        await swept(server)
        await fill(redis, 3000)
        await redis.hset(SWEPT, "swept", "another life")

        def refuse(removed: int) -> None:
            if removed:
                raise SweepOvertaken("a slot came")

        warrant = Warranted()
        warrant.on_hold = refuse
        with pytest.raises(SweepOvertaken, match="a slot came"):
            await swept(server, warrant)
        assert len(await numbers(redis)) == 3000 - 200
        assert not (await look(redis)).is_swept(DATA)


async def test_the_pace_holds(server: RedisServer) -> None:
    async with client_of(server) as redis:
        await swept(server)
        await fill(redis, 400)
        await redis.hset(SWEPT, "swept", "another life")
        began = asyncio.get_running_loop().time()
        removed = (await swept(server, pace=Pace(PaceSettings(keys_per_second=500)))).removed
        assert asyncio.get_running_loop().time() - began > (removed - 60) / 500


async def test_a_late_leader_sweeps_nothing(server: RedisServer) -> None:
    async with client_of(server) as redis:
        await fill(redis, 100)
        await swept(server, Warranted(known=False), term=2)
        await fill(redis, 100)
        for late in (swept(server, Warranted(known=False), term=1), swept(server, data="f" * 32, term=1)):
            with pytest.raises(Superseded):
                await late
        assert len(await numbers(redis)) == 100
        await redis.delete(LEADER)


async def test_a_server_at_its_limit_of_memory_is_swept(tmp_path: Path) -> None:
    server = await start_redis("sweep", tmp_path)
    try:
        async with client_of(server) as redis:
            await swept(server)
            await fill(redis, 1000)
            await redis.hdel(SWEPT, "swept")
            await redis.config_set("maxmemory", 1)
            assert (await swept(server)).removed == 1000 - len(owned(1000))
    finally:
        await server.stop()


async def test_a_sweep_that_is_broken_off_at_its_beginning_ends_no_copy(server: RedisServer) -> None:
    """given slots that are copied to a server, and an operator who has it swept."""

    class BrokenOff(Exception):
        pass

    class Refusing(Warranted):
        def foreign(self) -> bytes:
            raise BrokenOff

    async with client_of(server) as redis:
        await redis.set(POSITION, "c0ffee 3 10")
        with pytest.raises(BrokenOff):
            await swept(server, Refusing())
        assert await redis.get(POSITION) == b"c0ffee 3 10"
        await swept(server)
        assert await redis.get(POSITION) is None, "what may be swept has no copy"


async def test_hidden_keys_that_go_are_counted_down_and_a_swept_server_has_none(server: RedisServer) -> None:
    class BrokenOff(Exception):
        pass

    def break_off(removed: int) -> None:
        if removed:
            raise BrokenOff

    async with client_of(server) as redis:
        await fill(redis, 1000)
        foreign = sum(FOREIGN[slot_of(key)] for key in await redis.keys("*"))
        await redis.hset(HIDDEN, mapping={"0": foreign, "3": 5})
        await redis.hset(SWEPT, "left", 1)
        # It was swept with this data before.
        warrant = Warranted(known=False)
        warrant.on_hold = break_off
        with pytest.raises(BrokenOff):
            await swept(server, warrant)
        left = sum(FOREIGN[slot_of(key)] for key in await redis.keys("*") if not key.startswith(RESERVED))
        assert 0 < left < foreign
        assert await redis.hgetall(HIDDEN) == {b"0": b"%d" % left, b"3": b"5"}
        assert await redis.hexists(SWEPT, "left")
        await swept(server, Warranted(known=False))
        assert await redis.exists(HIDDEN) == 0
        assert not await redis.hexists(SWEPT, "left")
