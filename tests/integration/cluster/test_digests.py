"""The digest check over a real master and replica: no false difference, every true one named, and what heals it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from slotferry.calls import Answer, TopomRefused
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client
from tests.integration.cluster.test_command_line import operate
from tests.integration.cluster.test_replica_reads import PROMPT, add_replica

CUT = {"hash": 3000, "set": 3000, "zset": 3000, "list": 3000, "stream": 1200}
"""Elements of keys that go in pieces."""
KEYS = 2 * (150 + 1 + 8 + 2 + 1 + 6)
"""Keys of :func:`fill` that last for the whole test."""


async def fill(client: Redis) -> None:
    """Every type, small and big, in two databases, with deadlines and without."""
    for database in (0, 5):
        await client.execute_command("SELECT", database)
        async with client.pipeline(transaction=False) as pipe:
            for number in range(150):
                pipe.set(f"string:{number}", f"value {number}", px=600_000 + number if number % 3 else None)
            pipe.set("text:big", "abcdefgh" * 100_000)
            for number, size in (("small", 5), ("big", 0)):
                count = size or CUT["hash"]
                pipe.hset(f"hash:{number}", mapping={f"field {n}": f"value {n}" for n in range(count)})
                pipe.sadd(f"set:{number}", *(f"member {n}" for n in range(count)))
                pipe.zadd(f"zset:{number}", {f"member {n}": n / 3 for n in range(count)})
                pipe.rpush(f"list:{number}", *(f"element {n}" for n in range(count)))
            for n in range(CUT["stream"]):
                pipe.xadd("stream:big", {"n": n}, id=f"{n + 1}-0")
            pipe.xadd("stream:small", {"n": 1}, id="1-0")
            pipe.xgroup_create("stream:small", "group", id="0")
            pipe.xreadgroup("group", "consumer", {"stream:small": ">"}, count=1)
            pipe.sadd("set:numbers", 1, 2, 3)
            for number in range(6):  # too much together for one call
                pipe.hset(f"hash:medium:{number}", mapping={f"field {n}": number for n in range(300)})
            pipe.set("soon", "gone", px=1)
            await pipe.execute()
    await client.execute_command("SELECT", 0)


@asynccontextmanager
async def light_load(master: str) -> AsyncIterator[None]:
    """A few keys that change all the time, of those that are checked."""
    stopped = asyncio.Event()

    async def write(client: Redis) -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            async with client.pipeline(transaction=False) as pipe:
                pipe.mset({f"string:{n}": number for n in range(40)})
                pipe.hset("hash:big", f"field {number % 3000}", number)
                pipe.delete(f"extra:{number % 20}")
                pipe.set(f"extra:{(number + 10) % 20}", number, px=50)
                await pipe.execute()
            await asyncio.sleep(0.003)

    async with plain_client(master) as client:
        task = asyncio.create_task(write(client))
        try:
            yield
        finally:
            stopped.set()
            await task


async def checked(cluster: Cluster) -> Answer:
    """Check the group's replica, to the end."""
    await cluster.api.start_digest(1, None, 0)

    async def look() -> Answer:
        found: Answer = (await cluster.api.digest(1, slots=True))["replicas"][0]
        return found

    return await eventually(look, lambda found: found["stage"] != "running", "the check to end")


@pytest.mark.long
async def test_differences_are_named_refused_and_healed(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=1, proxies=1, workers=1, redis_arguments=PROMPT)
    await cluster.online(1)
    with pytest.raises(TopomRefused, match="no replica"):
        await cluster.api.start_digest(1, None, 0)
    replica = (await add_replica(cluster, 1)).address
    master = cluster.servers[1][0].address
    async with plain_client(master) as ahead, plain_client(replica) as behind:
        await fill(ahead)
        async with light_load(master):
            found = await checked(cluster)
        print(json.dumps({**found, "slots": len(found["slots"])}))
        assert (found["stage"], found["named"], found["differences"]) == ("same", [], 0), found["reason"]
        assert found["keys"] >= 2 * 100
        assert found["promotable"]
        assert all(slot["master"] == slot["replica"] for slot in found["slots"])
        # Keys that are written all the time may count as not compared; without writes every key is compared.
        found = await checked(cluster)
        assert (found["stage"], found["uncompared"]) == ("same", 0)
        assert sum(slot["keys"] for slot in found["slots"]) == found["keys"] >= KEYS
        await ahead.set("__slotferry:own", "compared with nothing")
        # Others may have expired meanwhile.
        assert (await checked(cluster))["keys_total"] <= found["keys_total"]

        await behind.config_set("replica-read-only", "no")
        await behind.set("string:41", "another", keepttl=True)
        await behind.delete("string:42")
        await behind.set("only at the replica", 1)
        await behind.pexpireat("string:43", int(time.time() * 1000) + 900_000)
        await behind.set("list:small", "no list")
        await behind.hset("hash:big", "field 7", "another")
        await behind.srem("set:small", "member 1")
        await behind.lset("list:big", 2500, "another")
        await behind.zadd("zset:big", {"member 1": 0.25})
        await behind.setrange("text:big", 500_000, "X")
        await behind.xgroup_setid("stream:small", "group", "0")
        await behind.xdel("stream:big", "700-0")
        await behind.execute_command("SELECT", 5)
        await behind.persist("string:1")
        await behind.execute_command("SELECT", 9)
        await behind.set("database of its own", 1)
        found = await checked(cluster)
        assert found["stage"] == "different"
        assert {(one["database"], one["key"], one["what"]) for one in found["named"]} == {
            (0, "string:41", "value"),
            (0, "string:42", "missing"),
            (0, "only at the replica", "extra"),
            (0, "string:43", "deadline"),
            (0, "list:small", "type"),
            (0, "hash:big", "value"),
            (0, "set:small", "value"),
            (0, "list:big", "value"),
            (0, "zset:big", "value"),
            (0, "text:big", "value"),
            (0, "stream:small", "value"),
            (0, "stream:big", "value"),
            (5, "string:1", "deadline"),
            (9, "database of its own", "extra"),
        }
        wrong = {one["slot"] for one in found["named"]}
        assert {slot["slot"] for slot in found["slots"] if slot["master"] != slot["replica"]} == wrong
        assert not found["promotable"]

        outcome = await operate(cluster, "digest", "show", "1")
        assert outcome.status == 1, outcome
        for told in ("14 keys differ", "only at the replica", "deadline", "digest resync"):
            assert told in outcome.out, outcome
        # The next leader knows it, too.
        await cluster.topom.kill()
        await cluster.restart_topom()
        with pytest.raises(TopomRefused, match="digest check found") as refused:
            await cluster.api.promote(1, replica)
        assert refused.value.error == "NotReady"
        assert "differs from its master in 14 keys" in (await operate(cluster, "status")).out
        outcome = await operate(cluster, "digest", "show", "1")
        assert (outcome.status, "14 keys" in outcome.out) == (1, True), outcome
        fulls = (await ahead.info("stats"))["sync_full"]
        outcome = await operate(cluster, "digest", "resync", "1")
        assert outcome.out.strip() == f"{replica} holds a new copy", outcome
        assert (await ahead.info("stats"))["sync_full"] == fulls + 1
        found = await checked(cluster)
        assert (found["stage"], found["differences"]) == ("same", 0)
        events = (await cluster.api.events(limit=1000))["events"]
        told = [
            (event["what"], "operator" if "(by operator)" in event["who"] else event["who"].split()[0], event["text"])
            for event in events
        ]
        told = [one for one in told if one[0].startswith(("digest", "resync", "replica_resynced"))]
        wiped = [what for what, _, _ in told].index("resync_begun")
        assert [one[:2] for one in told[wiped - 2 : wiped + 2]] == [
            ("digest_begun", "operator"),
            ("digest_ended", "topom"),
            ("resync_begun", "operator"),
            ("replica_resynced", "topom"),
        ]
        assert "14 of " in told[wiped - 1][2]
        assert told[wiped][2].startswith(f"{replica} of group 1: to forget what they have")

        await cluster.api.promote(1, replica)
        groups = await cluster.api.groups()
        assert groups[0]["servers"][0]["address"] == replica
