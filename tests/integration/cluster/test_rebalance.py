"""The main job: slots move between groups while clients work, without an error and without a lost key."""

import pytest

from slots.ranges import show
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import check_clean, check_every_key, traffic_on


@pytest.mark.long
async def test_from_two_groups_to_three_and_back(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=3,
        proxies=2,
        workers=2,
        slots_on=[1, 2],
        # Several batches a pair of groups, and slow enough for traffic to meet every state often.
        topom_settings={"migration_parallel_slots": 64, "migration_keys_per_second": 5000},
    )
    async with traffic_on(cluster.proxy_addresses, keys=20_000, databases=(0, 1, 15), rate=2500) as traffic:
        planned = await cluster.api.rebalance()
        assert {(move["from"], move["to"]) for move in planned["moves"]} == {(1, 3), (2, 3)}
        await cluster.at_rest({1: 342, 2: 341, 3: 341})
        report = await traffic.stop()
        assert report.clean, report.to_wire()
        await check_every_key(traffic, await cluster.layout())

        await traffic.start()
        third = [slot["id"] for slot in (await cluster.api.slots())["slots"] if slot["group_id"] == 3]
        await cluster.api.move_slots(show(third[:171]), 2)
        await cluster.api.move_slots(show(third[171:]), 1)
        await cluster.at_rest({1: 512, 2: 512, 3: 0})
        await cluster.api.remove_group(3)
        assert (await cluster.api.rebalance())["moves"] == []
        await check_clean(traffic, await cluster.layout())
        assert await cluster.misplaced((0, 1, 15)) == []
