"""What a worker tells of requests that took long, or that carried or showed much, at real servers."""

import asyncio
import base64
import hashlib
import random
from collections.abc import Awaitable, Callable

import pytest

from proxy.engine.backend import command
from slots.messages.channel import Load
from slots.messages.load import Notable
from slots.messages.questions import WorkerCounters
from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
SPIN = """
local now = redis.call('TIME')
local ends = now[1] * 1000000 + now[2] + 300000
repeat now = redis.call('TIME') until now[1] * 1000000 + now[2] > ends
return 1
"""
MEBIBYTE = 1024 * 1024
ODD_AT_SECOND = [Slot(number, 2) for number in range(1, 1024, 2)]


async def told(worker: WorkerHarness) -> list[Notable]:
    """All that the test has not taken yet. Clients have all of their replies."""
    await worker.asked(WorkerCounters())
    # Those that have come may have been made before the last one was noted; the next one is not.
    arrived = sum(isinstance(message, Load) for message in worker.messages)
    found: list[Notable] = []
    for _ in range(arrived + 1):
        load: Load = await worker.next(lambda message: isinstance(message, Load))
        found += load.notable
    return found


def key_of(notable: Notable) -> bytes:
    return base64.b64decode(notable.key)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_what_is_large_is_told_with_key_user_and_client(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=2, slow_log_microseconds=0.0)
    long_key = b"\xff" + b"k" * 299
    async with Wire(worker.settings.listen, protocol) as wire:
        client = "{}:{}".format(*wire.writer.get_extra_info("sockname")[:2])
        await wire.say("SET", "big", "x" * (2 * MEBIBYTE))
        await wire.say("GET", "big")
        for start in range(0, 20_000, 5_000):
            pairs = [word for number in range(start, start + 5_000) for word in (f"f{number}", "v")]
            await wire.say("HSET", "hash", *pairs)
            await wire.say("RPUSH", "list", *pairs[::2])
        await wire.say("HGETALL", "hash")
        await wire.say("LLEN", "list")
        await wire.say("SET", long_key, "x" * MEBIBYTE)
        # A pipeline of which one is notable.
        others = [command(("GET", f"other:{number}")) for number in range(40)]
        wire.writer.write(b"".join(others[:20]) + command(("GET", "big")) + b"".join(others[20:]))
        await wire.heard()
        found = await told(worker)
    pushed = [one for one in found if one.command == "rpush"]
    rest = [one for one in found if one.command != "rpush"]
    assert [(one.why, one.command, key_of(one), one.length) for one in rest] == [
        ("big_request", "set", b"big", 3),
        ("big_reply", "get", b"big", 3),
        ("big_collection", "hgetall", b"hash", 4),
        ("big_collection", "llen", b"list", 4),
        ("big_request", "set", long_key[:128], 300),
        ("big_reply", "get", b"big", 3),
    ]
    assert [(key_of(one), one.elements) for one in pushed] == [(b"list", 10_000), (b"list", 15_000), (b"list", 20_000)]
    assert [rest[place].elements for place in (0, 2, 3)] == [0, 20_000 if protocol == 3 else 40_000, 20_000]
    assert rest[0].bytes_in == len(command(("SET", "big", "x" * (2 * MEBIBYTE))))
    assert rest[1].bytes_out == len(b"$%d\r\n" % (2 * MEBIBYTE)) + 2 * MEBIBYTE + 2
    for one in found:
        assert one.slot == slot_of(long_key if one.length == 300 else key_of(one))
        assert (one.user, one.client, one.database) == ("default", client, 0)
        assert one.server in worker.addresses
        assert one.seconds < 60


async def test_a_slow_command_is_told_with_its_key_while_much_else_passes(start_worker: StartWorker) -> None:
    """and SLOWLOG shows the key, too. Far more requests pass meanwhile than are under way at a time."""
    worker = await start_worker(servers=2, slow_log_microseconds=200_000.0)
    await worker.apply(ODD_AT_SECOND)
    slow = next(name for name in map("slow:{}".format, range(99)) if slot_of(name) % 2 == 0)
    other = next(name for name in map("other:{{{}}}".format, range(99)) if slot_of(name) % 2)
    async with Wire(worker.settings.listen) as one, Wire(worker.settings.listen) as two:
        await one.say("SELECT", 3)
        one.send("EVAL", SPIN, 1, slow)
        ends = asyncio.create_task(one.heard())
        passed = 0
        while not ends.done():
            for number in range(500):
                two.send("GET", f"{other}{number}")
            await two.heard()
            passed += 500
        assert await ends == b":1\r\n"
        (said,) = [each for each in await told(worker) if each.command == "eval"]
        shown = await one.say("SLOWLOG", "GET", -1)
    assert (said.why, said.database, key_of(said), said.length) == ("slow", 3, slow.encode(), len(slow))
    assert said.slot == slot_of(slow)
    assert said.microseconds >= 290_000
    assert passed >= 500
    assert b"$4\r\neval\r\n" in shown
    assert b"key " + slow.encode() in shown


async def test_a_request_to_several_servers_and_a_transaction_are_told_with_their_first_key(
    start_worker: StartWorker,
) -> None:
    worker = await start_worker(servers=2, slow_log_microseconds=0.0)
    await worker.apply(ODD_AT_SECOND)
    async with Wire(worker.settings.listen) as wire:
        keys = [f"part:{number}" for number in range(8)]
        assert len({slot_of(key) % 2 for key in keys}) == 2
        await wire.say("MSET", *(word for key in keys for word in (key, "x" * (MEBIBYTE // 4))))
        await wire.say("MGET", *keys)
        wire.send("MULTI")
        wire.send("SET", "{first}", "x" * (MEBIBYTE // 2))
        wire.send("APPEND", "{first}:second", "x" * (MEBIBYTE // 2))
        await wire.say("EXEC")
        found = await told(worker)
    assert [(one.why, one.command, one.slot, key_of(one), one.length) for one in found] == [
        ("big_request", "mset", -1, b"part:0", 6),
        ("big_reply", "mget", -1, b"part:0", 6),
        ("big_request", "exec", slot_of("{first}"), b"{first}", 7),
    ]
    assert [one.server in worker.addresses for one in found] == [False, False, True]


async def test_with_hashes_no_name_of_a_key_leaves_the_worker(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, slow_log_microseconds=1.0, hash_hot_keys=True)
    name = f"secret:{random.getrandbits(64)}"
    async with Wire(worker.settings.listen) as wire:
        await wire.say("SET", name, "x" * MEBIBYTE)
        found = await told(worker)
        assert name.encode() not in await wire.say("SLOWLOG", "GET", -1)
    (one,) = [each for each in found if each.command == "set"]
    assert key_of(one) == hashlib.sha256(name.encode()).hexdigest()[:16].encode()
    assert one.length == 16
    assert name not in str(found)
    assert base64.b64encode(name.encode()).decode().rstrip("=") not in str(found)
