"""SORT by keys, and getting keys, that a pattern names: as one Redis where they share the slot, also while it moves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.slowpath.sorting import MOST_KEYS
from slots.states import SlotState
from slots.table import Slot
from tests.integration.worker.conversations import Request, Talk, converse
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import frozen

StartWorker = Callable[..., Awaitable[WorkerHarness]]
SLOT = slot_of("{t}")
DENIED = b"-ERR %b option of SORT denied in cluster mode when keys formed by the pattern may be in different slots.\r\n"

DATA: list[Request] = [
    ("RPUSH", "{t}list", "3", "1", "2", "x y"),
    ("SADD", "{t}set", "1", "2", "3"),
    ("SADD", "{t}names", "a", "b", "\xff"),
    ("ZADD", "{t}zset", 1, "2", 2, "1", 3, "3"),
    *[("SET", f"{{t}}weight_{number}", 10 - number) for number in (1, 2, 3)],
    *[("SET", f"{{t}}weight_{name}", 1) for name in ("a", "b", "x y")],
    *[("HSET", f"{{t}}object_{number}", "name", f"n{number}", "weight->x", number) for number in (1, 2, 3)],
    ("SET", "{t}1", "one"),
    ("SET", "{t}2->", "two"),
]
SORTS: list[Request] = [
    ("SORT", "{t}list", "BY", "{t}weight_*", "GET", "#"),
    ("SORT", "{t}list", "BY", "{t}weight_*", "DESC", "LIMIT", 1, 2),
    ("SORT", "{t}set", "BY", "{t}weight_*", "GET", "{t}object_*->name", "GET", "#"),
    ("SORT", "{t}set", "BY", "{t}object_*->weight->x", "DESC", "GET", "{t}weight_*"),
    ("SORT", "{t}zset", "BY", "nosort", "GET", "{t}object_*->name"),
    ("SORT", "{t}zset", "GET", "{t}*", "GET", "{t}*->", "GET", "{t}*->*", "GET", "{t}none*"),
    ("SORT", "{t}names", "BY", "{t}weight_*", "ALPHA", "GET", "{t}weight_*"),
    ("SORT", "{t}none", "BY", "{t}weight_*"),
    ("SORT", "{t}weight_1", "BY", "{t}weight_*"),
    ("SORT", "{t}names", "BY", "{t}object_*"),
    ("SORT", "{t}names", "GET", "{t}weight_*"),
    ("SORT", "{t}set", "BY", "{t}weight_*", "LIMIT", "x", 1),
    ("SORT", "{t}set", "BY", "{t}weight_*", "FOO"),
    ("SORT", "{t}set", "GET", "constant", "GET", "{other}constant", "BY", "{other}constant"),
    ("SORT_RO", "{t}set", "BY", "{t}weight_*", "GET", "{t}object_*->name"),
    ("SORT_RO", "{t}set", "BY", "{t}weight_*", "STORE", "{t}new"),
    ("SORT", "{t}list", "BY", "{t}weight_*", "GET", "{t}weight_*", "STORE", "{t}new"),
    ("LRANGE", "{t}new", 0, -1),
    ("SORT", "{t}none", "BY", "{t}weight_*", "STORE", "{t}new"),
    ("EXISTS", "{t}new"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=3)
    expected = await converse(worker.servers[2].address, [*DATA, *SORTS], protocol)
    assert await converse(worker.settings.listen, [*DATA, *SORTS], protocol) == expected
    async with worker.direct(1) as direct:
        await direct.flushall()
    assert await converse(worker.settings.listen, DATA) == expected[: len(DATA)]
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    assert await converse(worker.settings.listen, SORTS, protocol) == expected[len(DATA) :]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_each_alone_while_the_slot_migrates(start_worker: StartWorker, protocol: int) -> None:
    """Nothing that one SORT had moved helps the next."""
    worker = await start_worker(servers=3)
    await converse(worker.servers[2].address, DATA)
    for request in SORTS[:12]:
        [expected] = await converse(worker.servers[2].address, [request], protocol)
        await converse(worker.settings.listen, DATA)
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await converse(worker.settings.listen, [request], protocol) == [expected], request
        async with worker.direct(1) as source, worker.direct(2) as target:
            # What it does not name is where it was.
            assert await source.exists("{t}2->", "{t}names") >= 1
            await source.flushall()
            await target.flushall()
        await worker.apply([Slot(SLOT, 1)])


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("BY", "weight_*"),
        ("GET", "*"),
        ("BY", "{other}weight_*"),
        ("GET", "*{t}"),
        ("GET", "{*}{t}"),
        ("BY", "{}weight_*{t}"),
        ("GET", "{t*}"),
        ("GET", "}{*"),
    ],
)
async def test_patterns_of_other_slots(start_worker: StartWorker, option: str, pattern: str) -> None:
    worker = await start_worker(servers=1)
    for name in ("SORT", "SORT_RO"):
        requests: list[Request] = [(name, "{t}list", option, pattern), ("MULTI",), (name, "{t}list", option, pattern)]
        said = await converse(worker.settings.listen, [*requests, ("EXEC",)])
        denied = DENIED % option.encode()
        assert said[:3] == [denied, b"+OK\r\n", denied]
        assert said[3].startswith(b"-EXECABORT")


async def test_in_a_transaction(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    requests: list[Request] = [
        ("MULTI",),
        ("RPUSH", "{t}list", "3"),
        ("SORT", "{t}list", "BY", "{t}weight_*", "GET", "{t}object_*->name"),
        ("EXEC",),
    ]
    expected = await converse(worker.servers[1].address, [*DATA, *requests])
    async with worker.direct(2) as direct:
        await direct.flushall()
    assert await converse(worker.settings.listen, [*DATA, *requests]) == expected
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    said = await converse(worker.settings.listen, [*requests, ("LLEN", "{t}list"), *requests[:2], ("EXEC",)])
    assert said[3].startswith(b"-TRYAGAIN ")
    assert said[4] == b":5\r\n"
    assert said[-1] == b"*1\r\n:6\r\n"
    await worker.act([SLOT], SlotState.FINISHED)
    # They were left at the source, which nobody has scanned here.
    assert (await converse(worker.settings.listen, requests))[-1].startswith(b"*2\r\n:7\r\n*7\r\n")


async def test_absent_first_elements_that_come_while_it_sorts(start_worker: StartWorker) -> None:
    """Whoever pushes an element while keys are moved must not have it sorted by a key that is still at the source."""
    worker = await start_worker()
    count = 400
    async with worker.client() as client:
        await client.rpush("{t}list", 0)
        await client.mset({f"{{t}}weight_{number}": count - number for number in range(count)})
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        done, sorted_once = asyncio.Event(), asyncio.Event()

        async def push() -> None:
            async with Talk(worker.settings.listen) as talk:
                for number in range(1, count):
                    await talk.ask("RPUSH", "{t}list", number)
                    if number % 50 == 0:
                        # However fast this is, some are sorted in between.
                        sorted_once.clear()
                        await sorted_once.wait()
            done.set()

        async def sort() -> int:
            sorted_ = 0
            async with Talk(worker.settings.listen) as talk:
                while not done.is_set():
                    reply = await talk.ask("SORT", "{t}list", "BY", "nosort", "GET", "{t}weight_*")
                    if not reply.startswith(b"-TRYAGAIN the key was changed"):
                        assert reply.startswith(b"*")
                        assert b"$-1" not in reply
                        sorted_ += 1
                        sorted_once.set()
            return sorted_

        _, *results = await asyncio.gather(push(), sort(), sort())
        assert await client.sort("{t}list", by="{t}weight_*") == [b"%d" % number for number in reversed(range(count))]
    assert results != [0, 0]


async def test_an_element_pushed_within_it(start_worker: StartWorker) -> None:
    """The list is changed between being read and being sorted, for certain: the moves are held up meanwhile."""
    worker = await start_worker()
    async with Talk(worker.settings.listen) as talk, Talk(worker.settings.listen) as other:
        await converse(worker.settings.listen, [("RPUSH", "{t}list", 1), ("SET", "{t}w1", 5), ("SET", "{t}w2", 3)])
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await other.ask("LLEN", "{t}list") == b":1\r\n"
        async with frozen(worker, 1):
            talk.send("SORT", "{t}list", "BY", "{t}w*", "GET", "#", "GET", "{t}w*")
            await worker.next(lambda m: m["type"] == "counters" and m["counters"]["moving"] > 0)
            assert await other.ask("RPUSH", "{t}list", 2) == b":2\r\n"
        assert await talk.reply() == b"*4\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n1\r\n$1\r\n5\r\n"
        assert await worker.keys(1) == []


async def test_bounded_in_keys(start_worker: StartWorker) -> None:
    worker = await start_worker(move_batch_keys=1000, big_key_elements=MOST_KEYS, big_key_bytes=10_000_000)
    for kind, add in (("list", "RPUSH"), ("set", "SADD")):
        key = f"{{t}}{kind}"
        async with Talk(worker.settings.listen) as talk:
            await talk.ask(add, key, *range(MOST_KEYS // 2))
            await worker.act([SLOT], SlotState.PREPARED)
            await worker.act([SLOT], SlotState.MIGRATING)
            sort = "SORT", key, "BY", "nosort", "LIMIT", 0, 1, "GET", "{t}a*", "GET", "{t}b*"
            assert (await talk.ask(*sort)).startswith(b"*2\r\n")
            await talk.ask(add, key, "more")
            assert await talk.ask(*sort) == (
                b"-TRYAGAIN the patterns of SORT name more than 10000 keys, too many to look for while their slot moves"
                b" to another server; nothing was run\r\n"
            )
            await worker.apply([Slot(SLOT, 1)])
            assert (await talk.ask(*sort)).startswith(b"*")


async def test_keys_that_do_not_move(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=0.3)
    await converse(worker.settings.listen, DATA)
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("LLEN", "{t}list")
        async with frozen(worker, 1):
            assert b"could not be moved yet" in await talk.ask("SORT", "{t}list", "BY", "{t}weight_*")
            assert await talk.ask("LLEN", "{t}list") == b":4\r\n"
        assert (await talk.ask("SORT", "{t}list", "BY", "{t}weight_*")).startswith(b"*4\r\n")


async def test_the_slot_comes_to_rest_meanwhile(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=30.0)
    await converse(worker.settings.listen, DATA)
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("LLEN", "{t}list")
        async with frozen(worker, 1):
            talk.send("SORT", "{t}list", "BY", "{t}weight_*")
            await worker.next(lambda m: m["type"] == "counters" and m["counters"]["moving"] > 0)
            await worker.act([SLOT], SlotState.FINISHED)
        assert await talk.reply() == b"*4\r\n$3\r\nx y\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n1\r\n"


async def test_a_client_that_leaves_leaves_nothing_held(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await converse(worker.settings.listen, DATA)
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    async with worker.client() as client:
        await client.llen("{t}list")
        async with frozen(worker, 1), Talk(worker.settings.listen) as talk:
            talk.send("SORT", "{t}list", "BY", "{t}weight_*", "STORE", "{t}new")
            await worker.next(lambda m: m["type"] == "counters" and m["counters"]["moving"] > 0)
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.act([SLOT], SlotState.PREPARED, 2, 1)
        async with worker.direct(2) as target:
            assert all(entry["multi"] == "-1" for entry in await target.client_list())


async def test_drained_a_lock_waits_for_it(start_worker: StartWorker) -> None:
    """The slot goes on to a third server while the second, to which it has just come, has yet to sort."""
    worker = await start_worker(servers=3, lock_drain_seconds=10.0)
    await converse(worker.settings.listen, DATA)
    sort = "SORT", "{t}list", "BY", "{t}weight_*", "STORE", "{t}new"
    async with Talk(worker.settings.listen) as talk:
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        # All that it names has moved, and its connection is there: only the target has something to do.
        assert await talk.ask(*sort) == b":4\r\n"
        async with frozen(worker, 2):
            worker.messages.clear()
            talk.send(*sort)
            await worker.under_way()
            await worker.act([SLOT], SlotState.FINISHED)
            acting = asyncio.create_task(worker.act([SLOT], SlotState.PREPARED, 2, 3))
            done, _ = await asyncio.wait([acting], timeout=0.3)
            assert not done
        assert await talk.reply() == b":4\r\n"
        await acting
