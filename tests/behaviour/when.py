"""What people do, or what breaks."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tests.behaviour.whole import WholeCluster, follow
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.harness import LIMIT, eventually, plain_client
from tests.integration.cluster.held import SLOW

Leave = Callable[[WholeCluster, int], Awaitable[None]]
"""Makes a proxy leave. The proxy is named by its place among the proxies."""


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
    """The topom that leads ends without a word; say which one it was."""
    leader = await cluster.all_well()
    await cluster.topoms[leader].kill()
    return leader


async def the_leader_is_paused(cluster: WholeCluster) -> int:
    """The topom that leads stands still; say which one it is."""
    leader = await cluster.all_well()
    cluster.pause_topom(leader)
    return leader


async def a_killed_topom_is_started_again(cluster: WholeCluster, number: int) -> None:
    """Once it runs, all is as it was."""
    cluster.topoms[number].start()
    await cluster.all_well()


async def the_store_loses_its_majority(cluster: WholeCluster) -> None:
    """Two of the three etcd are killed."""
    for etcd in cluster.stores[:2]:
        await etcd.kill()


async def the_store_is_back(cluster: WholeCluster) -> None:
    """They are started again, with what they had."""
    for etcd in cluster.stores[:2]:
        etcd.start()


async def servers_are_cut_off(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """They answer nothing, and connections to them stay open."""
    for address in addresses:
        os.kill(cluster.server(address).pid, signal.SIGSTOP)


async def they_are_reached_again(cluster: WholeCluster, addresses: Sequence[str]) -> None:
    """They go on where they were."""
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
    """The operator does it; say which server was made the master."""
    replica = (await cluster.members())[group][1]
    outcome = await operator_says(cluster, "group", "promote", str(group), replica)
    assert outcome.status == 0, outcome
    return replica


async def topom_is_paused(cluster: WholeCluster, why: str) -> None:
    """By the operator."""
    said = await _done(cluster, "pause", "--why", why)
    assert "PAUSED: " in said
    assert "(by operator)" in said


async def topom_is_resumed(cluster: WholeCluster) -> None:
    """By the operator."""
    assert "topom acts by itself" in await _done(cluster, "resume")


async def moving_is_to_be_slow(cluster: WholeCluster) -> None:
    """The operator sets a limit."""
    await cluster.api.set_migration(keys_per_second=SLOW)


async def moving_may_be_fast_again(cluster: WholeCluster) -> None:
    """The operator takes the limit off."""
    await cluster.api.set_migration(keys_per_second=0)


async def another_topom_leads(cluster: WholeCluster, former: int) -> int:
    """Wait until another topom leads; say which one it is."""
    leader, seconds = await cluster.taken_over(former)
    print(f"another topom leads after {seconds:.2f} s")
    async with cluster.asking(leader):
        await eventually(cluster.api.status, lambda status: not status["reason"], "changes to be possible")
    return leader


@asynccontextmanager
async def a_sentinel_hangs(cluster: WholeCluster) -> AsyncIterator[None]:
    """The process is paused, and goes on in the end."""
    process = cluster.sentinels[0].pid
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


async def a_server_is_drained(cluster: WholeCluster, address: str, why: str) -> str:
    """The operator does it; give the answer."""
    return await _done(cluster, "server", "drain", address, "--why", why)


async def a_group_is_drained(cluster: WholeCluster, group: int, why: str) -> None:
    """By the operator."""
    assert "leaves" in await _done(cluster, "group", "drain", str(group), "--why", why)


async def a_node_is_drained(cluster: WholeCluster, node: str, why: str) -> None:
    """By the operator."""
    assert f"node {node} leaves" in await _done(cluster, "node", "drain", node, "--why", why)


async def a_proxy_is_drained(cluster: WholeCluster, number: int) -> None:
    """By the operator."""
    address = cluster.proxy_addresses[number]
    (proxy_id,) = [proxy["id"] for proxy in await cluster.api.proxies() if proxy["address"] == address]
    assert f"proxy {proxy_id} at {address} leaves" in await _done(cluster, "proxy", "drain", str(proxy_id))


async def a_proxy_is_told_to_end(cluster: WholeCluster, number: int) -> None:
    """By SIGTERM."""
    os.kill(cluster.proxies[number].pid, signal.SIGTERM)


async def a_server_joins(cluster: WholeCluster, group: int, address: str, *options: str) -> None:
    """Added by the operator."""
    await _done(cluster, "server", "add", str(group), address, *options)


async def an_empty_server_fills_the_gap(cluster: WholeCluster, group: int) -> str:
    """A server joins and becomes whole; its address. The server that has left is switched off."""
    address = (await cluster.add_server(0)).address
    await a_server_joins(cluster, group, address)
    await eventually(
        lambda: joining(cluster, group),
        lambda found: found == {address: False} | dict.fromkeys(found, False),
        "an empty server to be whole",
    )
    await what_has_left_is_switched_off(cluster)
    return address


async def joining(cluster: WholeCluster, group: int) -> dict[str, bool]:
    """Whether each server of a group still joins."""
    (found,) = [found for found in await cluster.api.groups() if found["id"] == group]
    return {server["address"]: server["joining"] for server in found["servers"]}


async def what_has_left_is_switched_off(cluster: WholeCluster) -> None:
    """Servers that are in no group and not in the pool."""
    known = {server["address"] for group in await cluster.api.groups() for server in group["servers"]}
    known |= {server["address"] for server in (await cluster.api.pool())["servers"]}
    for server in [server for servers in cluster.servers.values() for server in servers]:
        if server.address not in known:
            await server.stop()


@asynccontextmanager
async def no_copy_is_begun(cluster: WholeCluster) -> AsyncIterator[None]:
    """Inside the block, every master makes the servers wait that it should fill."""
    servers = [address for addresses in (await cluster.members()).values() for address in addresses]
    await _set(servers, "repl-diskless-sync-delay", 3600)
    try:
        yield
    finally:
        await _set(servers, "repl-diskless-sync-delay", 0)


async def _set(servers: Sequence[str], name: str, value: int) -> None:
    for address in servers:
        async with plain_client(address) as client:
            await client.config_set(name, value)


@asynccontextmanager
async def a_proxy_acknowledges_nothing(cluster: WholeCluster) -> AsyncIterator[None]:
    """Inside the block its worker stands still, so a wait for all proxies to have the newest table goes on."""
    worker = cluster.worker_pids(1)[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@asynccontextmanager
async def placement_is_by_itself(cluster: WholeCluster) -> AsyncIterator[None]:
    """Inside the block: ``slotferry placement auto on``."""
    await _done(cluster, "placement", "auto", "on")
    try:
        yield
    finally:
        await cluster.api.set_auto_placement(False)


async def _done(cluster: WholeCluster, *arguments: str) -> str:
    outcome = await operator_says(cluster, *arguments)
    assert outcome.status == 0, outcome
    return outcome.out
