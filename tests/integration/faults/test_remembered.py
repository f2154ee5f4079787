"""**by-action**, **absent-first**: a proxy's outdated knowledge of moving keys does no harm."""

import shutil
from pathlib import Path

import pytest

from slotferry.traffic.driver import Traffic
from slots.functions import slot
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.faults.cluster import FaultCluster, Move

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = [name for name in (f"remembered:{number}" for number in range(400)) if slot("crc32", name.encode(), 1024) < 512]
CONNECTIONS = 8
"""So many that each worker of the proxy almost always has one of them."""


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


async def test_a_source_that_restarted_unheard_undoes_no_delete(
    cluster: FaultCluster, traffic: Traffic, tmp_path: Path
) -> None:
    """given a source that is back with older data, and a proxy that does not hear that its connections have ended
    when a key that had left the source is deleted or written through that proxy
    then the other proxy, and the migrator, find it so.
    """
    move = await Move.ready(cluster)
    ours, theirs = cluster.proxy_addresses
    deleted, written = KEYS[:10], KEYS[10:20]
    async with plain_client(ours) as other, plain_client(theirs) as client:
        await other.mset(dict.fromkeys(KEYS[:20], "old"))
        shutil.copytree(move.source_server.home, tmp_path / "kept")
        await move.under_way()
        await cluster.api.pause_migration()
        assert await client.mget(KEYS[:20]) == [b"old"] * 20
        instance = (await cluster.instances())[theirs]
        move.source_relay.hold(lambda peer: instance in peer.name, only_present=True)
        await move.source_server.kill()
        shutil.rmtree(move.source_server.home)
        shutil.copytree(tmp_path / "kept", move.source_server.home)
        await cluster.restart(move.source_server)
        async with plain_client(move.source_server.address) as source:
            assert await source.exists(*KEYS[:20]) == 20
        for key in deleted:
            await eventually(lambda key=key: client.delete(key), lambda _: True, "the key to be deleted")
        await eventually(lambda: client.mset(dict.fromkeys(written, "new")), bool, "the keys to be written")
        assert await other.mget(deleted + written) == [None] * 10 + [b"new"] * 10
        cluster.mend()
        await cluster.api.resume_migration()
        await move.hurry()
        await move.arrived()
        assert await client.mget(deleted + written) == [None] * 10 + [b"new"] * 10
        assert await cluster.misplaced() == []
