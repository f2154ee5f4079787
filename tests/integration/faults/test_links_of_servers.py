"""Links of the servers that are cut or go silent while slots move under traffic whose answers are checked.

The batch waits, and goes on by itself once the link is back; what is acknowledged meanwhile is kept.
"""

import pytest

from slotferry.traffic.driver import Traffic
from tests.integration.breaking_relay import control_plane
from tests.integration.faults.cluster import FaultCluster, Move, witnessed
from tests.integration.faults.ways import Break, cut, felt, silent_from_server, silent_to_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

every_way = pytest.mark.parametrize("way", [cut, silent_to_server, silent_from_server])


@every_way
@pytest.mark.parametrize("end", ["source", "target"])
async def test_between_topom_and_a_server(cluster: FaultCluster, traffic: Traffic, way: Break, end: str) -> None:
    """given a migrator that does not reach the source or the target, proxies go on moving the keys that clients ask
    for. Keys whose fate the migrator does not know are moved once, and unchanged."""
    move = await Move.ready(cluster)
    relay = move.source_relay if end == "source" else move.target_relay
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        fault = way(relay, control_plane)
        await felt(fault)
        await cluster.waits_for(relay.address)
        for counting in witness.counting:
            await counting.progress()
        fault.mend()
        await move.hurry()
        await move.arrived()
        await witness.check()
