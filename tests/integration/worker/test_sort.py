"""SORT by keys, and getting keys, that a pattern names: as one Redis where they share the slot and it is at rest."""

from collections.abc import Awaitable, Callable

import pytest

from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Request, converse
from tests.integration.worker.harness import WorkerHarness, slot_of

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
BY_PATTERNS: list[Request] = [
    ("SORT", "{t}list", "BY", "{t}weight_*", "GET", "#"),
    ("SORT", "{t}list", "BY", "{t}weight_*", "DESC", "LIMIT", 1, 2),
    ("SORT", "{t}set", "BY", "{t}weight_*", "GET", "{t}object_*->name", "GET", "#"),
    ("SORT", "{t}set", "BY", "{t}object_*->weight->x", "DESC", "GET", "{t}weight_*"),
    ("SORT", "{t}zset", "BY", "nosort", "GET", "{t}object_*->name"),
    ("SORT", "{t}zset", "GET", "{t}*", "GET", "{t}*->", "GET", "{t}*->*", "GET", "{t}none*"),
    ("SORT", "{t}names", "BY", "{t}weight_*", "ALPHA", "GET", "{t}weight_*"),
    ("SORT", "{t}none", "BY", "{t}weight_*"),
    ("SORT_RO", "{t}set", "BY", "{t}weight_*", "GET", "{t}object_*->name"),
    ("SORT", "{t}list", "BY", "{t}weight_*", "GET", "{t}weight_*", "STORE", "{t}new"),
    ("SORT", "{t}none", "BY", "{t}weight_*", "STORE", "{t}new"),
]
PLAIN: list[Request] = [
    ("SORT", "{t}set", "BY", "{t}weight_*", "LIMIT", "x", 1),
    ("SORT", "{t}set", "BY", "{t}weight_*", "FOO"),
    ("SORT", "{t}set", "GET", "constant", "GET", "{other}constant", "BY", "{other}constant"),
    ("SORT_RO", "{t}set", "BY", "{t}weight_*", "STORE", "{t}new"),
    ("SORT", "{t}set", "DESC"),
    ("SORT", "{t}list", "ALPHA", "GET", "#", "STORE", "{t}new"),
    ("LRANGE", "{t}new", 0, -1),
    ("SORT", "{t}list"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=3)
    requests = [*DATA, *BY_PATTERNS, *PLAIN]
    expected = await converse(worker.servers[2].address, requests, protocol)
    assert await converse(worker.settings.listen, requests, protocol) == expected


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_absent_first_while_the_slot_migrates(start_worker: StartWorker, protocol: int) -> None:
    """What the patterns name may be at the source, so nothing is sorted by it; what names its keys is served."""
    worker = await start_worker(servers=3, lock_hold_seconds=0.2)
    await converse(worker.servers[2].address, DATA)
    await converse(worker.settings.listen, DATA)
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)
    before = sorted(await worker.keys(1))
    for request in BY_PATTERNS:
        assert await converse(worker.settings.listen, [request], protocol) == [
            b"-TRYAGAIN the patterns of SORT name keys that cannot be looked for while their slot moves to another "
            b"server; nothing was run\r\n"
        ]
    assert sorted(await worker.keys(1)) == before
    expected = await converse(worker.servers[2].address, PLAIN, protocol)
    assert await converse(worker.settings.listen, PLAIN, protocol) == expected
    # It is served again where it is at rest.
    await worker.apply([Slot(SLOT, 1)])
    assert not (await converse(worker.settings.listen, BY_PATTERNS[:1], protocol))[0].startswith(b"-")


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


@pytest.mark.parametrize("protocol", [2, 3])
async def test_where_a_rule_makes_all_one_slot(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=2)
    worker.table = worker.table.ruled(worker.table.epoch + 1, (SlotRule("k:*"), SlotRule("*", 5, "five")))
    await worker.apply()

    def tagless(requests: list[Request]) -> list[Request]:
        return [tuple(str(word).replace("{t}", "k:") for word in request) for request in requests]

    sorts = tagless(BY_PATTERNS)
    requests = [*tagless(DATA), *sorts, *tagless(PLAIN), ("MULTI",), sorts[0], ("EXEC",)]
    in_five: list[Request] = [
        *(("SELECT", 5), ("RPUSH", "list", 2, 1), ("MSET", "w1", 2, "w2", 1), ("SORT", "list", "BY", "w*")),
        ("MULTI",),
        ("SORT", "list", "BY", "w*", "STORE", "sorted"),
        ("EXEC",),
    ]
    expected = await converse(worker.servers[1].address, [*requests, *in_five], protocol)
    async with worker.direct(2) as direct:
        await direct.flushall()
    assert await converse(worker.settings.listen, [*requests, *in_five], protocol) == expected
    # In another database it is none. What may be a key of Slotferry has no slot anywhere.
    said = await converse(worker.settings.listen, [("SORT", "list", "BY", "w*"), *in_five[:1]], protocol)
    assert said[0] == DENIED % b"BY"
    for pattern in ("*", "_*->name"):
        said = await converse(worker.settings.listen, [*in_five[:1], ("SORT", "list", "GET", pattern)], protocol)
        assert said[1] == DENIED % b"GET"


@pytest.mark.long
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
    # They were left at the source, which is not scanned here.
    assert (await converse(worker.settings.listen, requests))[-1].startswith(b"*2\r\n:7\r\n*7\r\n")
