"""Links of the servers that are cut or go silent while slots move under traffic whose answers are checked.

The batch waits, and goes on by itself once the link is back; what is acknowledged meanwhile is kept.
"""

import pytest

from cli.traffic.driver import Traffic
from tests.integration.breaking_relay import control_plane, migrating_servers
from tests.integration.cluster.harness import eventually
from tests.integration.faults.cluster import FaultCluster, Move, migrates_given_up, witnessed
from tests.integration.faults.ways import Break, cut, felt, silent_from_server, silent_to_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

every_way = pytest.mark.parametrize("way", [cut, silent_to_server, silent_from_server])


@every_way
async def test_between_source_and_target(cluster: FaultCluster, traffic: Traffic, way: Break) -> None:
    """given a source that does not learn what became of the keys it sent, they are moved once, and as they are."""
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        before = await migrates_given_up(move.source_server)
        fault = way(move.target_relay, migrating_servers)
        await eventually(
            lambda: migrates_given_up(move.source_server), lambda count: count > before, "a MIGRATE to be given up"
        )
        if way is cut:
            await cluster.waits_for(move.target_relay.address)
        fault.mend()
        await move.hurry()
        await move.arrived()
        await witness.check()


@every_way
async def test_between_topom_and_the_source(cluster: FaultCluster, traffic: Traffic, way: Break) -> None:
    """given a migrator that does not reach the source, proxies go on moving what is asked for."""
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        fault = way(move.source_relay, control_plane)
        await felt(fault)
        await cluster.waits_for(move.source_relay.address)
        for counting in witness.counting:
            await counting.progress()
        fault.mend()
        await move.hurry()
        await move.arrived()
        await witness.check()
