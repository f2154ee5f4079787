"""SIGSTOP and SIGCONT of each process during a migration, under traffic whose answers are checked."""

import signal

import pytest

from slotferry.traffic.driver import Traffic
from tests.integration.cluster.harness import eventually
from tests.integration.faults.cluster import FaultCluster, Move, asked, go_on, pause, witnessed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("under_way", [False, True], ids=["before the lock", "while keys move"])
async def test_a_proxy_is_paused_for_longer_than_its_lease(
    cluster: FaultCluster, traffic: Traffic, under_way: bool
) -> None:
    """given a proxy that comes back, it finds itself fenced, says so, and has sent nothing to the former owner."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    ours, theirs = cluster.proxy_addresses
    changed = cluster.events(cluster.proxies[1], "identity_changed")
    said = cluster.events(cluster.proxies[1], "fence_found") + cluster.events(cluster.proxies[1], "shut_out")
    async with witnessed(cluster, traffic) as witness:
        if under_way:
            await move.under_way()
        cluster.signal_proxy(1, signal.SIGSTOP)
        if not under_way:
            await move.begin()
        await move.hurry()
        # Its clients go on sending: their commands wait in the paused workers' sockets, for slots that are leaving.
        await move.arrived()
        assert set(await cluster.instances()) == {ours}, "nobody waited for it any longer"
        async with asked(move) as commands:
            cluster.signal_proxy(1, signal.SIGCONT)
            await cluster.all_online()
            await witness.counting[1].progress()
            assert commands == [], "one-owner"
        now = await cluster.instances()
        assert now[ours] == former[ours]
        assert now[theirs] != former[theirs]
        assert cluster.events(cluster.proxies[1], "identity_changed") == changed + 1
        assert cluster.events(cluster.proxies[1], "fence_found") + cluster.events(cluster.proxies[1], "shut_out") > said
        await witness.check()


async def test_a_worker_is_paused(cluster: FaultCluster, traffic: Traffic) -> None:
    """given a proxy that topom hears and that does not acknowledge, the batch names that proxy and waits."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    worker = cluster.worker_pids(1)[0]
    async with witnessed(cluster, traffic) as witness:
        # Before the lock: the supervisor ends a worker that is silent for long, and the keys may take longer.
        pause(worker)
        await move.begin()
        await move.hurry()
        assert cluster.proxy_addresses[1] in await cluster.waits_for("did not acknowledge")
        assert "migrating" not in await cluster.states(), "drained"
        go_on(worker)
        await move.arrived()
        await cluster.all_online()
        assert await cluster.instances() == former, "it was never fenced"
        await witness.check()


async def test_topom_is_paused_for_longer_than_the_lease(cluster: FaultCluster, traffic: Traffic) -> None:
    """given a topom that was away, proxies serve on, and it does not take its own silence for theirs."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    lost = [cluster.events(process, "topom_lost") for process in cluster.proxies]
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        pause(cluster.topom.pid)

        async def noticed() -> bool:
            now = [cluster.events(process, "topom_lost") for process in cluster.proxies]
            return all(new > old for new, old in zip(now, lost, strict=True))

        await eventually(noticed, bool, "the proxies to notice that topom does not answer")
        for counting in witness.counting:
            await counting.progress()
        go_on(cluster.topom.pid)
        await move.hurry()
        await move.arrived()
        await cluster.all_online()
        assert await cluster.instances() == former
        await witness.check()


@pytest.mark.parametrize("role", ["source", "target"])
async def test_a_server_is_paused(cluster: FaultCluster, traffic: Traffic, role: str) -> None:
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness:
        await move.under_way()
        paused = move.source_server if role == "source" else move.target_server
        relay = move.source_relay if role == "source" else move.target_relay
        pause(paused.pid)

        async def errors() -> list[str]:
            return [text for counting in witness.counting for text in counting.errors if relay.address in text]

        await eventually(errors, bool, "an error that names the server")
        go_on(paused.pid)
        await move.hurry()
        await move.arrived()
        await cluster.all_online()
        await witness.check()
