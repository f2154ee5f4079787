"""The keyspace events that a move of slots sends are those that docs/failures-moves.md names."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_big_keys import KEY, OTHER, SLOT, fill, move_it

StartWorker = Callable[..., Awaitable[WorkerHarness]]

PAGE = Path(__file__).parents[3] / "docs" / "failures-moves.md"
LASTING, LASTING_BIG = f"{{{KEY}}}lasting", f"{{{KEY}}}big"


async def events(worker: WorkerHarness) -> dict[str, list[str]]:
    """What a client hears of each key while the slot moves."""
    await fill(worker)
    found: defaultdict[str, list[str]] = defaultdict(list)
    async with worker.client(decode_responses=True) as client, client.pubsub() as pubsub:
        await client.set(LASTING, "value", ex=1000)
        await client.rpush(LASTING_BIG, *range(2000))
        await client.expire(LASTING_BIG, 1000)
        await pubsub.psubscribe("__keyspace@0__:*", "over")
        for _ in range(2):
            assert (await pubsub.get_message(timeout=LIMIT) or {})["type"] == "psubscribe"
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.apply([Slot(SLOT, 1, Action(state, 2))])
        await move_it(worker)
        for group in (1, 2):
            async with worker.direct(group) as server:
                await server.publish("over", group)
        async with asyncio.timeout(LIMIT):
            over = 0
            while over < 2:
                message = await pubsub.get_message(timeout=LIMIT)
                assert message is not None
                if message["channel"] == "over":
                    over += 1
                else:
                    found[message["channel"].partition(":")[2]].append(message["data"])
    return found


async def test_what_clients_hear_of_a_move(start_worker: StartWorker) -> None:
    named = PAGE.read_text(encoding="utf-8").partition("### Moving sends keyspace events")[2].partition("\n## ")[0]
    worker = await start_worker(extra=["--notify-keyspace-events", "KA"], big_key_seconds=LIMIT)
    found = await events(worker)
    assert {key: sorted(said) for key, said in found.items()} == {
        OTHER: ["del", "restore"],
        LASTING: ["del", "expire", "restore"],
        KEY: ["del", "persist", "rename_to"],
        LASTING_BIG: ["del", "expire", "rename_to"],
    }
    for said in found.values():
        assert all(f"`{event}`" in named for event in said)
