"""Slots that move while clients work: to and fro between two servers, or once, in every state of a move.

A move here is what proxies see of it. Keys move because somebody asks for them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Request
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.test_big_keys import move_it
from tests.integration.worker.test_left_clients import held
from tests.integration.worker.wire import Wire

POPPING = 8
"""Clients that wait for elements."""


async def _next_turn() -> None:
    await asyncio.sleep(0)


async def move_to_and_fro(
    worker: WorkerHarness,
    key: str,
    until: asyncio.Task[None],
    progress: Callable[[], int],
    migrating: Callable[[], Awaitable[None]] = _next_turn,
    leaving: Callable[[], Awaitable[object]] = _next_turn,
) -> None:
    """Move the slot of a key from the first server to the second and back, until a task has ended.

    Args:
        progress: grows between two moves: a slot that is locked again and again at once would let no request through.
        migrating: done in each move, once keys go.
        leaving: done again and again until the key has left its source.
    """
    slot = slot_of(key)
    source, target = 1, 2
    while not until.done():
        await worker.act([slot], SlotState.PREPARED, source, target)
        await worker.act([slot], SlotState.MIGRATING, source, target)
        await migrating()
        # complete: a key that is being moved is on both servers for a moment.
        async with worker.direct(source) as redis:
            while await redis.exists(key):
                await leaving()
        await worker.apply([Slot(slot, target)])
        source, target = target, source
        before = progress()
        while progress() == before and not until.done():
            await asyncio.sleep(0)
    await until


async def each_is_given_once(
    worker: WorkerHarness,
    keys: Sequence[str],
    total: int,
    migrating: Callable[[], Awaitable[None]] = _next_turn,
) -> None:
    """Pushes to the keys in turn, clients in BLPOP of all of them, and moves of the first one meet in every order:
    each element is given to one client."""
    found: list[int] = []
    pushed = 0

    async def pop(wire: Wire, *asked: str) -> None:
        while True:
            wire.send("BLPOP", *asked, 0)
            heard = await wire.heard()
            assert heard.startswith(b"*2\r\n"), heard
            found.append(int(heard.split(b"\r\n")[4]))

    async def push(wire: Wire) -> None:
        nonlocal pushed
        for number in range(total):
            assert (await wire.say("RPUSH", keys[number % len(keys)], number)).startswith(b":")
            pushed += 1

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(worker.settings.listen)) for _ in range(1 + POPPING)]
        popping = [
            asyncio.create_task(pop(wire, *(keys if place % 2 else reversed(keys))))
            for place, wire in enumerate(wires[1:])
        ]
        await move_to_and_fro(worker, keys[0], asyncio.create_task(push(wires[0])), lambda: pushed, migrating)

        async def all_found() -> bool:
            return len(found) >= total

        await eventually(all_found, "every element")
        for task in popping:
            task.cancel()
        ended = await asyncio.gather(*popping, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    assert sorted(found) == list(range(total))


async def compare_while_slots_move(
    worker: WorkerHarness,
    keys: Iterable[str],
    requests: Sequence[Request],
    compare: Callable[[Sequence[Request]], Coroutine[Any, Any, int]],
    have_left: Callable[[set[str]], None],
) -> None:
    """Compare replies while slots are locked, and then move: those of the keys that are at the first server.

    Args:
        compare: compares with what one Redis says, and counts replies that are worth it.
        have_left: looks at the keys that are left at the source, once all but the first 100 requests have run.
    """
    moving = {slot_of(key) for key in keys if slot_of(key) < 512}
    assert moving
    await worker.act(moving, SlotState.PREPARING)
    assert await compare(requests[:100])
    await worker.act(moving, SlotState.PREPARED)
    async with asyncio.timeout(LIMIT):
        waiting = asyncio.create_task(compare(requests[100:]))
        await held(worker)
        await worker.act(moving, SlotState.MIGRATING)
        assert await waiting
    have_left({key.decode() for key in await worker.keys(1)})
    await move_it(worker, moving)
    await worker.act(moving, SlotState.FINISHED)
    assert await compare(requests)
