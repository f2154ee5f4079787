"""LMPOP and ZMPOP of keys of several slots take from the first key that has something, as at one Redis: each element
once, also while slots move and servers fail."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from proxy.commands.blocking.firstkey import MOST_KEYS
from proxy.engine.refusals import crossslot
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.blocked import Blocked, frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Request, Talk, converse_at_once
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, waits
from tests.integration.worker.test_left_clients import held
from tests.integration.worker.toandfro import move_to_and_fro
from tests.integration.worker.wire import Wire

SLOT = slot_of(NEAR)
KEYS = [NEAR, FAR, *(f"list:{number}" for number in range(4)), "string", "none"]


def a_request(chance: random.Random) -> Request:
    """A pop, mostly of several slots, and now and then with something wrong; or what gives it something to take."""
    key = chance.choice(KEYS[:-2])
    match chance.randrange(4):
        case 0:
            return ("RPUSH", key, *map(str, chance.choices(range(99), k=chance.randint(1, 5))))
        case 1:
            return ("ZADD", key, *map(str, (chance.randrange(9), "a", 3, "b", chance.random(), "c", 1e300, "d")))
    name, ends = chance.choice([("LMPOP", ["LEFT", "RIGHT", "right"]), ("ZMPOP", ["MIN", "MAX", "max"])])
    keys = chance.choices(KEYS, k=chance.randint(1, 5))
    words = [name, str(len(keys)), *keys, chance.choice(ends)]
    if chance.random() < 0.6:
        words += ["COUNT", chance.choice(["1", "2", "3", "100"])]
    if chance.random() < 0.1:
        words.insert(chance.randint(1, len(words)), chance.choice(["0", "-1", "2", "9", "COUNT", "LEFT", "x"]))
    return tuple(words)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_by_chance_as_one_redis_also_while_slots_move(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=3)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    moving = {slot_of(key) for key in KEYS if slot_of(key) < 512}
    assert len(moving) > 1
    chance = random.Random(protocol)
    popped = 0
    for states in ([], [SlotState.PREPARED, SlotState.MIGRATING], [SlotState.FINISHED]):
        for state in states:
            await worker.act(moving, state)
        requests = [("SET", "string", "x"), *(a_request(chance) for _ in range(1000))]
        said = await converse_at_once(worker.settings.listen, requests, protocol)
        expected = await converse_at_once(worker.servers[2].address, requests, protocol)
        for request, one, other in zip(requests, said, expected, strict=True):
            assert one == other, request
        popped += sum(reply.startswith(b"*2\r\n") for reply in said)
    assert popped > 500


async def test_each_element_is_given_once_while_slots_move_to_and_fro(worker: WorkerHarness) -> None:
    total = 300
    found: list[int] = []

    async def pop(wire: Talk, *keys: str) -> None:
        while len(found) < total:
            said = await wire.ask("LMPOP", 2, *keys, "LEFT", "COUNT", 3)
            if said != b"*-1\r\n":
                _, _, _, number, *elements = said.split(b"\r\n")
                assert 1 <= int(number[1:]) <= 3
                found.extend(map(int, elements[1::2]))

    async def push(wire: Talk) -> None:
        for number in range(0, total, 3):
            said = await wire.ask("RPUSH", (NEAR, FAR)[number % 2], number, number + 1, number + 2)
            assert said.startswith(b":"), said

    async with AsyncExitStack() as stack:
        talks = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(5)]
        popping = [
            asyncio.create_task(pop(talk, *((NEAR, FAR) if place % 2 else (FAR, NEAR))))
            for place, talk in enumerate(talks[1:])
        ]
        pushing = asyncio.create_task(push(talks[0]))
        client = await stack.enter_async_context(worker.client())
        await move_to_and_fro(worker, NEAR, pushing, lambda: len(found), leaving=lambda: client.exists(NEAR))
        await asyncio.gather(pushing, *popping)
    assert sorted(found) == list(range(total))


async def test_a_key_that_is_at_its_source_is_taken_from_at_the_target(worker: WorkerHarness) -> None:
    async with worker.direct(1) as source, worker.direct(2) as target, Talk(worker.settings.listen) as talk:
        await source.rpush(NEAR, "a", "b")
        await target.rpush(FAR, "far")
        await worker.act([SLOT], SlotState.PREPARED)
        talk.send("LMPOP", 2, NEAR, FAR, "LEFT")
        await held(worker)
        assert await source.llen(NEAR) == 2
        await worker.act([SLOT], SlotState.MIGRATING)
        assert (await talk.reply()).endswith(b"*1\r\n$1\r\na\r\n")
        assert await source.exists(NEAR) == 0
        assert await target.lrange(NEAR, 0, -1) == [b"b"]
        assert await target.llen(FAR) == 1


async def test_a_pop_whose_outcome_is_unknown_is_the_last(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk, worker.direct(2) as far:
        assert await talk.ask("RPUSH", FAR, "x") == b":1\r\n"
        assert await talk.ask("LLEN", NEAR) == b":0\r\n"
        async with frozen(worker.servers[0]):
            said = await talk.ask("LMPOP", 2, NEAR, FAR, "LEFT")
        assert said.startswith(b"-ERR server %b did not reply within" % worker.servers[0].address.encode())
        assert await far.llen(FAR) == 1


@pytest.mark.long
async def test_nothing_is_taken_for_a_client_that_has_left(worker: WorkerHarness) -> None:
    async with worker.direct(1) as source, Talk(worker.settings.listen) as other:
        await source.rpush(NEAR, "a")
        await worker.act([SLOT], SlotState.PREPARED)
        for number in range(5):
            async with Talk(worker.settings.listen) as talk:
                talk.send("LMPOP", 2, NEAR, FAR, "LEFT")
                # Those that have left are held, too: nobody reads from them meanwhile.
                await held(worker, count=number + 1)
        await worker.act([SLOT], SlotState.PREPARING)
        assert await other.ask("LLEN", NEAR) == b":1\r\n"


async def test_those_who_wait_leave_what_is_there(worker: WorkerHarness) -> None:
    """As in Redis, a pop that does not wait takes what it finds; who waits gets what comes."""
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as wire:
        await blocked.add("BLMPOP", 0, 2, NEAR, FAR, "LEFT")
        await waits(worker, 1)
        assert await wire.say("LMPOP", 2, NEAR, FAR, "LEFT") == b"*-1\r\n"
        await wire.say("RPUSH", FAR, "a")
        assert (await blocked.wires[0].heard()).endswith(b"a\r\n")


async def test_a_transaction_refuses_them(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        for request in (("LMPOP", 2, NEAR, FAR, "LEFT"), ("ZMPOP", 2, NEAR, FAR, "MIN")):
            for before in ((), (("SELECT", 0),)):
                for words in (("MULTI",), *before):
                    await talk.ask(*words)
                assert await talk.ask(*request) == crossslot(NEAR.encode(), SLOT, FAR.encode(), slot_of(FAR))
                assert (await talk.ask("EXEC")).startswith(b"-EXECABORT ")


async def test_users_take_where_they_may(start_worker: StartWorker) -> None:
    users = [
        {"name": "default", "no_password": True},
        {"name": "some", "password": "some", "rules": f"~{NEAR} ~no %R~{FAR} +lmpop"},
    ]
    worker = await start_worker(users=users)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Talk(worker.settings.listen) as talk, Talk(worker.settings.listen) as other:
        for key in (NEAR, FAR):
            await other.ask("RPUSH", key, "x")
        await talk.ask("AUTH", "some", "some")
        assert (await talk.ask("LMPOP", 2, NEAR, FAR, "LEFT")).startswith(b"-NOPERM ")
        assert (await talk.ask("ZMPOP", 2, NEAR, "no", "MIN")).startswith(b"-NOPERM ")
        assert await other.ask("EXISTS", NEAR, FAR) == b":2\r\n"
        assert slot_of("no") != SLOT
        assert (await talk.ask("LMPOP", 2, "no", NEAR, "LEFT")).endswith(b"x\r\n")


async def test_bounded_the_keys_of_a_request(worker: WorkerHarness) -> None:
    keys = [f"many:{number}" for number in range(MOST_KEYS + 1)]
    async with Talk(worker.settings.listen) as talk:
        said = await talk.ask("LMPOP", len(keys), *keys, "LEFT")
        assert said.startswith(b"-ERR LMPOP over several slots: the proxy looks at %d keys at most; with a" % MOST_KEYS)
        await talk.ask("RPUSH", keys[-1], "x")
        assert (await talk.ask("LMPOP", MOST_KEYS, *keys[1:], "LEFT")).endswith(b"x\r\n")
