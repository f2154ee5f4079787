"""A group whose server is like Redis 3.2: served with RESP2, and its slots move to a current server.

Redis 3.2 itself is not available as a package. A current server stands for it, without the commands that came later and
that Slotferry, or a client's handshake, would use: they are renamed away.
"""

from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis

from slotferry.redis_server import start_redis
from slots import connections
from slots.reserved import FENCED, LEADER, SWEPT
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, Counting, eventually, plain_client

LATER = (
    *("ACL", "HELLO", "RESET", "UNLINK", "TOUCH", "SWAPDB", "MEMORY", "MODULE", "LOLWUT"),
    *("GETDEL", "GETEX", "COPY", "LMOVE", "LPOS", "LMPOP", "ZMPOP", "ZPOPMIN", "ZPOPMAX", "ZMSCORE", "SMISMEMBER"),
    *("EXPIRETIME", "PEXPIRETIME", "EVAL_RO", "EVALSHA_RO", "FUNCTION", "FCALL", "FCALL_RO", "SSUBSCRIBE", "SPUBLISH"),
    *("XADD", "XLEN", "XRANGE", "XREAD", "XREADGROUP", "XGROUP", "XINFO"),
)
"""Commands that Redis 3.2 does not have."""


async def renamed_away(directory: Path) -> list[str]:
    """Arguments that rename later commands away, but only commands that this server has: it refuses other names."""
    server = await start_redis("asked", directory)
    try:
        async with plain_client(server.address, decode_responses=True) as client:
            known = {str(name).upper() for name in await client.execute_command("COMMAND")}
    finally:
        await server.stop()
    assert {"HELLO", "ACL", "UNLINK"} <= known
    return [word for name in LATER if name in known for word in ("--rename-command", name, "")]


async def fill(client: Redis) -> None:
    """Keys of every type that Redis 3.2 has, small and big."""
    for number in range(300):
        await client.set(f"small:{number}", f"value {number}", ex=1000 if number % 2 else None)
    for length in (10, 3000):
        names = [f"member {number}" for number in range(length)]
        await client.rpush(f"list:{length}", *names)
        await client.sadd(f"set:{length}", *names)
        await client.zadd(f"zset:{length}", {name: place for place, name in enumerate(names)})
        await client.hset(f"hash:{length}", mapping={name: name * 3 for name in names})
        await client.set(f"string:{length}", "x" * length * 100)


async def check(client: Redis) -> None:
    """All keys of :func:`fill` are there."""
    for number in range(300):
        assert await client.get(f"small:{number}") == f"value {number}"
        assert (await client.ttl(f"small:{number}") > 0) == bool(number % 2)
    for length in (10, 3000):
        names = [f"member {number}" for number in range(length)]
        assert await client.lrange(f"list:{length}", 0, -1) == names
        assert await client.smembers(f"set:{length}") == set(names)
        assert await client.zrange(f"zset:{length}", 0, -1) == names
        assert await client.hgetall(f"hash:{length}") == {name: name * 3 for name in names}
        assert await client.get(f"string:{length}") == "x" * length * 100


async def said(cluster: Cluster) -> str | None:
    """The refusal of RESP3; None if there is none."""
    async with plain_client(cluster.proxy_addresses[0], protocol=2) as client:
        try:
            await client.execute_command("HELLO", "3")
        except redis.ResponseError as error:
            return str(error)
    return None


@pytest.mark.long
async def test_an_old_server_is_served_with_resp2_and_its_slots_move_to_a_current_one(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = await start_cluster(groups=1, redis_arguments=await renamed_away(tmp_path))
    old = cluster.groups[1][0]
    async with (
        plain_client(cluster.proxy_addresses[0], protocol=2, decode_responses=True) as client,
        plain_client(old, protocol=2) as server,
        plain_client(cluster.proxy_addresses[0], protocol=2, decode_responses=True) as transaction,
    ):
        # Served, and RESP3 refused as by such a server.
        await fill(client)
        await check(client)
        assert await transaction.pipeline().incr("{x}1").incr("{x}2").execute() == [1, 1]
        for unknown in (["HELLO", "3"], ["UNLINK", "a"], ["GETDEL", "a"]):
            # Servers before Redis 7 quote it in another way.
            with pytest.raises(redis.ResponseError, match=f"unknown command ['`]{unknown[0]}['`]"):
                await client.execute_command(*unknown)
        with pytest.raises(redis.ResponseError, match="needs Redis 6"):
            await client.execute_command("SUBSCRIBE", "news")

        # A fence holds there, too, though only the hash says so.
        before = (await client.info("slotferry"))["instance"]
        assert await connections.fence(server, [before])
        await eventually(lambda: client.info("slotferry"), lambda info: info["instance"] != before, "another identity")
        await eventually(lambda: client.get("small:1"), bool, "to be served under it")
        # topom does not wait for the former one.
        [former, _] = await cluster.api.proxies()
        await cluster.api.remove_proxy(former["id"])

        # Its slots move to a current server under traffic; then there is RESP3.
        await cluster.add_server(2, arguments=())
        await cluster.api.add_group(2, cluster.groups[2])
        async with Counting(cluster.proxy_addresses[0], protocol=2) as counting:
            await counting.progress()
            await cluster.api.move_slots("0-511", 2)
            await cluster.at_rest({1: 512, 2: 512})
            assert await said(cluster) == "unknown command 'HELLO'"
            await cluster.api.move_slots("512-1023", 2)
            await cluster.at_rest({1: 0, 2: 1024})
            await counting.progress()
        await counting.check()
        assert counting.errors == []
        await check(client)
        await eventually(
            lambda: server.keys("*"), lambda keys: set(keys) == {FENCED, LEADER, SWEPT}, "only marks to be there"
        )
        await eventually(lambda: said(cluster), lambda answer: answer is None, "RESP3 to be there")
        async with plain_client(cluster.proxy_addresses[0], protocol=3, decode_responses=True) as current:
            assert await current.hgetall("hash:10") == {f"member {n}": f"member {n}" * 3 for n in range(10)}
