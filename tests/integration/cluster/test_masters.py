"""``ha = "topom"``: a master that dies is replaced by its best replica, and comes back as a replica."""

import os
import signal

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Counting, eventually, plain_client
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica

QUICK = {"server_suspect_seconds": 1.0, "server_fail_seconds": 2.0, "server_view_seconds": 10.0}


async def test_a_master_that_dies_is_replaced(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2, proxies=2, workers=1, topom_settings={**QUICK, "ha": "topom"}, redis_arguments=PROMPT
    )
    for _ in range(2):
        await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    master, first, second = await servers_of(cluster, 1)

    async def judged() -> set[tuple[str, int, int]]:
        found = [server for group in await cluster.api.groups() for server in group["servers"]]
        return {(server["condition"], server["silent"], server["views"]) for server in found}

    # topom's view, and the two proxies'.
    await eventually(judged, lambda found: found == {("alive", 0, 3)}, "three views of each server")
    await cluster.load_ballast()
    async with plain_client(master) as client:
        assert await client.wait(2, 30_000) == 2
    process = next(server for server in cluster.servers[1] if server.address == master)
    # What it has acknowledged last it may not have sent to anybody: so none of the counting is checked.
    async with Counting(cluster.proxy_addresses[0], name="first") as one, Counting(cluster.proxy_addresses[1]) as other:
        os.kill(process.pid, signal.SIGSTOP)
        replaced = await eventually(
            lambda: servers_of(cluster, 1), lambda servers: servers[0] in (first, second), "another master"
        )
        # The other replica restarts meanwhile, without a configuration file that says that it is one.
        (address,) = {first, second} - {replaced[0]}
        stray = next(server for server in cluster.servers[1] if server.address == address)
        await stray.stop()
        stray.start()
        await stray.ready()
        await one.progress()
        await other.progress()
        assert ("failed", 3, 3) in await judged()
        await cluster.check_ballast()
        # It wakes with requests of before, which nobody waits for.
        os.kill(process.pid, signal.SIGCONT)
        await all_follow(cluster, 1)
        assert await servers_of(cluster, 1) == replaced
        await one.progress()
    await cluster.check_ballast()

    async def told() -> list[str]:
        return [event["what"] for event in (await cluster.api.events())["events"]]

    def what_else(events: list[str]) -> str:
        return [what for what in events if what not in ("server_failed", "server_back")][-1]

    await eventually(told, lambda events: what_else(events) == "server_whole", "the replica that restarted to be whole")
    events = await eventually(told, lambda events: "server_back" in events, "the former master to be back")
    assert "server_strayed" in events
    # What happened stands before what was done about it.
    assert events.index("server_failed") < events.index("master_changed") < events.index("server_back")
    async with plain_client(replaced[0]) as client, plain_client(address) as replica:
        assert await client.wait(2, 30_000) == 2
        assert await replica.dbsize() == await client.dbsize()


async def test_a_proxy_that_died_is_forgotten_and_holds_no_failover_up(start_cluster: StartCluster) -> None:
    """Its identity goes, nobody removes it, and nobody waits for it when a master dies later."""
    settings = {**QUICK, "ha": "topom", "proxy_lease_seconds": 1.0, "proxy_forget_seconds": 1.0}
    cluster = await start_cluster(groups=2, proxies=2, workers=1, topom_settings=settings, redis_arguments=PROMPT)
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    master, replica = await servers_of(cluster, 1)
    await cluster.proxies[1].kill()

    async def members() -> list[str]:
        return [proxy["state"] for proxy in (await cluster.api.status())["proxies"]]

    await eventually(members, lambda states: states == ["online"], "the dead proxy to be forgotten")
    for server in (master, replica):
        assert len(await cluster.fence_users(server)) == 1
    process = next(server for server in cluster.servers[1] if server.address == master)
    await process.kill()
    await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == replica, "another master")
