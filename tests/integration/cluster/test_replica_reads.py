"""Reads from replicas of a whole cluster, while its slots move between groups."""

import asyncio
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from slotferry.redis_server import RedisServer
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import BALLAST, Cluster, eventually, plain_client
from tests.integration.worker.replicated import Gate

SETTINGS = {"replica_reads": True, "replica_check_seconds": 0.2}
PROMPT = ("--repl-diskless-sync-delay", "0")
WORKERS = 2
SLOTS = 1024


async def add_replica(cluster: Cluster, group_id: int, datacenter: str = "", gate: Gate | None = None) -> RedisServer:
    """Start a replica of a group, have it follow the master (through a gate if there is one), and tell topom."""
    port = gate.port if gate is not None else cluster.servers[group_id][0].port
    server = await cluster.add_server(group_id)
    async with plain_client(server.address) as client:
        await client.replicaof("127.0.0.1", str(port))
    await cluster.api.add_server(group_id, server.address, datacenter)
    return server


async def reading(cluster: Cluster, slots: int) -> None:
    """Wait until every worker reads so many slots from replicas."""

    async def look() -> list[int]:
        return [int(proxy["counters"].get("replica_slots", -1)) for proxy in await cluster.api.proxies()]

    await eventually(look, lambda found: set(found) == {slots * WORKERS}, f"{slots} slots read from replicas")


async def gets(server: RedisServer) -> int:
    """GETs a server has run."""
    async with plain_client(server.address) as client:
        statistics = await client.info("commandstats")
    return int(statistics.get("cmdstat_get", {}).get("calls", 0))


async def questions(server: RedisServer) -> int:
    """INFOs a server has run: those of the proxies' workers, one a second of topom's, and this one."""
    async with plain_client(server.address) as client:
        statistics = await client.info("commandstats")
    return int(statistics.get("cmdstat_info", {}).get("calls", 0))


class Readers:
    """Clients that read keys which do not change, and note every wrong reply."""

    def __init__(self, addresses: Sequence[str], count: int = 8) -> None:
        self._addresses = addresses
        self._count = count
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self.reads = 0
        self.wrong: list[str] = []

    async def __aenter__(self) -> "Readers":
        self._tasks = [
            asyncio.create_task(self._read(self._addresses[number % len(self._addresses)], number))
            for number in range(self._count)
        ]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _read(self, address: str, number: int) -> None:
        async with plain_client(address, single_connection_client=True) as client:
            while not self._ending:
                for key in range(number, BALLAST, self._count * 3):
                    await self._check(client, key)

    async def _check(self, client: Redis, key: int) -> None:
        try:
            found = await client.get(f"ballast:{key}")
        except (RedisError, OSError) as error:
            self.wrong.append(f"ballast:{key}: {error}")
            return
        self.reads += 1
        if found != f"value {key}".encode():
            self.wrong.append(f"ballast:{key}: {found!r}")


@pytest.mark.long
async def test_keys_are_never_missed_while_slots_move(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2, proxies=2, workers=WORKERS, slots_on=[1], proxy_settings=SETTINGS, redis_arguments=PROMPT
    )
    await cluster.load_ballast()
    gate = await Gate.before(cluster.servers[2][0])
    replicas = [await add_replica(cluster, 1), await add_replica(cluster, 2, gate=gate)]
    await reading(cluster, SLOTS)
    async with Readers(cluster.proxy_addresses) as readers:
        # caught-up: a replica of the target hears of none of the keys that come.
        gate.shut()
        await cluster.api.move_slots(f"0-{SLOTS - 1}", 2)
        await cluster.at_rest({1: 0, 2: SLOTS})
        asked = await questions(replicas[1])
        await eventually(lambda: questions(replicas[1]), lambda now: now > asked + 40, "more questions to the replica")
        async with plain_client(replicas[1].address) as client:
            found = await client.keys()
            assert [key for key in found if not key.startswith(b"__slotferry:")] == []
        assert not readers.wrong, readers.wrong[:10]
        gate.open()
        await reading(cluster, SLOTS)
        for target, slots in ((1, {1: SLOTS, 2: 0}), (2, {1: 0, 2: SLOTS})):
            before = [await gets(replica) for replica in replicas]
            await cluster.api.move_slots(f"0-{SLOTS - 1}", target)
            await cluster.at_rest(slots)
            await reading(cluster, SLOTS)

            async def read(before: list[int] = before, target: int = target) -> bool:
                return await gets(replicas[target - 1]) > before[target - 1] + 200

            await eventually(read, bool, "reads from the target's replica")
    await gate.close()
    assert not readers.wrong, readers.wrong[:10]
    assert readers.reads > 1000
    await cluster.check_ballast()


@pytest.mark.long
async def test_a_replica_joins_dies_and_leaves_under_load(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=1,
        workers=WORKERS,
        proxy_settings={**SETTINGS, "datacenter": "paris"},
        redis_arguments=PROMPT,
    )
    await cluster.load_ballast()
    async with Readers(cluster.proxy_addresses) as readers:
        far = await add_replica(cluster, 1, "rome")
        await reading(cluster, SLOTS)
        near = await add_replica(cluster, 1, "paris")

        async def only(server: RedisServer, other: RedisServer) -> bool:
            before = await gets(other), await gets(server), readers.reads
            while readers.reads < before[2] + 200:
                await asyncio.sleep(0.01)
            return await gets(other) == before[0] and await gets(server) > before[1]

        await eventually(lambda: only(near, far), bool, "reads from the near replica only")
        status = await cluster.api.status()
        assert [server["datacenter"] for server in status["groups"][0]["servers"]] == ["", "rome", "paris"]
        # topom, started again, knows it still.
        await cluster.topom.kill()
        await cluster.restart_topom()
        status = await cluster.api.status()
        assert [server["datacenter"] for server in status["groups"][0]["servers"]] == ["", "rome", "paris"]
        await cluster.api.remove_server(1, near.address)
        await eventually(lambda: only(far, near), bool, "reads from the far replica only")
        assert not readers.wrong, readers.wrong[:10]
        await far.kill()
        await reading(cluster, 0)
        under_way = len(readers.wrong)
        await cluster.api.remove_server(1, far.address)
        for _ in range(3):
            before = readers.reads

            async def more(before: int = before) -> bool:
                return readers.reads > before + 200

            await eventually(more, bool, "reads from the master")
    assert under_way <= 8, readers.wrong
    assert len(readers.wrong) == under_way, readers.wrong
    assert all(far.address in wrong for wrong in readers.wrong)
