"""Links of a proxy that are cut or go silent while slots move under traffic whose answers are checked.

Every step that can go on does. The others say what they wait for, and go on by themselves once the link is back.
"""

import pytest

from slotferry.traffic.driver import Traffic
from slots.connections import admin_name, proxy_prefix
from tests.integration.breaking_relay import Direction, Peer, everyone, proxies
from tests.integration.cluster.harness import eventually
from tests.integration.faults.cluster import FaultCluster, Move, asked, witnessed
from tests.integration.faults.ways import Break, cut, felt, silent, silent_from_server, silent_to_server, usually

pytestmark = pytest.mark.asyncio(loop_scope="module")

every_way = pytest.mark.parametrize("way", usually([cut, silent_to_server], [silent, silent_from_server]))


@every_way
async def test_between_a_proxy_and_topom(cluster: FaultCluster, traffic: Traffic, way: Break) -> None:
    """given a proxy cut off from topom alone, the move goes on without it, and it comes back as another."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    ours, theirs = cluster.proxy_addresses
    known = cluster.events(cluster.proxies[1], "identity_changed")
    async with witnessed(cluster, traffic) as witness:
        fault = way(cluster.topom_relays[1], everyone)
        await move.begin()
        await move.hurry()
        await move.arrived()
        assert set(await cluster.instances()) == {ours}, "it was fenced: topom has nobody to wait for"
        for server in (move.source_server, move.target_server):
            assert any(former[theirs] in user for user in await cluster.fence_users(server.address))
        await witness.counting[0].progress()

        fault.mend()
        await cluster.all_online()
        now = await cluster.instances()
        assert now[ours] == former[ours]
        assert now[theirs] != former[theirs]

        async def said() -> int:
            return cluster.events(cluster.proxies[1], "identity_changed")

        await eventually(said, lambda count: count > known, "the proxy to say so")
        await witness.check()


@every_way
async def test_between_a_proxy_and_the_source_before_the_lock(
    cluster: FaultCluster, traffic: Traffic, way: Break
) -> None:
    """given a proxy that topom hears but that cannot reach the source, no slot is handed over for which it may have
    sent commands."""
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness:
        fault = way(move.source_relay, proxies)
        await felt(fault)
        await move.begin()
        await move.hurry()
        if way is not cut:  # a connection that is reset may have had nothing under way
            await cluster.waits_for("may still run commands there")
            assert "migrating" not in await cluster.states(), "drained: nobody knows what the source has yet to run"
        fault.mend()
        await move.arrived()
        await witness.check()


@every_way
async def test_between_a_proxy_and_the_source_while_keys_move(
    cluster: FaultCluster, traffic: Traffic, way: Break
) -> None:
    """given proxies that cannot ask the source for keys, the migrator moves all of them, and then they can serve."""
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        fault = way(move.source_relay, proxies)
        await felt(fault)
        await move.hurry()
        await move.arrived()
        fault.mend()
        await witness.check()


async def test_what_a_proxy_sent_arrives_after_it_was_fenced(cluster: FaultCluster, traffic: Traffic) -> None:
    """given a proxy that is cut off from topom, with commands still on their way, these run at no server."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    ours, theirs = cluster.proxy_addresses

    connections = proxy_prefix(former[theirs])

    def lost(peer: Peer) -> bool:
        # Nor can it have the source end what it has lost. The other proxy can.
        return peer.name.startswith((connections, admin_name(connections)))

    async with witnessed(cluster, traffic) as witness:
        late = move.source_relay.hold(lost, frozenset({Direction.TO_SERVER}))
        await felt(late)
        cluster.topom_relays[1].hold()
        await move.begin()
        await move.hurry()
        await move.arrived()
        assert set(await cluster.instances()) == {ours}
        async with asked(move) as commands:
            late.mend()

            async def left() -> int:
                return move.source_relay.count_present(late)

            await eventually(left, lambda count: not count, "all that was on its way to have arrived")
            cluster.mend()
            await cluster.all_online()
            await witness.counting[1].progress()
            assert commands == [], "one-owner"
        await witness.check()
