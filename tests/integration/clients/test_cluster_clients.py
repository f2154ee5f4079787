"""Clients that want a Redis Cluster, at proxies in cluster mode: redis-py's RedisCluster and ioredis's Cluster.

They work without a pause while a proxy joins, another one leaves, and slots move all the time. Nobody may see an error.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from proxy.clusterview import FUNCTION, SLOTS
from slotferry.local import LocalCluster
from slots.functions import slot
from tests.integration.clients import mover
from tests.integration.clients.javascript import RunningApplication
from tests.integration.cluster.harness import PATIENT, PATIENT_TOPOM, eventually, plain_client

Address = tuple[str, int]
USERS = [{"name": "default", "no_password": True}, {"name": "shop", "password": "p", "prefix": "shop:"}]


def place(address: str) -> Address:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two groups, and two proxies in cluster mode; the last test ends one of them."""
    running = LocalCluster(
        groups=2,
        proxies=2,
        workers=1,
        topom_settings=PATIENT_TOPOM,
        proxy_settings={**PATIENT, "cluster_mode": True, "users": json.dumps(USERS)},
    )
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


class RedisPy:
    """redis-py's RedisCluster at work in a thread of its own, until :meth:`stop`."""

    def __init__(self, nodes: list[Address], stays: Address) -> None:
        self.rounds = 0
        self.messages = 0
        self.nodes: set[Address] = set()
        self._nodes = nodes
        self._stays = stays
        self._ended = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._work = self._thread.submit(self._run)

    async def stop(self) -> None:
        """Raises what the client saw."""
        self._ended.set()
        await asyncio.wrap_future(self._work)
        self._thread.shutdown()

    async def went_on(self) -> None:
        """Wait for a few rounds more."""
        seen = self.rounds
        await eventually(lambda: self._look(), lambda rounds: rounds >= seen + 3, "redis-py to go on")

    async def _look(self) -> int:
        if self._work.done():
            self._work.result()
        return self.rounds

    def _run(self) -> None:
        with RedisCluster(startup_nodes=[ClusterNode(*node) for node in self._nodes]) as client:
            # A subscription is to one node, and redis-py does not look for another one.
            listening = client.pubsub(host=self._stays[0], port=self._stays[1])
            listening.subscribe("redis-py news")
            while not self._ended.is_set():
                self._round(client)
                while (message := listening.get_message(timeout=0.001)) is not None:
                    self.messages += message["type"] == "message"
                self.rounds += 1
            self.nodes = {(node.host, node.port) for node in client.get_nodes()}
            assert client.get("{redis-py}count") == b"%d" % self.rounds

    def _round(self, client: RedisCluster) -> None:
        keys = [f"redis-py:{number}" for number in range(20)]
        for key in keys:
            client.hset(key, "round", self.rounds)
        assert {client.hget(key, "round") for key in keys} == {b"%d" % self.rounds}
        with client.pipeline() as pipeline:
            for key in keys:
                pipeline.hget(key, "round")
            assert pipeline.execute() == [b"%d" % self.rounds] * len(keys)
        client.mset_nonatomic({f"redis-py:several:{number}": self.rounds for number in range(20)})
        client.incr("{redis-py}count")
        client.publish("redis-py news", self.rounds)


async def calls(address: str, command: str) -> int:
    """How often a proxy was sent a command."""
    async with plain_client(address) as client:
        found = await client.info("commandstats")
        return int(found.get(f"cmdstat_{command}", {}).get("calls", 0))


async def used(address: str, *names: str) -> None:
    """Wait until a proxy was sent each of these commands."""
    for name in names:
        await eventually(lambda name=name: calls(address, name), bool, f"{name} at {address}")  # type: ignore[misc]


def proxies_at(address: str) -> Callable[[], Awaitable[set[Address]]]:
    """Asks a proxy for the nodes of the cluster."""

    async def look() -> set[Address]:
        async with plain_client(address, decode_responses=True) as client:
            return {place(name) for name in await client.execute_command("CLUSTER NODES")}

    return look


@pytest.mark.long
async def test_what_a_node_says(cluster: LocalCluster) -> None:
    async with cluster.client() as topom:
        # In the order in which topom met them.
        addresses = [proxy["address"] for proxy in sorted(await topom.proxies(), key=lambda proxy: proxy["id"])]
    first, second = map(place, addresses)
    await eventually(proxies_at(addresses[0]), lambda found: found == {first, second}, "both proxies")
    async with (
        plain_client(addresses[0], protocol=3, decode_responses=True) as client,
        plain_client(addresses[1], decode_responses=True) as other,
    ):

        async def said(*words: object) -> object:
            # The reply as it comes, without redis-py's own parsing.
            return await client.execute_command("CLUSTER", *words)

        own, others = await said("MYID"), await other.execute_command("CLUSTER", "MYID")
        assert await said("SLOTS") == [
            [0, 8191, [*first, own, {}]],
            [8192, 16383, [*second, others, {}]],
        ]
        shards = await said("SHARDS")
        assert [shard["slots"] for shard in shards] == [[0, 8191], [8192, 16383]]  # type: ignore[attr-defined]
        assert shards[1]["nodes"] == [  # type: ignore[index]
            {
                "id": others,
                "port": second[1],
                "ip": second[0],
                "endpoint": second[0],
                "role": "master",
                "replication-offset": 0,
                "health": "online",
            }
        ]
        assert await said("MYSHARDID") == own
        assert "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n" in str(await said("INFO"))
        assert "cluster_known_nodes:2\r\n" in str(await said("INFO"))
        assert str(await said("NODES")).splitlines()[0].startswith(f"{own} {first[0]}:{first[1]}@0 myself,master - ")
        assert await said("REPLICAS", own) == await said("LINKS") == []
        for refused in (["SETSLOT", 1, "NODE", own], ["RESET"], ["REPLICAS", "0" * 40]):
            with pytest.raises(redis.ResponseError):
                await said(*refused)
        for refused in (["COUNTKEYSINSLOT", 1], ["GETKEYSINSLOT", 1, 10]):
            with pytest.raises(redis.ResponseError, match="'slotferry sizing run' counts the keys"):
                await said(*refused)
        assert await client.execute_command("ASKING") in (True, "OK")
        hello = await client.execute_command("HELLO", 3)
        assert hello["mode"] == "cluster"
        info = await client.info("everything")
        assert info["redis_mode"] == "cluster"
        assert info["cluster_enabled"] == 1

        wanted = slot(FUNCTION, b"key:0", SLOTS)
        assert await said("KEYSLOT", "key:0") == await said("KEYSLOT", "x{key:0}y") == wanted


async def test_a_user_with_a_prefix(cluster: LocalCluster) -> None:
    nodes = [ClusterNode(*place(address)) for address in cluster.proxy_addresses]
    names = {f"{{prefix}}:{number}": b"%d" % number for number in range(5)}

    def work() -> None:
        with RedisCluster(startup_nodes=nodes, username="shop", password="p") as client:
            assert len(client.get_nodes()) == len(nodes)
            for number in range(50):
                assert client.set(f"prefix:{number}", number)
                assert client.get(f"prefix:{number}") == b"%d" % number
            assert client.mset(names)
            assert client.mget(list(names)) == list(names.values())
            assert client.cluster_keyslot("prefix:0") == slot(FUNCTION, b"prefix:0", SLOTS)

    await asyncio.to_thread(work)
    for address in cluster.proxy_addresses:
        assert await calls(address, "get")
        async with plain_client(address) as client:
            assert await client.get("shop:prefix:7") == b"7"
            assert await client.get("shop:{prefix}:3") == b"3"


async def test_slot_rules_hold_at_every_node_and_no_client_is_redirected(cluster: LocalCluster) -> None:
    """The client prefers a proxy by its own hash of the key, and the proxy goes by the rule."""
    keys = [f"bull:mail:{number}" for number in range(40)]
    nodes = [ClusterNode(*place(address)) for address in cluster.proxy_addresses]

    def work() -> set[str]:
        with RedisCluster(startup_nodes=nodes) as client:
            for key in keys:
                assert client.set(key, key)
                assert client.cluster_keyslot(key) == slot(FUNCTION, key.encode(), SLOTS)
            owners = {client.get_node_from_key(key).name for key in keys}
            for node in client.get_nodes():
                # It raises an error where it is redirected.
                with redis.Redis(node.host, node.port) as plain:
                    assert plain.mget(keys) == [key.encode() for key in keys]
                    # Keys of one rule, which the client would have split over its nodes.
                    assert plain.sinter("bull:mail:none", "bull:mail:other") == set()
            return owners

    async with cluster.client() as topom:

        async def change(*rules: list[dict[str, str | None]]) -> None:
            await topom.change_rules(*rules)
            async with asyncio.timeout(60):
                while (ended := (await topom.rules())["change"])["stage"] not in ("done", "failed"):
                    await asyncio.sleep(0.05)
            assert ended["stage"] == "done", ended

        await change([{"pattern": "bull:(*):*"}])
        assert len(await asyncio.to_thread(work)) == 2
        found = []
        for servers in cluster.groups.values():
            async with plain_client(servers[0]) as server:
                found.append(await server.exists(*keys))
        assert sorted(found) == [0, len(keys)]
        async with plain_client(cluster.proxy_addresses[0]) as client:
            await client.delete(*keys)
        await change([], [{"pattern": "bull:(*):*", "database": None}])


@pytest.mark.long
async def test_clients_spread_over_proxies_that_come_and_go_while_slots_move(cluster: LocalCluster) -> None:
    leaves, stays = cluster.proxy_addresses
    for address in (leaves, stays):
        await eventually(proxies_at(address), lambda found: found == {place(leaves), place(stays)}, "both proxies")
    carrier = mover.Mover(cluster, 1024)
    carrier.start()
    try:
        redis_py = RedisPy([place(leaves)], place(stays))
        with RunningApplication("ioredis-cluster.mjs", place(leaves)) as ioredis:
            # Both clients use both proxies: redis-py hashes, ioredis strings.
            await used(leaves, "hset", "hget", "set")
            await used(stays, "hset", "hget", "set")
            joins = await cluster.add_proxy()
            await used(joins, "set")
            await cluster.proxies[0].stop()
            await eventually(
                proxies_at(stays), lambda found: found == {place(stays), place(joins)}, "the first proxy to be gone"
            )
            await used(joins, "hset", "hget")
            await redis_py.went_on()
            await redis_py.stop()
            seen = await asyncio.to_thread(ioredis.finish)
    finally:
        carrier.stop()
    assert carrier.rounds
    assert redis_py.nodes == {place(stays), place(joins)}
    assert redis_py.messages
    assert seen["errors"] == []
    assert seen["rounds"] == seen["count"]
    assert seen["messages"]
    assert {place(node) for node in seen["nodes"]} == {place(stays), place(joins)}
