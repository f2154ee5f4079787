"""A target that cannot take slots is found before they are touched, or stops them with a reason until it can."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.exceptions import RedisError

from tests.integration.cluster.harness import Cluster, eventually, plain_client, running

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves all slots in group 1 and the servers as they were configured."""
    yield from running(Cluster(groups=3, proxies=1, workers=1, slots_on=[1]))


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster at rest, without keys but the ballast."""
    async with shared_cluster.visit():
        await shared_cluster.flush()
        await shared_cluster.at_rest({1: 1024, 2: 0, 3: 0})
        await shared_cluster.load_ballast()
        try:
            yield shared_cluster
        finally:
            for group in (1, 2, 3):
                await configure(shared_cluster, group, maxmemory=0, maxmemory_policy="noeviction")
            await shared_cluster.api.set_migration(keys_per_second=0)
            await shared_cluster.api.cancel_migration()
            await shared_cluster.at_rest()
            await shared_cluster.api.move_slots("0-1023", 1)
            await shared_cluster.at_rest()


async def configure(cluster: Cluster, group: int, **settings: object) -> None:
    async with plain_client(cluster.groups[group][0]) as client:
        for name, value in settings.items():
            await client.config_set(name.replace("_", "-"), value)


async def used(cluster: Cluster, group: int) -> int:
    async with plain_client(cluster.groups[group][0]) as client:
        return int((await client.info("memory"))["used_memory"])


async def reason_shown(cluster: Cluster, state: str, part: str) -> dict[str, Any]:
    """Wait until the status has a batch in this state with such a message; the batch."""

    def shown(status: dict[str, Any]) -> list[dict[str, Any]]:
        batches = status["migration"]["batches"]
        return [batch for batch in batches if batch["state"] == state and part in str(batch["reason"])]

    status = await eventually(cluster.api.status, lambda status: bool(shown(status)), f"{part!r} to be said")
    return shown(status)[0]


async def test_slots_stay_untouched_until_the_target_can_take_them(cluster: Cluster) -> None:
    await configure(cluster, 2, maxmemory=await used(cluster, 2) + 1000)
    await cluster.api.move_slots("0-511", 2)
    await cluster.api.move_slots("512-600", 3)
    # The other target takes its slots meanwhile, although they come from the same source.
    await eventually(
        cluster.api.slots,
        lambda found: all(slot["group_id"] == 3 for slot in found["slots"][512:601]),
        "the other slots to move",
    )
    batch = await reason_shown(cluster, "pending", "too little memory")
    assert batch["slots"] == "0-511"
    slots = (await cluster.api.slots())["slots"]
    assert {slot["action"]["state"] for slot in slots[:512]} == {"pending"}
    assert "raise its maxmemory" in slots[0]["reason"]["to_do"]
    assert "reason" not in slots[600]
    await configure(cluster, 2, maxmemory=0)
    await cluster.api.retry_migration()
    await cluster.at_rest({1: 423, 2: 512, 3: 89})
    await cluster.check_ballast()


async def fill_target(cluster: Cluster) -> None:
    """Slots are on their way to group 2, which takes no more."""
    await cluster.api.set_migration(keys_per_second=100)
    await cluster.api.move_slots("0-511", 2)
    await cluster.moving(50)
    await configure(cluster, 2, maxmemory=MEBIBYTE // 2)
    await cluster.api.set_migration(keys_per_second=0)
    await reason_shown(cluster, "migrating", "it is at its maxmemory")


async def test_a_target_that_becomes_full_stops_its_slots_until_it_is_not(cluster: Cluster) -> None:
    await fill_target(cluster)
    await configure(cluster, 2, maxmemory=0)
    await cluster.at_rest({1: 512, 2: 512, 3: 0})
    await cluster.check_ballast()
    assert await cluster.misplaced() == []


@pytest.mark.long
async def test_what_went_to_a_target_that_became_full_is_brought_back(cluster: Cluster) -> None:
    await fill_target(cluster)
    outcome = await cluster.api.cancel_migration()
    assert outcome["returning"] == list(range(512))
    await cluster.at_rest({1: 1024, 2: 0, 3: 0})
    await cluster.check_ballast()
    assert await cluster.misplaced() == []


async def test_skipped_slots_let_others_pass(cluster: Cluster) -> None:
    await fill_target(cluster)
    await cluster.api.move_slots("512-600", 3)
    assert (await cluster.api.skip_slots("0-511"))["slots"] == list(range(512))
    await eventually(
        cluster.api.slots,
        lambda found: all(slot["group_id"] == 3 for slot in found["slots"][512:601]),
        "the other slots to move",
    )
    migration = await cluster.api.migration()
    assert [entry["slots"] for entry in migration["skipped"]] == ["0-511"]
    assert "maxmemory" in migration["skipped"][0]["reason"]["what"]
    await configure(cluster, 2, maxmemory=0)
    assert (await cluster.api.retry_migration())["slots"] == list(range(512))
    await cluster.at_rest({1: 423, 2: 512, 3: 89})
    await cluster.check_ballast()


@pytest.mark.long
async def test_slots_of_a_source_that_evicts(cluster: Cluster) -> None:
    """Keys vanish from under the scan; what is left arrives, and nothing waits for what has gone."""
    await configure(cluster, 1, maxmemory_policy="allkeys-random", maxmemory=await used(cluster, 1) - 200_000)
    stopping = asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        async with plain_client(cluster.proxy_addresses[0]) as client:
            while not stopping.is_set():
                # A refusal does not matter here: this only makes the source evict.
                try:
                    await client.set(f"more:{written}", b"x" * 1000)
                except RedisError:
                    await asyncio.sleep(0.01)
                written += 1

    writing = asyncio.create_task(write())
    try:
        await cluster.api.set_migration(keys_per_second=1000)
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest({1: 512, 2: 512, 3: 0})
    finally:
        stopping.set()
        await writing
    async with plain_client(cluster.groups[1][0]) as client:
        assert (await client.info("stats"))["evicted_keys"] > 0
    assert await cluster.misplaced() == []
