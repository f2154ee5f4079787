"""Servers that join and leave under load, one of them with old data: nothing is lost, and nothing old is read."""

import asyncio

from slots.functions import slot
from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import PATIENT, Cluster, check_clean, eventually, plain_client, traffic_on
from tests.integration.cluster.test_leaving import run
from tests.integration.cluster.test_promotion import masters_of, servers_of
from tests.integration.cluster.test_replica_reads import PROMPT

KEY = next(name for n in range(9999) if slot("crc32", (name := f"stale:{n}").encode(), 1024) < 512)


class Reader:
    """Reads a key from replicas, again and again."""

    def __init__(self, address: str) -> None:
        self.seen: set[str] = set()
        self.reads = 0
        self.stopping = False
        self._address = address
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with plain_client(self._address, single_connection_client=True) as client:
            await client.execute_command("READONLY")
            while not self.stopping:
                self.seen.add((await client.get(KEY)).decode())
                self.reads += 1
                await asyncio.sleep(0.002)

    async def stop(self) -> set[str]:
        self.stopping = True
        await self._task
        return self.seen


async def waits_for(cluster: Cluster) -> list[str]:
    """What those on the list wait for."""
    return [entry["waits_for"] for entry in (await cluster.api.status())["leaving"]]


async def test_masters_and_a_node_leave_once_others_have_joined(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2,
        proxies=2,
        topom_settings={"barrier_seconds": 30, "promotion_seconds": 10},
        proxy_settings=PATIENT | {"replica_check_seconds": 0.1},
        redis_arguments=PROMPT,
    )
    (former,) = await servers_of(cluster, 1)
    stale = await cluster.add_server(1)
    empty = await cluster.add_server(1)
    spare = await cluster.add_server(2)
    async with plain_client(cluster.proxy_addresses[0]) as client, plain_client(stale.address) as old:
        await client.set(KEY, "new")
        # What was there before: another value, and a key that is gone since.
        await old.mset({KEY: "old", "gone": "old"})
    async with traffic_on(cluster.proxy_addresses, keys=1500, databases=(0,), rate=800.0) as traffic:
        reader = Reader(cluster.proxy_addresses[1])
        assert "leaves group 1 once" in await run(cluster, "server", "drain", "1", former, "--why", "old")
        await eventually(lambda: waits_for(cluster), lambda found: "add a replica" in found[0], "it to be said")
        # When: it would lose keys that nobody has said may be lost.
        environment = {"SLOTFERRY_TOPOM": cluster.topom_url, "SLOTFERRY_TOKEN": cluster.token}
        refused = await slotferry("server", "add", "1", stale.address, **environment)
        assert refused.status != 0
        assert "--wipe" in refused.out + refused.err
        assert await servers_of(cluster, 1) == [former]
        await run(cluster, "server", "add", "1", stale.address, "--wipe")
        await eventually(
            lambda: servers_of(cluster, 1), lambda found: found == [stale.address], "the stale one to take over"
        )
        assert await waits_for(cluster) == []
        # When: an empty one joins, too, and is read from.
        await cluster.api.add_server(1, empty.address)

        async def whole() -> list[bool]:
            return [server["joining"] for server in (await cluster.api.groups())[0]["servers"]]

        await eventually(whole, lambda found: found == [False, False], "the empty one to be whole")

        async def read() -> int:
            async with plain_client(empty.address) as direct:
                said = await direct.info("commandstats")
            return int(said.get("cmdstat_get", {}).get("calls", 0))

        await eventually(read, lambda found: found > 0, "the empty one to be read from")
        assert await reader.stop() == {"new"}
        # When: it restarts, and has no configuration file that says that it is a replica.
        await empty.stop()
        empty.start()
        await empty.ready()

        async def strays() -> list[str]:
            events = (await cluster.api.events(limit=100))["events"]
            return [event["text"] for event in events if event["what"] == "server_strayed"]

        # When: the node leaves that has the only copy of a group, and the pool has a server elsewhere.
        (lone,) = await servers_of(cluster, 2)
        await cluster.api.set_place(2, lone, node="old-host")
        await cluster.api.add_to_pool(spare.address, node="new-host")
        assert "node old-host leaves" in await run(cluster, "node", "drain", "old-host")
        await eventually(
            lambda: servers_of(cluster, 2), lambda found: found == [spare.address], "the spare one to take over"
        )
        assert await waits_for(cluster) == []
        await eventually(strays, lambda found: len(found) == 1, "the restarted one to be told to follow again")
        await eventually(whole, lambda found: found == [False, False], "the restarted one to be whole again")
        await check_clean(traffic, await masters_of(cluster))
    async with plain_client(empty.address) as filled:
        assert await filled.exists("gone") == 0
        assert (await filled.info("replication"))["master_link_status"] == "up"
    # Then: it was removed as the replica that it is, and nothing else was done to it.
    for server in (former, lone):
        async with plain_client(server) as gone:
            assert (await gone.info("replication"))["role"] == "slave"
