"""XREAD without BLOCK over several slots answers as one Redis does, also while a slot moves."""

import random
from collections.abc import Iterable, Sequence

import pytest

from proxy.commands.keyreads import MOST_BYTES, MOST_KEYS, too_many_bytes
from proxy.engine.refusals import crossslot
from slots.slot import Slot
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.toandfro import compare_while_slots_move

STREAMS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug"]
KEYS = [*STREAMS, "text", "missing"]
IDS = ["0", "0-0", "$", "1-2", "3", "5-1", "5-2", "9-9", "18446744073709551615-18446744073709551615"]
WRONG_IDS = [">", "x", "-1", "1-", "-", "", "18446744073709551616"]
COUNTS = ["1", "2", "100", "0", "-1", "x", "01"]


def filling(chance: random.Random) -> Iterable[Request]:
    """Requests that make the keys; one stream has had entries, and has none."""
    for stream in STREAMS[:-2]:
        for major in range(1, 8):
            for minor in range(chance.randint(0, 3)):
                yield ("XADD", stream, f"{major}-{minor}", "field", f"{stream} {major}\r\n")
    yield ("XADD", STREAMS[-2], "1-1", "f", "v")
    yield ("XDEL", STREAMS[-2], "1-1")
    for number in range(1, 300):
        yield ("XADD", STREAMS[-1], f"{number}-0", "field", f"value:{number}")
    yield ("SET", "text", "x")


def a_request(chance: random.Random) -> Request:
    """A request, mostly of several slots, and now and then with something wrong."""
    keys = chance.choices(chance.choice([STREAMS[:-1], STREAMS[:-1], STREAMS, KEYS]), k=chance.randint(1, 6))
    ids = chance.choices([*IDS, *WRONG_IDS] if chance.random() < 0.1 else IDS, k=len(keys))
    options: list[str] = []
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        options += [chance.choice(["COUNT", "count"]), chance.choice(COUNTS if chance.random() < 0.1 else COUNTS[:5])]
    words = [chance.choice(["XREAD", "xread"]), *options, chance.choice(["STREAMS", "streams"]), *keys, *ids]
    if chance.random() < 0.1:
        words.insert(chance.randint(1, len(words)), chance.choice(["0", "COUNT", "STREAMS", "NOACK", "GROUP", "x"]))
    return tuple(words)


async def compare(worker: WorkerHarness, requests: Sequence[Request], protocol: int) -> int:
    """Compare with the third server, a plain Redis; how many replies had entries."""
    said = await converse_at_once(worker.settings.listen, requests, protocol)
    expected = await converse_at_once(worker.servers[2].address, requests, protocol)
    for request, one, other in zip(requests, said, expected, strict=True):
        assert one == other, request
    return sum(reply.startswith((b"*", b"%")) and not reply.startswith(b"*-1") for reply in said)


async def with_plain_redis(start_worker: StartWorker, **settings: float) -> WorkerHarness:
    """A worker whose slots are at two servers, and a third server that is none of its own."""
    worker = await start_worker(servers=3, **settings)
    assert {slot_of(key) // 512 for key in STREAMS} == {0, 1}
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    requests = list(filling(random.Random(7)))
    for address in (worker.settings.listen, worker.servers[2].address):
        assert not [reply for reply in await converse_at_once(address, requests) if reply.startswith(b"-")]
    return worker


@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    chance = random.Random(protocol)
    assert await compare(worker, [a_request(chance) for _ in range(1000)], protocol) > 500


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_while_slots_are_locked_and_then_move(start_worker: StartWorker, protocol: int) -> None:
    worker = await with_plain_redis(start_worker)
    chance = random.Random(protocol + 40)
    requests = [a_request(chance) for _ in range(300)]

    def have_left(left: set[str]) -> None:
        # absent-first: every key that was read has left the source before.
        asked = {word for request in requests[100:] for word in request if word in KEYS}
        assert not asked & left

    await compare_while_slots_move(worker, KEYS, requests, lambda some: compare(worker, some, protocol), have_left)


async def test_each_reply_in_its_turn_and_after_what_was_written_before(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    some = STREAMS[:-1]
    requests: list[Request] = []
    for number in range(20):
        requests += [
            ("XADD", some[number % 6], f"{100 + number}-1", "f", "v"),
            ("XREAD", "STREAMS", *some, *["7-5"] * len(some)),
            ("XLEN", some[number % 6]),
        ]
    assert await compare(worker, requests, 2) == 20


async def test_a_transaction_refuses_it_and_groups_are_refused(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    one, other = STREAMS[:2]
    refused = crossslot(one.encode(), slot_of(one), other.encode(), slot_of(other))
    for block in ((), ("BLOCK", "0")):
        read = ("XREAD", *block, "STREAMS", one, other, "0", "0")
        said = await converse(worker.settings.listen, [("MULTI",), read, ("EXEC",)])
        assert said[1] == refused
        assert said[2].startswith(b"-EXECABORT ")
        group = ("XREADGROUP", "GROUP", "g", "c", *block, "STREAMS", one, other, ">", ">")
        assert await converse(worker.settings.listen, [group]) == [refused]


async def test_users_read_keys_that_they_may_use(start_worker: StartWorker) -> None:
    one, other = STREAMS[:2]
    users = [
        {"name": "default", "no_password": True},
        {"name": "reader", "password": "p", "read_only": True},
        {"name": "some", "password": "p", "rules": f"~{one} ~missing +xread"},
    ]
    worker = await start_worker(users=users)
    async with Talk(worker.settings.listen) as talk:
        for key in (one, other):
            await talk.ask("XADD", key, "1-1", "f", "v")
        await talk.ask("AUTH", "reader", "p")
        assert (await talk.ask("XREAD", "STREAMS", one, other, 0, 0)).startswith(b"*2\r\n")
        await talk.ask("AUTH", "some", "p")
        assert (await talk.ask("XREAD", "STREAMS", one, other, 0, 0)).startswith(b"-NOPERM ")
        assert (await talk.ask("XREAD", "STREAMS", "missing", one, 0, 0)).startswith(b"*1\r\n")


async def test_what_is_too_much(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    value = "v" * (MOST_BYTES // 10)
    one, other = "large:1", "large:2"
    assert slot_of(one) != slot_of(other)
    async with Talk(worker.settings.listen) as talk:
        for number in range(1, 7):
            for key in (one, other):
                await talk.ask("XADD", key, number, "f", value)
        assert len(await talk.ask("XREAD", "STREAMS", one, STREAMS[0], 0, 0)) > MOST_BYTES // 2
        assert await talk.ask("XREAD", "STREAMS", one, other, 0, 0) == too_many_bytes("XREAD")
        assert (await talk.ask("XREAD", "COUNT", 2, "STREAMS", one, other, 0, 0)).startswith(b"*2\r\n")
        for number in range(7, 13):
            await talk.ask("XADD", one, number, "f", value)
        # One that is larger alone is not kept either.
        assert await talk.ask("XREAD", "STREAMS", STREAMS[0], one, 0, 0) == too_many_bytes("XREAD")
        none = [f"none:{number}" for number in range(MOST_KEYS + 1)]
        said = await talk.ask("XREAD", "STREAMS", *none, *["0"] * len(none))
        assert said.startswith(b"-ERR XREAD over several slots: the proxy reads at most 1000 keys; with a hash tag ")
        assert await talk.ask("XREAD", "STREAMS", *none[1:], *["0"] * MOST_KEYS) == b"*-1\r\n"


async def test_the_first_error_counts_and_a_server_that_is_down_is_named(start_worker: StartWorker) -> None:
    worker = await with_plain_redis(start_worker)
    near, far = (next(key for key in STREAMS if (slot_of(key) < 512) == at_first) for at_first in (True, False))
    await worker.servers[1].kill()
    async with Talk(worker.settings.listen) as talk:
        said = await talk.ask("XREAD", "STREAMS", near, far, "0", "0")
        assert said.startswith(b"-ERR server %b " % worker.servers[1].address.encode())
        assert (await talk.ask("XREAD", "STREAMS", near, far, "x", "0")).startswith(b"-ERR Invalid stream ID")
        assert (await talk.ask("XREAD", "STREAMS", near, "0")).startswith(b"*1\r\n")
