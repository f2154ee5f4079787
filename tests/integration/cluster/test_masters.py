"""``ha = "topom"``: a master that dies is replaced by its best replica, and comes back as a replica."""

import os
import signal

import pytest

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Counting, eventually, plain_client
from tests.integration.cluster.test_promotion import all_follow, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica
from tests.integration.worker.blocked import blocked_at
from tests.integration.worker.conversations import Talk

QUICK = {"server_suspect_seconds": 1.5, "server_fail_seconds": 3.0, "server_view_seconds": 10.0}


async def test_a_master_that_dies_is_replaced(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2, proxies=2, workers=1, topom_settings={**QUICK, "ha": "topom"}, redis_arguments=PROMPT
    )
    for _ in range(2):
        await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    # Before that topom does not know what its replicas lack.
    await cluster.offset_noted(1)
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
    # The master may not have sent its last acknowledged writes to anybody, so the counting is not checked.
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
        await eventually(judged, lambda found: ("failed", 3, 3) in found, "all to see that the former master failed")
        await cluster.check_ballast()
        # It wakes with old requests, whose replies no client waits for.
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


@pytest.mark.long
async def test_one_owner_a_master_that_hung_and_was_replaced_acknowledges_nothing(start_cluster: StartCluster) -> None:
    """A transaction with a watch and a pop that waits are at the master when it stops, and it wakes as a former
    master."""
    cluster = await start_cluster(
        groups=1,
        proxies=1,
        workers=1,
        topom_settings={**QUICK, "ha": "topom"},
        # They are not given up because they take long.
        proxy_settings={"backend_reply_seconds": 60},
        redis_arguments=PROMPT,
    )
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    master, replica = await servers_of(cluster, 1)
    await cluster.offset_noted(1)
    proxy, (process, _) = cluster.proxy_addresses[0], cluster.servers[1]
    async with plain_client(proxy) as client, Talk(proxy) as executes, Talk(proxy) as pops:
        # Their connections to the master are there already.
        pops.send("BLPOP", "list", "0")
        await blocked_at(process)
        for words in (("WATCH", "key"), ("MULTI",), ("SET", "key", "mine")):
            assert not (await executes.ask(*words)).startswith(b"-")
        await client.rpush("list", "first", "second")
        assert await pops.reply() == b"*2\r\n$4\r\nlist\r\n$5\r\nfirst\r\n"
        async with plain_client(master) as direct:
            assert await direct.wait(1, 30_000) == 1
        os.kill(process.pid, signal.SIGSTOP)
        executes.send("EXEC")
        pops.send("BLPOP", "list", "0")
        await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == replica, "another master")
        os.kill(process.pid, signal.SIGCONT)
        for talk in (executes, pops):
            reply = await talk.reply()
            assert reply.startswith(f"-ERR server {master} has failed".encode()), reply
        assert await client.get("key") is None
        assert await client.lrange("list", 0, -1) == [b"second"]


@pytest.mark.long
async def test_a_master_that_fails_right_after_it_became_one_is_replaced(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2, proxies=1, workers=1, topom_settings={**QUICK, "ha": "topom"}, redis_arguments=PROMPT
    )
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    former, chosen = await servers_of(cluster, 1)
    await cluster.offset_noted(1)
    await cluster.api.promote(1, chosen)
    await all_follow(cluster, 1)
    process = next(server for server in cluster.servers[1] if server.address == chosen)
    await process.kill()
    await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == former, "another master")


@pytest.mark.long
async def test_a_replica_that_shows_no_data_without_its_master_takes_its_place(start_cluster: StartCluster) -> None:
    """As soon as its master is gone, it answers PING and much else with an error."""
    cluster = await start_cluster(
        groups=2,
        proxies=1,
        workers=1,
        topom_settings={**QUICK, "ha": "topom"},
        redis_arguments=(*PROMPT, "--replica-serve-stale-data", "no"),
    )
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    await cluster.offset_noted(1)
    master, replica = await servers_of(cluster, 1)
    process = next(server for server in cluster.servers[1] if server.address == master)
    await process.kill()
    await eventually(lambda: servers_of(cluster, 1), lambda servers: servers[0] == replica, "another master")
    async with plain_client(cluster.proxy_addresses[0]) as client:
        assert await client.set("key", "value")


@pytest.mark.long
async def test_a_proxy_that_died_is_forgotten_and_holds_no_failover_up(start_cluster: StartCluster) -> None:
    """topom forgets its identity by itself, and does not wait for it when a master dies later."""
    settings = {**QUICK, "ha": "topom", "proxy_lease_seconds": 3.0, "proxy_forget_seconds": 3.0}
    cluster = await start_cluster(groups=2, proxies=2, workers=1, topom_settings=settings, redis_arguments=PROMPT)
    await add_replica(cluster, 1)
    await all_follow(cluster, 1)
    await cluster.offset_noted(1)
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
