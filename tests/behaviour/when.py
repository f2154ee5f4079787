"""What somebody does, or what breaks."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.behaviour.whole import WholeCluster, follow
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.harness import LIMIT, eventually


async def operator_says(cluster: WholeCluster, *arguments: str) -> Outcome:
    """``slotferry ARGUMENTS``."""
    environment = {"SLOTFERRY_TOPOM": cluster.topom_url, "SLOTFERRY_TOKEN": cluster.token, "COLUMNS": "250"}
    return await slotferry(*arguments, **environment)


async def topoms_in_turn(cluster: WholeCluster) -> list[int]:
    """All topoms, those that follow first."""
    leader = await cluster.all_well()
    return [*(number for number in range(len(cluster.topoms)) if number != leader), leader]


async def a_topom_is_started_again(cluster: WholeCluster, number: int) -> None:
    """As ``systemctl restart`` does: SIGTERM, wait, start."""
    assert await cluster.topoms[number].stop(LIMIT) == 0
    cluster.topoms[number].start()


async def a_proxy_is_started_again(cluster: WholeCluster, number: int) -> None:
    """The same; it lets its clients go first."""
    assert await cluster.proxies[number].stop(LIMIT) == 0
    cluster.proxies[number].start()


async def the_leader_is_killed(cluster: WholeCluster) -> int:
    """The topom that leads ends without a word; which it was."""
    leader = await cluster.all_well()
    await cluster.topoms[leader].kill()
    return leader


async def the_store_loses_its_majority(cluster: WholeCluster) -> None:
    """Two of the three etcd are killed."""
    for etcd in cluster.stores[:2]:
        await etcd.kill()


async def the_store_is_back(cluster: WholeCluster) -> None:
    """They are started again, with what they had."""
    for etcd in cluster.stores[:2]:
        etcd.start()


async def servers_are_cut_off(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """They answer nobody, and connections to them stay open."""
    for address in addresses:
        os.kill(cluster.server(address).pid, signal.SIGSTOP)


async def they_are_reached_again(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """They go on as if nothing had been."""
    for address in addresses:
        os.kill(cluster.server(address).pid, signal.SIGCONT)


async def servers_are_killed(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """They end at once."""
    for address in addresses:
        await cluster.server(address).kill()


async def they_are_started_again(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """With what they had on disk; the first one as a master and others as its replicas, as their settings have it."""
    for address in addresses:
        server = cluster.server(address)
        server.start()
        await server.ready()
        if address != addresses[0]:
            await follow(server, addresses[0])


async def the_replica_is_promoted(cluster: WholeCluster, group: int) -> str:
    """By the operator; which server was made the master."""
    replica = (await cluster.members())[group][1]
    outcome = await operator_says(cluster, "group", "promote", str(group), replica)
    assert outcome.status == 0, outcome
    return replica


async def moving_may_be_fast_again(cluster: WholeCluster) -> None:
    """The operator takes the limit off."""
    await cluster.api.set_migration(keys_per_second=0)


async def another_topom_leads(cluster: WholeCluster, former: int) -> int:
    """One waits until it is so; which it is."""
    leader, seconds = await cluster.taken_over(former)
    print(f"another topom leads after {seconds:.2f} s")
    await eventually(cluster.api.status, lambda status: not status["problem"], "changes to be possible")
    return leader


@asynccontextmanager
async def a_sentinel_hangs(cluster: WholeCluster) -> AsyncIterator[None]:
    """It is paused, and goes on in the end."""
    process = cluster.sentinels[0].pid
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
