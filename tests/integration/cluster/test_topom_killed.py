"""topom is killed in every state that slots pass, under traffic, and goes on from its store.

Each state is held until topom is dead: ``pending`` by a pause, ``preparing`` and ``finished`` by a worker that is
stopped and so acknowledges nothing, ``prepared`` by a source that is stopped while it owes a reply, ``migrating``
by a slow pace and keys that only the migrator moves.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from tests.integration.cluster.harness import PATIENT, Cluster, check_clean, running, traffic_on

MOVED = 256
"""Slots that move, from 0 up."""
SLOW = 100
"""Keys a second, of which there are several hundred to move that no traffic touches."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves it at rest, its slots with the next group."""
    yield from running(
        Cluster(
            groups=3,
            proxies=2,
            workers=2,
            topom_settings={"barrier_seconds": 30},
            proxy_settings=PATIENT,
        )
    )


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster at rest and without keys."""
    async with shared_cluster.visit():
        await shared_cluster.flush()
        await shared_cluster.at_rest()
        yield shared_cluster


class Move:
    """The slots on their way from the group that has them to the next one."""

    def __init__(self, cluster: Cluster, source: int) -> None:
        self.cluster = cluster
        self.source = source
        self.target = source % 3 + 1

    async def begin(self) -> None:
        await self.cluster.api.move_slots(f"0-{MOVED - 1}", self.target)

    async def kill_topom(self, state: str) -> None:
        """The slots are in this state and stay there: end topom, without a word."""
        await self.cluster.in_state(state)
        await self.cluster.topom.kill()

    def stop_worker(self) -> int:
        """Stop a worker of the second proxy, which then acknowledges nothing; its process id."""
        pid = self.cluster.worker_pids(1)[0]
        os.kill(pid, signal.SIGSTOP)
        return pid


async def pending(move: Move) -> None:
    await move.cluster.api.pause_migration()
    await move.begin()
    await move.kill_topom("pending")
    await move.cluster.restart_topom()
    assert set(await move.cluster.states()) == {"", "pending"}
    assert (await move.cluster.api.migration())["paused"]
    await move.cluster.api.resume_migration()


async def preparing(move: Move) -> None:
    worker = move.stop_worker()
    await move.begin()
    await move.kill_topom("preparing")
    os.kill(worker, signal.SIGCONT)
    await move.cluster.restart_topom()


async def prepared(move: Move) -> None:
    async with move.cluster.held_locked(move.begin, move.source, MOVED):
        await move.kill_topom("prepared")
    await move.cluster.restart_topom()


async def migrating(move: Move) -> None:
    await move.cluster.api.set_migration(keys_per_second=SLOW)
    await move.begin()
    await move.cluster.moving(10)
    await move.kill_topom("migrating")
    await move.cluster.restart_topom()
    assert set(await move.cluster.states()) == {"", "migrating"}, "there is no way back from here"
    await move.cluster.api.set_migration(keys_per_second=0)


async def finished(move: Move) -> None:
    await move.cluster.api.set_migration(keys_per_second=SLOW)
    await move.begin()
    await move.cluster.moving(10)
    worker = move.stop_worker()
    await move.cluster.api.set_migration(keys_per_second=0)
    await move.kill_topom("finished")
    os.kill(worker, signal.SIGCONT)
    await move.cluster.restart_topom()
    assert not set(await move.cluster.states()) - {"", "finished"}, "nothing is migrated twice"


@pytest.mark.parametrize("kill", [pending, preparing, prepared, migrating, finished])
async def test_topom_killed_in_each_state(cluster: Cluster, kill: Callable[[Move], Awaitable[None]]) -> None:
    before = (await cluster.api.slots())["slots"]
    move = Move(cluster, before[0]["group_id"])
    await cluster.load_ballast()
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await kill(move)
        await cluster.at_rest()
        after = (await cluster.api.slots())["slots"]
        assert [slot["group_id"] for slot in after[:MOVED]] == [move.target] * MOVED
        assert after[MOVED:] == before[MOVED:]
        await cluster.online(2)
        await check_clean(traffic, await cluster.layout())
    await cluster.check_ballast()
    assert await cluster.misplaced((0, 3)) == []
