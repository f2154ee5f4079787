"""Real topoms over a real ZooKeeper: the leader is killed, the store is cut off, the leader is stopped in order."""

import pytest

from slotferry.calls import TopomRefused
from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.harness import PATIENT, check_clean, eventually, traffic_on
from tests.integration.cluster.held import goes_on, held
from tests.integration.cluster.several import LEASE_SECONDS, SeveralTopoms
from tests.integration.stores.servers import need_zookeeper

SLACK_SECONDS = 5.0
"""What a busy machine may add to twice the lease."""


@pytest.mark.long
async def test_topoms_over_zookeeper() -> None:
    need_zookeeper()
    topom_settings = {"barrier_seconds": 30, "proxy_lease_seconds": 20}
    async with (
        SeveralTopoms(2, store="zookeeper", topom_settings=topom_settings, proxy_settings=PATIENT) as cluster,
        cluster.visit(),
    ):
        await cluster.load_ballast()
        async with traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic:
            await killed_while_slots_move(cluster)
            await cut_off_while_slots_move(cluster)
            await stopped_in_order(cluster)
            await check_clean(traffic, await cluster.layout())
        await cluster.check_ballast()
        assert await cluster.misplaced((0, 3)) == []


async def killed_while_slots_move(cluster: SeveralTopoms) -> None:
    """Another one leads within twice the lease, and brings them to where they go."""
    former = await cluster.all_well()
    async with held(cluster, "migrating") as move:
        await cluster.topoms[former].kill()
        leader, seconds = await cluster.taken_over(former)
        assert seconds < 2 * LEASE_SECONDS + SLACK_SECONDS
        print(f"killed: another leads after {seconds:.2f} s")
    cluster.topoms[former].start()
    await goes_on(cluster, leader, move.target)


async def cut_off_while_slots_move(cluster: SeveralTopoms) -> None:
    """Topoms say so and change nothing; then the slots go on."""
    await cluster.all_well()
    async with held(cluster, "migrating") as move:
        for server in cluster.stores:
            server.pause()
        for number in (0, 1):
            await eventually(
                lambda number=number: cluster.reason(number),  # type: ignore[misc]
                lambda said: "ZooKeeper" in said,
                "topom to say that the store is cut off",
            )
        with pytest.raises(TopomRefused, match="ZooKeeper"):
            await cluster.api.move_slots("1023", 1)
        assert "NOTHING CAN BE CHANGED NOW" in await status_of(cluster)
        for server in cluster.stores:
            server.resume()
    await goes_on(cluster, await cluster.all_well(), move.target)
    await cluster.online(1)


async def stopped_in_order(cluster: SeveralTopoms) -> None:
    """Its place is free at once. The former leader and the present one are shown."""
    leader = await cluster.all_well()
    # A topom that was cut off from the store says a moment later where it is.
    await eventually(
        lambda: status_of(cluster),
        lambda shown: all(text in shown for text in (*cluster.urls, "leads", "follows")),
        "both topoms to be shown",
    )
    assert await cluster.topoms[leader].stop() == 0
    _, seconds = await cluster.taken_over(leader)
    print(f"stopped in order: another leads after {seconds:.2f} s")
    cluster.topoms[leader].start()
    await cluster.online(1)


async def status_of(cluster: SeveralTopoms) -> str:
    """What the command line shows."""
    outcome = await slotferry("status", SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token, COLUMNS="250")
    assert outcome.status == 0, outcome
    return outcome.out
