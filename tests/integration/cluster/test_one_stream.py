"""Slots of one source that go to three targets at the same time, by one stream, while clients write: all arrive, and
nothing is lost, also if a target cannot be copied to, if an operator cancels, and if topom or its migrator is lost.
"""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.integration.cluster.harness import (
    Cluster,
    check_clean,
    eventually,
    log_of,
    plain_client,
    running,
    traffic_on,
)

SENT = {2: "0-199", 3: "200-399", 4: "400-599"}
"""Targets, and the slots of group 1 that go there."""
EACH = 200
SLOW = 120
"""Keys a second: several hundred that no traffic touches have to move, which takes some seconds."""
MANY = 240_000
"""Keys that take longer key by key than by the stream."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves it as it began, all slots at rest in group 1."""
    yield from running(
        Cluster(
            groups=4,
            proxies=2,
            workers=1,
            slots_on=[1],
            topom_settings={"migration_way": "stream", "migration_latency_goal_milliseconds": 0},
            redis_arguments=("--repl-diskless-sync-delay", "0"),
        )
    )


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster at rest, without keys but the ballast."""
    async with shared_cluster.visit():
        await shared_cluster.flush()
        await shared_cluster.at_rest({1: 1024, 2: 0, 3: 0, 4: 0})
        if not any(entry.get("event") == "slots_moved" for entry in log_of(shared_cluster.topom)):
            # Once slots have moved to a server, it has been compared with the others. Until then its batch is put off.
            for target in SENT:
                await shared_cluster.api.move_slots("0-1023", target)
                await shared_cluster.at_rest()
            await shared_cluster.api.move_slots("0-1023", 1)
            await shared_cluster.at_rest()
        await shared_cluster.load_ballast()
        yield shared_cluster
        await shared_cluster.api.set_migration(keys_per_second=0, way="stream")
        await shared_cluster.at_rest()
        await shared_cluster.api.move_slots("0-1023", 1)
        await shared_cluster.at_rest({1: 1024, 2: 0, 3: 0, 4: 0})


async def send(cluster: Cluster, keys_per_second: int = 0) -> None:
    """All slots begin to move at the same time."""
    await cluster.api.set_migration(keys_per_second=keys_per_second)
    await cluster.api.pause_migration()
    for target, slots in SENT.items():
        await cluster.api.move_slots(slots, target)
    await cluster.api.resume_migration()


async def full_syncs(cluster: Cluster) -> int:
    """How many snapshots the source has made for whoever follows it."""
    async with plain_client(await cluster.master_of(1)) as source:
        return int((await source.info("stats"))["sync_full"])


async def copied(cluster: Cluster, targets: int) -> dict[str, Any]:
    """Wait until some keys were written to so many targets; give the migrator."""

    async def all_of_them() -> list[dict[str, Any]]:
        return (await cluster.api.migrators())["migrators"]

    def met(found: list[dict[str, Any]]) -> bool:
        return any(sum(copy["keys_moved"] > 0 for copy in one["copies"]) >= targets for one in found)

    found = await eventually(all_of_them, met, f"keys to be copied to {targets} targets")
    return next(one for one in found if one["copies"])


async def arrived(cluster: Cluster, targets: tuple[int, ...] = (2, 3, 4)) -> None:
    await cluster.api.set_migration(keys_per_second=0)
    left = {target: EACH if target in targets else 0 for target in SENT}
    await cluster.at_rest({1: 1024 - EACH * len(targets), **left})
    await cluster.check_ballast()
    await eventually(lambda: cluster.misplaced((0, 3)), lambda found: not found, "the source to be cleaned")


def steps(cluster: Cluster, since: int) -> list[tuple[str, str]]:
    """States that slots came to, and the slots, in order; ``moved`` at rest."""
    found = []
    for entry in log_of(cluster.topom)[since:]:
        if entry.get("event") in ("slots_advanced", "slots_moved"):
            found.append((str(entry.get("state", "moved")), str(entry["slots"])))
    return found


@pytest.mark.long
async def test_one_snapshot_serves_all_targets(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        before, since = await full_syncs(cluster), len(log_of(cluster.topom))
        await send(cluster)
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())
    assert await full_syncs(cluster) == before + 1
    went = steps(cluster, since)
    assert "migrating" not in {state for state, _ in went}
    locks = [slots for state, slots in went if state == "prepared"]
    assert set(locks) == set(SENT.values()), "each lock is that of one target"


@pytest.mark.long
async def test_a_target_that_evicts_gets_its_keys_one_by_one_after_the_others(cluster: Cluster) -> None:
    async with plain_client(await cluster.master_of(3)) as target:
        await target.config_set("maxmemory", 1 << 30)
        await target.config_set("maxmemory-policy", "allkeys-lru")
        try:
            async with traffic_on(cluster.proxy_addresses) as traffic:
                before, since = await full_syncs(cluster), len(log_of(cluster.topom))
                await send(cluster, SLOW)
                await copied(cluster, 2)
                await arrived(cluster)
                await check_clean(traffic, await cluster.layout())
        finally:
            await target.config_set("maxmemory", 0)
            await target.config_set("maxmemory-policy", "noeviction")
    assert await full_syncs(cluster) == before + 1
    went = steps(cluster, since)
    by_keys = went.index(("migrating", SENT[3]))
    assert [slots for state, slots in went if state == "migrating"] == [SENT[3]]
    assert {slots for state, slots in went[:by_keys] if state == "moved"} == {SENT[2], SENT[4]}


@pytest.mark.long
async def test_cancelling_one_target_leaves_the_others(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        before = await full_syncs(cluster)
        await send(cluster, SLOW)
        await copied(cluster, 3)
        outcome = await cluster.api.cancel_migration(SENT[3])
        assert len(outcome["ended"]) == EACH
        await arrived(cluster, (2, 4))
        await check_clean(traffic, await cluster.layout())
    assert await full_syncs(cluster) == before + 1


@pytest.mark.long
async def test_topom_is_killed_in_the_middle(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await send(cluster, SLOW)
        await copied(cluster, 3)
        before = await full_syncs(cluster)
        await cluster.topom.kill()
        await cluster.restart_topom()
        await cluster.online(2)
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())
    # They begin anew together. A target that the new topom has yet to compare with other servers has its turn later.
    assert await full_syncs(cluster) - before in (1, 2)


@pytest.mark.long
async def test_the_migrator_is_killed_in_the_middle(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await send(cluster, SLOW)
        one = await copied(cluster, 3)
        before = await full_syncs(cluster)
        os.kill(one["pid"], signal.SIGKILL)
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())
    assert await full_syncs(cluster) == before + 1, "they begin anew together"


@pytest.mark.long
@pytest.mark.parametrize("keys", [0, MANY])
async def test_by_auto_all_arrive_too(cluster: Cluster, keys: int) -> None:
    """A few keys move one by one, one target after the other; many by the stream, together."""
    await cluster.api.set_migration(way="auto")
    async with plain_client(await cluster.master_of(1)) as source:
        for first in range(0, keys, 10_000):
            await source.mset({f"many:{number}": "x" * 64 for number in range(first, first + 10_000)})
    async with traffic_on(cluster.proxy_addresses) as traffic:
        before, since = await full_syncs(cluster), len(log_of(cluster.topom))
        await send(cluster)
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())
    ways = {slots: state for state, slots in steps(cluster, since) if state in ("copying", "migrating")}
    assert ways == dict.fromkeys(SENT.values(), "copying" if keys else "migrating")
    assert await full_syncs(cluster) == before + bool(keys)
