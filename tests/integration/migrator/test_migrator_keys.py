"""Every kind of key arrives as it was, and only the keys of the wanted slots go."""

import asyncio

import pytest
from redis.asyncio import Redis

from migrator.pace import Pace, PaceSettings
from slots.connections import migrator_prefix
from tests.integration.migrator.pairs import Pair, assert_moved, client_of, fill, slot_of


async def all_kinds(redis: Redis) -> None:
    await redis.set("string", "value")
    await redis.set("number", 12345)
    await redis.set("empty value", b"")
    await redis.set(b"", b"the empty key")
    await redis.set(b"a space\r\nand a newline", b"\x00\r\n\xff")
    await redis.set(bytes(range(256)), bytes(range(256)))
    await redis.set("{tag}one", 1)
    await redis.set("{}one", 1)
    await redis.rpush("list", *range(1000))
    await redis.sadd("set of numbers", *range(1000))
    await redis.sadd("set", *(f"member {n}" for n in range(1000)))
    await redis.hset("small hash", "field", "value")
    await redis.hset("hash", mapping={f"field {n}": "x" * n for n in range(1000)})
    await redis.zadd("sorted set", {f"member {n}": n / 3 for n in range(1000)})
    await redis.execute_command("PFADD", "counter", *range(1000))
    await redis.execute_command("GEOADD", "places", "13.361389", "38.115556", "Palermo")
    for n in range(500):
        await redis.execute_command("XADD", "stream", f"{n + 1}-0", "field", str(n))
    await redis.execute_command("XGROUP", "CREATE", "stream", "group", "100-0")
    await redis.execute_command("XREADGROUP", "GROUP", "group", "alice", "COUNT", "7", "STREAMS", "stream", ">")
    await redis.execute_command("XDEL", "stream", "500-0")


def _bytes(reply: bytes | str) -> bytes:
    assert isinstance(reply, bytes)
    return reply


async def contents(redis: Redis) -> dict[bytes, object]:
    """What each key holds, in a form that is equal for equal contents."""
    found: dict[bytes, object] = {}
    for key in map(_bytes, await redis.keys("*")):
        match _bytes(await redis.type(key)).decode():
            case "string":
                found[key] = await redis.get(key)
            case "list":
                found[key] = await redis.lrange(key, 0, -1)
            case "set":
                found[key] = await redis.smembers(key)
            case "hash":
                found[key] = await redis.hgetall(key)
            case "zset":
                found[key] = await redis.zrange(key, 0, -1, withscores=True)
            case "stream":
                # Everything about it except the layout of its radix tree in memory.
                state = await redis.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", "0")
                found[key] = str(state)
    return found


@pytest.mark.parametrize("database", [0, 15])
async def test_every_kind_of_key(pair: Pair, database: int) -> None:
    async with client_of(pair.source, database) as source, client_of(pair.target, database) as target:
        await all_kinds(source)
        before = await contents(source)
        stream = before.pop(b"stream")
        assert len(before) == 16

        await pair.migrate()

        after = await contents(target)
        moved_stream = after.pop(b"stream")
        assert after == before
        # The idle time of a consumer begins again; all else is kept.
        assert _without_times(str(moved_stream)) == _without_times(str(stream))
        assert await source.dbsize() == 0
    assert pair.progress.keys_moved == 17
    assert pair.progress.remaining_keys == 0
    assert pair.progress.passes == 2  # complete: the one that moves them, and one that finds none


def _without_times(state: str) -> str:
    return ",".join(part for part in state.split(",") if "seen-time" not in part and "radix" not in part)


async def test_times_to_live_are_kept(pair: Pair, source: Redis, target: Redis) -> None:
    await source.set("stays", 1)
    await source.set("goes", 1, px=3_600_000)
    await source.set("soon", 1, px=100)
    deadline = await source.execute_command("PEXPIRETIME", "goes")

    await pair.migrate()

    assert await target.pttl("stays") == -1
    assert await target.execute_command("PEXPIRETIME", "goes") == deadline
    async with asyncio.timeout(60):
        while await target.exists("soon"):
            await asyncio.sleep(0.01)


async def test_nothing_is_left_at_either_server_and_none_needs_to_reach_the_other(
    pair: Pair, source: Redis, target: Redis
) -> None:
    await fill(source, 5000)
    await source.config_resetstat()
    await pair.migrate()
    assert await source.keys("*") == []
    assert await target.keys("__slotferry:*") == []
    assert "cmdstat_migrate" not in await source.info("commandstats")


async def test_keys_are_at_the_source_until_they_are_at_the_target(pair: Pair, source: Redis, target: Redis) -> None:
    """given a slow pace, a client that asks the source first finds every key at one of the servers."""
    await fill(source, 3000)
    pair.pace = Pace(PaceSettings(keys_per_second=6000))
    call = asyncio.create_task(pair.migrate())
    asked = 0
    while not call.done():
        for number in range(0, 3000, 500):
            name = f"key:{number}"
            assert await source.exists(name) or await target.exists(name)
            asked += 1
    await call
    assert asked > 100


async def test_keys_of_other_slots_stay(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 5000)
    slots = range(100, 300)

    await pair.migrate(slots)

    await assert_moved(source, target, 5000, slots)


async def test_a_slot_with_few_keys_among_many(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 20_000)
    slot = slot_of(b"key:77")

    await pair.migrate([slot])

    await assert_moved(source, target, 20_000, range(slot, slot + 1))


async def test_every_database_keeps_its_number(pair: Pair) -> None:
    for database in (0, 3, 15):
        async with client_of(pair.source, database) as redis:
            await fill(redis, 100 + database)

    await pair.migrate()

    for database in (0, 3, 15):
        async with client_of(pair.source, database) as source, client_of(pair.target, database) as target:
            await assert_moved(source, target, 100 + database)
    assert pair.progress.keys_moved == 318


async def test_nothing_to_move(pair: Pair) -> None:
    await pair.migrate()
    assert (pair.progress.passes, pair.progress.keys_moved, pair.progress.remaining_keys) == (1, 0, 0)


async def test_large_keys_go_with_small_ones(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 2000)
    large = b"x" * 50_000_000
    await source.set("large", large)
    for n in range(20):
        await source.set(f"middling:{n}", bytes([n]) * 200_000)

    await pair.migrate()

    assert await target.get("large") == large
    for n in range(20):
        assert await target.get(f"middling:{n}") == bytes([n]) * 200_000
    await assert_moved(source, target, 2000)
    assert await source.dbsize() == 0
    assert pair.progress.bytes_moved > 54_000_000


async def test_writers_of_other_slots_lose_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 10_000)
    slots = range(512)
    others = [f"other:{n}" for n in range(2000) if slot_of(b"other:%d" % n) not in slots]
    written: dict[str, int] = {}
    stop = asyncio.Event()

    async def write(mine: list[str]) -> None:
        round_number = 0
        async with client_of(pair.source) as redis:
            while not stop.is_set():
                round_number += 1
                for name in mine:
                    await redis.set(name, round_number)
                    written[name] = round_number
                    if round_number % 5 == 4:
                        await redis.delete(name)
                        del written[name]

    writers = [asyncio.create_task(write(others[n::4])) for n in range(4)]
    await pair.migrate(slots)
    stop.set()
    await asyncio.gather(*writers)

    await assert_moved(source, target, 10_000, slots)
    values = await source.mget(others)
    assert {name: int(value) for name, value in zip(others, values, strict=True) if value is not None} == written


async def test_keys_that_expire_or_go_meanwhile_are_no_error(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 10_000)
    for n in range(2000):
        await source.pexpire(f"key:{n}", 1 + n // 20)
    pair.pace = Pace(PaceSettings(keys_per_second=40_000))

    async def delete() -> None:
        for n in range(2000, 4000):
            await source.delete(f"key:{n}")

    deleting = asyncio.create_task(delete())
    await pair.migrate()
    await deleting

    assert await source.dbsize() == 0
    assert all(value is not None for value in await target.mget([f"key:{n}" for n in range(4000, 10_000)]))


async def test_what_appears_behind_the_scan_is_found_by_the_next_pass(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 20_000)

    async def add() -> int:
        count = 0
        while pair.progress.passes == 0:
            await source.set(f"key:{20_000 + count}", f"value:{20_000 + count}")
            count += 1
        return count

    adding = asyncio.create_task(add())
    await pair.migrate()

    await assert_moved(source, target, 20_000 + await adding)
    assert await source.dbsize() == 0
    assert pair.progress.passes >= 2


async def test_a_stale_copy_at_the_target_is_replaced(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 3000)
    for n in range(0, 3000, 7):
        await target.set(f"key:{n}", "stale", px=100_000)

    await pair.migrate()

    await assert_moved(source, target, 3000)
    assert await target.pttl("key:7") == -1
    assert pair.progress.keys_moved == 3000


async def test_connections_of_an_earlier_migrator_are_ended(pair: Pair) -> None:
    async with client_of(pair.source) as earlier, client_of(pair.source) as other:
        number = await earlier.client_id()
        await earlier.client_setname(f"{migrator_prefix('dead' * 8)}1")
        await other.client_setname("slotferry.proxy.1.1.1")
        other_number = await other.client_id()
        await earlier.get("x")

        await pair.migrate()

        listed = {int(entry["id"]) for entry in await other.client_list()}
        assert number not in listed
        assert other_number in listed


async def test_a_command_left_in_the_socket_buffer_does_not_run_later(pair: Pair, source: Redis, target: Redis) -> None:
    """given a predecessor whose command the source has not read yet: once a call ends, the command has run or never
    will."""
    await fill(source, 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.source.port)
    writer.write(f"CLIENT SETNAME {migrator_prefix('dead' * 8)}1\r\n".encode())
    assert await reader.readline() == b"+OK\r\n"
    # A command that is not complete waits at the server for its rest.
    writer.write(b"*3\r\n$6\r\nUNLINK\r\n$5\r\nkey:1\r\n")
    await writer.drain()

    await pair.migrate()

    assert await reader.read() == b""
    writer.close()
    await assert_moved(source, target, 100)


async def test_calls_in_opposite_directions_lose_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    """given two servers that give each other slots, neither call ends the other's, and each has a permit of its own."""
    await fill(source, 600)
    await target.mset({f"back:{n}": n for n in range(600)})
    forth, back = range(512), range(512, 1024)
    reverse = Pair(pair.target, pair.source)

    await asyncio.gather(pair.migrate(forth), reverse.migrate(back))

    await assert_moved(source, target, 600, forth)
    for n in range(600):
        name = b"back:%d" % n
        assert await (source if slot_of(name) in back else target).get(name) == b"%d" % n
