"""**by-action**: a proxy that returns does not take a later move of a slot for the one that it knew."""

import pytest

from cli.traffic.driver import Traffic
from slots.functions import slot
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.faults.cluster import FaultCluster, Move

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = [name for name in (f"remembered:{number}" for number in range(400)) if slot("crc32", name.encode(), 1024) < 512]
CONNECTIONS = 8
"""So many that each worker of the proxy has one of them, as good as always."""


@pytest.mark.parametrize("ends", ["cancelled", "finished"])
async def test_a_proxy_that_was_away_for_several_moves_sees_what_was_written_between(
    cluster: FaultCluster, traffic: Traffic, ends: str
) -> None:
    """given a proxy cut off from topom alone, past its lease, that has seen keys absent while their slot moved
    when the slot was back, the keys were written, and it has set out again the same way
    then the proxy, which returns under a new identity, finds what was written.
    """
    move = await Move.ready(cluster)
    ours, theirs = cluster.proxy_addresses
    async with plain_client(ours) as other:
        await other.delete(*KEYS)
        await move.under_way()
        for _ in range(CONNECTIONS):
            async with plain_client(theirs) as client:
                for key in KEYS[:20]:
                    assert await client.get(key) is None
        cluster.topom_relays[1].hold()
        if ends == "cancelled":
            await cluster.api.cancel_migration()
            await move.hurry()
            await cluster.at_rest()
        else:
            await move.hurry()
            await move.arrived()
            await cluster.api.move_slots("0-511", move.source)
            await cluster.at_rest()
        assert set(await cluster.instances()) == {ours}, "it was fenced"
        await other.mset(dict.fromkeys(KEYS, "written in between"))
        await move.under_way()
        async with plain_client(move.source_server.address) as source:
            assert await source.exists(*KEYS[:20]) > 10, "most have yet to move"
        cluster.mend()
        await cluster.all_online()
        assert "migrating" in await cluster.states()
        async with plain_client(theirs) as client:
            found = await eventually(lambda: client.mget(KEYS[:20]), bool, "the proxy to serve")
            assert found == [b"written in between"] * 20
        await move.hurry()
        await move.arrived()
        assert await other.mget(KEYS) == [b"written in between"] * len(KEYS)
        assert await cluster.misplaced() == []
