"""Slots that are held in one state while the leader goes, and requests to a leader that wakes.

``pending`` is held by a pause, ``preparing`` and ``finished`` by a worker that is stopped and so acknowledges nothing,
``prepared`` by a source that owes a reply, ``migrating`` by a slow pace and keys that only the migrator moves.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from slots.reserved import LEADER
from tests.integration.cluster.harness import eventually, log_of, plain_client
from tests.integration.cluster.several import SeveralTopoms

MOVED = 128
"""Slots that go to and fro between groups 1 and 2: the first ones."""
SLOW = 40
"""Keys a second, of some hundreds that only the migrator moves."""


@dataclass
class Move:
    """Slots on their way, and what holds them."""

    cluster: SeveralTopoms
    source: int
    holds: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def target(self) -> int:
        """The group that they go to."""
        return 3 - self.source

    async def begin(self) -> None:
        """Send them on their way."""
        await self.cluster.api.move_slots(f"0-{MOVED - 1}", self.target)

    def stop_worker(self) -> None:
        """Stop a worker of the second proxy, until the slots are let go."""
        pid = self.cluster.worker_pids(1)[0]
        os.kill(pid, signal.SIGSTOP)
        self.holds.callback(os.kill, pid, signal.SIGCONT)


async def pending(move: Move) -> None:
    await move.cluster.api.pause_migration()
    await move.begin()
    await move.cluster.in_state("pending")
    move.holds.push_async_callback(move.cluster.api.resume_migration)


async def preparing(move: Move) -> None:
    move.stop_worker()
    await move.begin()
    await move.cluster.in_state("preparing")


async def prepared(move: Move) -> None:
    await move.holds.enter_async_context(move.cluster.held_locked(move.begin, move.source, MOVED))


async def migrating(move: Move) -> None:
    await move.cluster.api.set_migration(keys_per_second=SLOW)
    await move.begin()
    await move.cluster.moving(SLOW // 4)


async def finished(move: Move) -> None:
    await migrating(move)
    move.stop_worker()
    await move.cluster.api.set_migration(keys_per_second=0)
    await move.cluster.in_state("finished")


Reach = Callable[[Move], Awaitable[None]]
STATES: dict[str, Reach] = {reach.__name__: reach for reach in (pending, preparing, prepared, migrating, finished)}


@asynccontextmanager
async def held(cluster: SeveralTopoms, state: str) -> AsyncIterator[Move]:
    """Inside the block, slots are in this state; at its end they are let go."""
    move = Move(cluster, (await cluster.api.slots())["slots"][0]["group_id"])
    async with move.holds:
        await STATES[state](move)
        yield move


async def goes_on(cluster: SeveralTopoms, leader: int, group: int) -> None:
    """The new leader brings the slots to rest in this group."""
    async with cluster.asking(leader):
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest()
        assert {slot["group_id"] for slot in (await cluster.api.slots())["slots"][:MOVED]} == {group}


async def wakes_in_vain(cluster: SeveralTopoms, leader: int, former: int) -> None:
    """The former leader goes on, and finds that it follows; what is stored stays as it is."""
    async with cluster.asking(leader):
        before = await cluster.api.slots()
        terms = await terms_at(cluster)
        cluster.resume_topom(former)
        await eventually(
            lambda: cluster.readiness(former),
            lambda said: said == "ok",
            "the former leader to follow",
        )
        assert await cluster.leads({former}) is None
        await eventually(
            lambda: said_since_it_led(cluster, former), lambda said: "leading_ended" in said, "its term to end"
        )
        assert await cluster.api.slots() == before
        # The new leader may have reached a master meanwhile.
        term = next(entry["term"] for entry in log_of(cluster.topoms[leader])[::-1] if entry["event"] == "leading")
        for one, was in zip(await terms_at(cluster), terms, strict=True):
            assert one == was or int(one[b"term"]) == term, (one, was, term)
    async with cluster.asking(former):
        await eventually(
            cluster.api.slots, lambda found: found["slots"] == before["slots"], "the former leader to say the same"
        )


async def said_since_it_led(cluster: SeveralTopoms, topom: int) -> list[str]:
    """The events of its log after it last came to lead."""
    events = [entry["event"] for entry in log_of(cluster.topoms[topom])]
    return events[len(events) - events[::-1].index("leading") :]


async def terms_at(cluster: SeveralTopoms) -> list[dict[bytes, bytes]]:
    """Which leaders' migrators the masters have seen."""
    found = []
    for group in await cluster.api.groups():
        async with plain_client(group["servers"][0]["address"]) as client:
            found.append(await client.hgetall(LEADER))
    return found
