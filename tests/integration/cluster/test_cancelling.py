"""Moves are cancelled in every state, and in part, while checked traffic runs: no error, and no lost write."""

import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from slots import reserved
from slots.functions import slot
from tests.integration.cluster.harness import (
    Cluster,
    Counting,
    check_clean,
    eventually,
    plain_client,
    running,
    traffic_on,
)

MOVED = 256
"""Slots that are sent from group 1 to group 2, from 0 up."""
SLOW = 60
"""Keys a second. Several hundred keys that no traffic touches have to move, which takes ten seconds or more."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves it as it began, all slots at rest in group 1."""
    yield from running(
        Cluster(
            groups=2,
            proxies=2,
            workers=2,
            slots_on=[1],
        )
    )


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster at rest, without keys but the ballast."""
    async with shared_cluster.visit():
        await shared_cluster.flush()
        await shared_cluster.at_rest({1: 1024, 2: 0})
        await shared_cluster.load_ballast()
        yield shared_cluster


async def begin(cluster: Cluster) -> None:
    """Slots are on their way, and some of their keys have moved."""
    await cluster.api.set_migration(keys_per_second=SLOW)
    await send(cluster)
    await cluster.moving(30)


async def returned(cluster: Cluster) -> None:
    """Wait until everything is back where it was, at full speed."""
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest({1: 1024, 2: 0})
    await cluster.check_ballast()
    assert await cluster.misplaced((0, 3)) == []


async def returning(cluster: Cluster) -> None:
    """Wait until slots go back and some keys have gone."""

    def under_way(found: dict[str, object]) -> bool:
        batches = found["batches"]
        assert isinstance(batches, list)
        return any(batch["course"] == "back" and batch["keys_moved"] >= 10 for batch in batches)

    await eventually(cluster.api.migration, under_way, "keys to go back")


async def test_what_has_moved_goes_back(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic, Counting(cluster.proxy_addresses[1]) as counting:
        await begin(cluster)
        outcome = await cluster.api.cancel_migration()
        assert outcome["returning"] == list(range(MOVED))
        await returned(cluster)
        await counting.stop()
        assert counting.errors == []
        await counting.check()
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
async def test_some_of_the_slots_are_cancelled(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await begin(cluster)
        outcome = await cluster.api.cancel_migration("0-99,900-1000")
        assert (outcome["returning"], outcome["ended"]) == (list(range(100)), [])
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 1024 - 156, 2: 156})
        owners = [slot["group_id"] for slot in (await cluster.api.slots())["slots"]]
        assert owners[:MOVED] == [1] * 100 + [2] * 156
        await check_clean(traffic, await cluster.layout())
        assert await cluster.misplaced((0, 3)) == []
    await cluster.api.move_slots(f"0-{MOVED - 1}", 1)
    await cluster.at_rest({1: 1024, 2: 0})


async def test_pending_slots_just_stay(cluster: Cluster) -> None:
    await cluster.api.pause_migration()
    await cluster.api.move_slots(f"0-{MOVED - 1}", 2)
    outcome = await cluster.api.cancel_migration("0-9")
    assert outcome["ended"] == list(range(10))
    outcome = await cluster.api.cancel_migration()
    assert outcome["ended"] == list(range(10, MOVED))
    await cluster.at_rest({1: 1024, 2: 0})
    await cluster.api.resume_migration()


async def send(cluster: Cluster) -> None:
    await cluster.api.move_slots(f"0-{MOVED - 1}", 2)


async def test_slots_that_are_about_to_be_locked_just_stay(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        # A worker that is stopped acknowledges nothing.
        worker = cluster.worker_pids(1)[0]
        os.kill(worker, signal.SIGSTOP)
        await send(cluster)
        await cluster.in_state("preparing")
        assert (await cluster.api.cancel_migration())["ended"] == list(range(MOVED))
        os.kill(worker, signal.SIGCONT)
        await cluster.at_rest({1: 1024, 2: 0})
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
async def test_locked_slots_are_unlocked_and_stay(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        async with cluster.held_locked(lambda: send(cluster), 1, MOVED):
            assert (await cluster.api.cancel_migration())["ended"] == list(range(MOVED))
        await cluster.at_rest({1: 1024, 2: 0})
        await cluster.online(2)
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
@pytest.mark.parametrize("when", ["turning", "back"])
async def test_topom_killed_on_the_way_back(cluster: Cluster, when: str) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await begin(cluster)
        worker = cluster.worker_pids(1)[0]
        if when == "turning":
            os.kill(worker, signal.SIGSTOP)
        await cluster.api.cancel_migration()
        if when == "back":
            await returning(cluster)
        await cluster.topom.kill()
        if when == "turning":
            os.kill(worker, signal.SIGCONT)
        await cluster.restart_topom()
        courses = {slot["action"].get("course") for slot in (await cluster.api.slots())["slots"][:MOVED]}
        assert courses <= {"turning", "back"}
        await returned(cluster)
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
@pytest.mark.parametrize("restarts", ["before the turn", "on the way back"])
async def test_by_action_a_source_with_older_data_undoes_nothing_that_the_target_acknowledged(
    cluster: Cluster, restarts: str
) -> None:
    """given a source that restarts with data from before its keys left, whatever was evicted meanwhile,
    when the move is cancelled, then clients find what they have written at the other server since.
    """
    names = (f"older:{number}" for number in range(1000))
    keys = [name for name in names if slot("crc32", name.encode(), 1024) < MOVED]
    source = cluster.servers[1][0]
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(keys, "old"))
        async with plain_client(source.address) as direct:
            await direct.save()
        await begin(cluster)
        await client.mset(dict.fromkeys(keys, "new"))
        if restarts == "on the way back":
            await cluster.api.cancel_migration()
            await returning(cluster)
        await cluster.api.pause_migration()
        async with plain_client(cluster.groups[2][0]) as direct:
            # The source may lose keys that are back there, like any server that comes back with older data.
            keys = [key for key in keys if await direct.exists(key)]
        assert len(keys) > 10
        await source.kill()
        source.start()
        await source.ready()
        for server in cluster.groups[1] + cluster.groups[2]:
            async with plain_client(server) as direct:
                await direct.delete(reserved.STATE)
        await cluster.api.resume_migration()
        if restarts == "before the turn":
            await cluster.api.cancel_migration()
        await returned(cluster)
        found = await eventually(lambda: client.mget(keys), bool, "the proxy to serve")
        assert found == [b"new"] * len(keys)


@pytest.mark.long
async def test_sent_again_once_it_is_back(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        for _ in range(3):
            await begin(cluster)
            await cluster.api.cancel_migration()
            await returned(cluster)
        await check_clean(traffic, await cluster.layout())
