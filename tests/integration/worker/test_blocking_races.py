"""The end of a wait meets the awaited element, in every order: each element is given once, and none is lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually

StartWorker = Callable[..., Awaitable[WorkerHarness]]
pytestmark = pytest.mark.parametrize("kept", [0, 3], ids=["made", "kept"])
KEY = "{races}list"
SLOT = slot_of(KEY)

POPS = {
    "timeouts": [("BLPOP", KEY, "0.002"), ("BRPOP", KEY, "0.005"), ("BLMPOP", "0.003", 1, KEY, "LEFT")],
    "unblocked": [("BLPOP", KEY, 0), ("BRPOP", KEY, 100)],
    "moved": [("BLMOVE", KEY, "{races}to", "LEFT", "RIGHT", "0.01"), ("BRPOPLPUSH", KEY, "{races}to", 0)],
    "read": [
        ("XREADGROUP", "GROUP", "g", "me", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", KEY, ">")
        for milliseconds in (0, 3)
    ],
}
NOTHING = (b"*-1\r\n", b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")


@pytest.mark.parametrize("kind", POPS)
@pytest.mark.parametrize("moving", [False, True])
async def test_no_element_is_lost(start_worker: StartWorker, kind: str, moving: bool) -> None:
    worker = await start_worker()
    # While the slot moves, about one push comes to a move.
    total = 25 if moving else 300
    found: list[bytes] = []
    chance = random.Random(kind)

    async def pop(talk: Talk) -> None:
        while True:
            said = await talk.ask(*chance.choice(POPS[kind]))
            if said not in NOTHING:
                assert said[:1] in b"*$", said
                # The element is the last word, also of BLMPOP and of a stream's entry.
                found.append(said.split(b"\r\n")[-2])

    async def push(talk: Talk) -> None:
        for element in range(total):
            words = ("XADD", KEY, "*", "f", element) if kind == "read" else ("RPUSH", KEY, element)
            assert (await talk.ask(*words))[:1] in b":$"

    async def unblock(talk: Talk, numbers: list[int]) -> None:
        while True:
            said = await talk.ask("CLIENT", "UNBLOCK", chance.choice(numbers), chance.choice(("TIMEOUT", "ERROR")))
            assert said in (b":0\r\n", b":1\r\n")

    async def move(talk: Talk) -> None:
        source, target = 1, 2
        while True:
            await worker.act([SLOT], SlotState.PREPARED, source, target)
            await worker.act([SLOT], SlotState.MIGRATING, source, target)
            # complete: in the migrator's place.
            await talk.ask("EXISTS", KEY, "{races}to")
            await worker.apply([Slot(SLOT, target)])
            source, target = target, source

    async with AsyncExitStack() as stack:
        talks = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(9)]
        numbers = [int((await talk.ask("CLIENT", "ID"))[1:]) for talk in talks[3:]]
        if kind == "read":
            await talks[0].ask("XGROUP", "CREATE", KEY, "g", "$", "MKSTREAM")
        running = [asyncio.create_task(pop(talk)) for talk in talks[3:]]
        running.append(asyncio.create_task(unblock(talks[1], numbers)))
        if moving:
            running.append(asyncio.create_task(move(talks[2])))
        pushing = asyncio.create_task(push(talks[0]))

        async def all_found() -> bool:
            for task in (pushing, *running):
                if task.done() and task is not pushing:
                    task.result()
            return pushing.done() and len(found) >= total

        await eventually(all_found, f"{total} elements")
        await pushing
        if kind == "moved":
            assert await talks[0].ask("LLEN", "{races}to") == b":%d\r\n" % total
        if kind == "read":
            assert (await talks[0].ask("XPENDING", KEY, "g")).startswith(b"*4\r\n:%d\r\n" % total)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert sorted(found, key=int) == [b"%d" % element for element in range(total)]
