"""Balance by memory, end to end: sizes measured at real servers, a plan by bytes carried out, a group drained."""

import time
from typing import Any

import pytest

from slots.functions import slot
from slots.reserved import RESERVED
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, plain_client

SLOTS = 64
DATABASES = (0, 3)
KEYS = 1200
TOLERANCE = 0.05
REPACKED = 0.03
"""Moving itself changes a group's bytes by at most this share: a server packs a restored hash more tightly."""


@pytest.fixture
async def cluster(start_cluster: StartCluster) -> Cluster:
    """Two groups with the same number of slots, of which the first has about ten times the memory of the second."""
    cluster = await start_cluster(groups=2, workers=1, number_of_slots=SLOTS)
    for database in DATABASES:
        async with plain_client(cluster.proxy_addresses[0], db=database) as client, client.pipeline(False) as pipeline:
            for number in range(KEYS):
                key = f"key:{number}"
                heavy = slot("crc32", key.encode(), SLOTS) < SLOTS // 2
                size = (2000 if heavy else 100) + number % 200
                if number % 3:
                    pipeline.set(key, "x" * size)
                else:
                    pipeline.hset(key, mapping={str(field): "y" * (size // 20) for field in range(20)})
            await pipeline.execute()
    return cluster


async def measured(cluster: Cluster) -> dict[str, Any]:
    """A measurement as it is posted, of every key of every server by MEMORY USAGE."""
    began = time.time()
    sizes: dict[int, dict[str, Any]] = {}
    for servers in cluster.groups.values():
        for database in DATABASES:
            async with plain_client(servers[0], db=database) as client:
                names = [name async for name in client.scan_iter(count=1000) if not name.startswith(RESERVED)]
                for name in names:
                    count = await client.memory_usage(name, samples=0)
                    kind = (await client.type(name)).decode()
                    entry = sizes.setdefault(slot("crc32", name, SLOTS), {"bytes": 0, "keys": 0, "biggest": []})
                    entry["bytes"] += count
                    entry["keys"] += 1
                    entry["biggest"].append({"key": name.decode(), "database": database, "type": kind, "bytes": count})
    for entry in sizes.values():
        entry["biggest"] = sorted(entry["biggest"], key=lambda key: -key["bytes"])[:10]
    slots = [{"slot": number, **entry} for number, entry in sizes.items()]
    return {"taken_at": began, "seconds": time.time() - began, "complete": True, "slots": slots}


async def by_group(cluster: Cluster) -> dict[int, int]:
    """Bytes at each group's master."""
    owners = {entry["id"]: entry["group_id"] for entry in (await cluster.api.slots())["slots"]}
    totals = dict.fromkeys(cluster.groups, 0)
    for entry in (await measured(cluster))["slots"]:
        totals[owners[entry["slot"]]] += entry["bytes"]
    return totals


def check_even(groups: dict[int, int], tolerance: float) -> None:
    share = sum(groups.values()) / len(groups)
    assert all(abs(count - share) <= tolerance * share for count in groups.values()), groups


async def operate(cluster: Cluster, *arguments: str) -> Outcome:
    return await slotferry(*arguments, SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token)


async def check_values(cluster: Cluster) -> None:
    for database in DATABASES:
        async with plain_client(cluster.proxy_addresses[0], db=database) as client:
            assert await client.dbsize() == KEYS
            heavy = slot("crc32", b"key:1", SLOTS) < SLOTS // 2
            assert await client.get("key:1") == b"x" * ((2000 if heavy else 100) + 1)
            assert len(await client.hgetall("key:3")) == 20
    assert await cluster.misplaced(DATABASES) == []


@pytest.mark.long
async def test_uneven_memory_is_evened_out(cluster: Cluster) -> None:
    refused = await operate(cluster, "rebalance", "--policy", "bytes")
    assert refused.status == 1
    assert "slotferry sizing run --into DIR" in refused.err

    measurement = await measured(cluster)
    await cluster.api.post_sizes(measurement)
    before = await by_group(cluster)
    assert before[1] > 5 * before[2]
    known = {group["group_id"]: group["bytes"] for group in (await cluster.api.sizes())["groups"]}
    assert known == before

    biggest = max((key for entry in measurement["slots"] for key in entry["biggest"]), key=lambda key: key["bytes"])
    shown = await operate(cluster, "slot", "list", "--top", "3")
    assert shown.out.count("group 1") == 3, shown
    assert (await operate(cluster, "sizing", "list", "--top", "1", "-o", "json")).json["keys"][0]["bytes"] == (
        biggest["bytes"]
    )

    planned = (await operate(cluster, "rebalance", "--policy", "bytes", "--dry-run", "-o", "json")).json
    assert {(move["from"], move["to"]) for move in planned["moves"]} == {(1, 2)}
    assert (planned["reasons"], planned["warnings"]) == ([], [])
    cost = planned["cost"]
    assert cost["total"]["slots"] == len(planned["moves"])
    assert {group["id"]: group["before"]["bytes"] for group in cost["groups"]} == before
    assert cost["groups"][0]["after"]["bytes"] == before[1] - cost["total"]["bytes"]
    assert cost["keys_per_second"] is None, "nothing was moved yet"
    [pair] = cost["pairs"]
    assert pair["way"]["way"] == "keys"
    assert abs(pair["way"]["keys"] - pair["keys"]) <= 0.1 * pair["keys"], "as the source's INFO and the sizes tell"
    assert cost["seconds"] == round(pair["way"]["seconds"], 1)
    await cluster.at_rest({1: 32, 2: 32})

    done = await operate(cluster, "rebalance", "--policy", "bytes", "--wait")
    assert done.status == 0, done
    assert "slots moved, policy bytes" in done.out
    check_even(await by_group(cluster), TOLERANCE + REPACKED)
    await check_values(cluster)

    # The sizes are those from before; the slots have brought theirs along, and that is said.
    known = {group["group_id"]: group["bytes"] for group in (await cluster.api.sizes())["groups"]}
    assert known == {group["id"]: group["after"]["bytes"] for group in cost["groups"]}
    assert sum(known.values()) == sum(before.values())
    check_even(known, TOLERANCE)
    again = await operate(cluster, "rebalance", "--policy", "bytes", "--dry-run")
    assert "nothing to move" in again.out
    back = (await operate(cluster, "rebalance", "--policy", "bytes", "--dry-run", "--drain", "2", "-o", "json")).json
    assert back["cost"]["pairs"][0]["way"]["seconds"] > 0
    assert back["cost"]["keys_per_second"] > 0
    assert f"sizes were taken before {len(planned['moves'])} slots" in again.err
    await cluster.api.post_sizes(await measured(cluster))
    assert (await cluster.api.sizes())["warnings"] == []


@pytest.mark.long
async def test_sizes_outlive_topom(cluster: Cluster) -> None:
    posted = await cluster.api.post_sizes(await measured(cluster))
    await cluster.topom.stop()
    await cluster.restart_topom()
    kept = await cluster.api.sizes()
    assert kept["groups"] == posted["groups"]
    assert kept["last"]["taken_at"] == posted["last"]["taken_at"]
    assert (await cluster.api.slots(biggest=1))["slots"][0]["biggest"]


@pytest.mark.long
async def test_a_group_is_drained_and_leaves(cluster: Cluster) -> None:
    await cluster.api.post_sizes(await measured(cluster))
    master = cluster.groups[2][0]
    held = await operate(cluster, "server", "remove", master)
    assert held.status == 1
    assert "need" in held.err
    drained = await operate(cluster, "rebalance", "--policy", "bytes", "--drain", "2", "--wait")
    assert drained.status == 0, drained
    assert "in all 32 slots" in drained.out
    await cluster.at_rest({1: 64, 2: 0})
    async with plain_client(master) as client:
        assert not [key async for key in client.scan_iter() if not key.startswith(RESERVED)]
    for verb in (("server", "remove", master), ("group", "remove", "2")):
        outcome = await operate(cluster, *verb)
        assert outcome.status == 0, outcome
    await check_values(cluster)
