"""Cutting processes off a real server by the names of their connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

from slots import connections, reserved
from slots.replies import MOST_RUN_ID

Connect = Callable[[str], Awaitable[Redis]]


@pytest.fixture
async def connect(redis_address: str) -> AsyncIterator[Connect]:
    """Opens a connection of a given name, which does not come back by itself."""
    host, _, port = redis_address.rpartition(":")
    opened: list[Redis] = []

    async def connect(name: str) -> Redis:
        client = Redis(host=host, port=int(port), protocol=2, client_name=name, single_connection_client=True)
        opened.append(client)
        await client.initialize()
        return client

    yield connect
    for client in opened:
        await client.aclose()


async def listed(redis: Redis) -> list[dict[str, str]]:
    """The server's connections, as it describes them."""
    connection = await redis.connection_pool.get_connection()
    try:
        await connection.send_command("CLIENT", "LIST")
        text = await connection.read_response()
    finally:
        await redis.connection_pool.release(connection)
    assert isinstance(text, bytes)
    return connections.parse_client_list(text.decode())


async def names(redis: Redis) -> list[str]:
    """Names of the server's connections that have one."""
    return sorted(entry["name"] for entry in await listed(redis) if entry["name"])


async def ended(client: Redis) -> bool:
    """Whether the server has closed a connection."""
    connection = client.connection
    assert connection is not None
    try:
        await connection.send_command("PING")
        await connection.read_response()
    except ConnectionLost:
        return True
    return False


def test_names() -> None:
    assert connections.worker_prefix("ab", 3).startswith(connections.proxy_prefix("ab"))
    assert connections.migrator_prefix("ab").startswith(connections.migrator_prefix())
    # No prefix is the beginning of another one: worker 1 is not worker 10, and one instance is not another.
    assert not connections.worker_prefix("ab", 10).startswith(connections.worker_prefix("ab", 1))
    assert not connections.proxy_prefix("abc").startswith(connections.proxy_prefix("ab"))
    assert not connections.migrator_prefix("ab").startswith(connections.proxy_prefix("ab"))
    # What ends a proxy's connections is not one of them, and says which it ends.
    admin = connections.admin_name(connections.worker_prefix("ab", 3) + "7.")
    assert admin.startswith(connections.admin_name(connections.proxy_prefix("ab")))
    assert admin.startswith(connections.ADMIN)
    assert not admin.startswith(connections.proxy_prefix("ab"))


def test_a_run_id_of_odd_length_is_none() -> None:
    assert connections.run_id_in(b"$9\r\nredis_version:7\r\nrun_id:%b\r\n" % (b"a" * MOST_RUN_ID)) == "a" * MOST_RUN_ID
    assert connections.run_id_in(b"run_id:%b\r\n" % (b"a" * (MOST_RUN_ID + 1))) == ""
    assert connections.run_id_in(b"redis_version:7\r\n") == ""
    assert connections.run_id_in(b"run_id:a\x00b\r\n") == ""


def test_client_list() -> None:
    text = "id=3 addr=127.0.0.1:50188 name=a.b db=0 argv-mem=10 user=default\nid=4 addr=[::1]:1 name= cmd=a=b\n"
    first, second = connections.parse_client_list(text)
    assert (first["id"], first["name"], first["addr"]) == ("3", "a.b", "127.0.0.1:50188")
    assert (second["name"], second["cmd"]) == ("", "a=b")


async def test_connections_end_by_their_prefix(redis: Redis, connect: Connect) -> None:
    first = await connect(connections.worker_prefix("aa", 1) + "0")
    second = await connect(connections.worker_prefix("aa", 2) + "0")
    other = await connect(connections.worker_prefix("bb", 1) + "0")

    assert await connections.end_connections(redis, connections.worker_prefix("aa", 1)) == 1

    assert await ended(first)
    assert not await ended(second)
    assert not await ended(other)
    assert await names(redis) == [connections.worker_prefix("aa", 2) + "0", connections.worker_prefix("bb", 1) + "0"]


async def test_a_migrator_ends_all_but_its_own(redis: Redis, connect: Connect) -> None:
    mine = connections.migrator_prefix("new")
    client = await connect(mine + "0")
    late = await connect(connections.migrator_prefix("old") + "0")

    count = await connections.end_connections(
        client, connections.migrator_prefix(), keep=lambda name: name.startswith(mine)
    )

    assert count == 1
    assert await ended(late)
    assert await names(redis) == [mine + "0"]


async def test_commands_that_wait_at_the_server_never_run(redis: Redis, connect: Connect) -> None:
    # drained: what a lost process has sent is gone with its connection. A pause keeps it from running meanwhile.
    client = await connect(connections.proxy_prefix("aa") + "0")
    assert client.connection is not None
    await redis.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
    await client.connection.send_command("SET", "key", "late")
    async with asyncio.timeout(60):
        while all(entry["cmd"] != "set" for entry in await listed(redis)):
            await asyncio.sleep(0.01)

    assert await connections.end_connections(redis, connections.proxy_prefix("aa")) == 1
    await redis.execute_command("CLIENT", "UNPAUSE")

    assert await redis.execute_command("PING") in (b"PONG", True)
    assert await redis.execute_command("EXISTS", "key") == 0


async def test_fence(redis: Redis, connect: Connect) -> None:
    fenced = await connect(connections.worker_prefix("aa", 1) + "0")
    other = await connect(connections.worker_prefix("bb", 1) + "0")
    user = connections.fence_user("aa")
    assert user.encode() not in await redis.execute_command("ACL", "USERS")
    try:
        assert await connections.fence(redis, ["aa"]) == (await redis.info("server"))["run_id"]

        assert await ended(fenced)
        assert not await ended(other)
        # A process that comes back finds the user, which has no rights of its own.
        assert user.encode() in await redis.execute_command("ACL", "USERS")
        [line] = [line for line in await redis.execute_command("ACL", "LIST") if user.encode() in line]
        assert b" off " in line
        assert b"-@all" in line
        # A second fence of the same proxy changes nothing.
        await connections.fence(redis, ["aa"])
        assert not await ended(other)
    finally:
        await redis.execute_command("ACL", "DELUSER", user)


async def test_a_replica_that_shows_no_data_without_its_master_tells_that_it_has_a_mark(redis: Redis) -> None:
    """topom looks for marks before it makes such a replica the master."""
    await redis.config_set("replica-serve-stale-data", "no")
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        # Without a mark it cannot tell: there may be one in its data.
        with pytest.raises(ResponseError, match="MASTER"):
            await connections.is_fenced(redis, "aa")
        await connections.fence(redis, ["aa"])
        assert await connections.is_fenced(redis, "aa")
    finally:
        await redis.execute_command("REPLICAOF", "NO", "ONE")
        await redis.config_set("replica-serve-stale-data", "yes")
        await redis.execute_command("ACL", "DELUSER", connections.fence_user("aa"))


async def test_many_fences_look_for_the_oldest_marks_once_a_batch(redis: Redis) -> None:
    """bounded: at a server with many marks, each new mark needed a look at all of them, and many new marks together
    took too long."""
    old = {f"{number:032x}": number for number in range(connections.MOST_FENCED)}
    instances = [f"new{number:029x}" for number in range(150)]
    try:
        await redis.hset(reserved.FENCED, mapping={field: f"{value} by somebody" for field, value in old.items()})
        before = (await redis.info("commandstats")).get("cmdstat_hgetall", {"calls": 0})["calls"]
        await connections.fence(redis, instances)
        after = (await redis.info("commandstats"))["cmdstat_hgetall"]["calls"]
        assert after - before == 2
        kept = {name.decode() if isinstance(name, bytes) else name for name in await redis.hkeys(reserved.FENCED)}
        assert kept == {*instances, *list(old)[150:]}
    finally:
        await redis.delete(reserved.FENCED)
        await redis.execute_command("ACL", "DELUSER", *map(connections.fence_user, instances))


@pytest.mark.long
async def test_a_fence_is_in_the_data_too(redis: Redis) -> None:
    """given a server that forgets its users, or has none, the hash shows the fence; the hash keeps to its bound."""
    try:
        await connections.fence(redis, ["aa"])
        assert await redis.hexists(reserved.FENCED, "aa")
        for number in range(connections.MOST_FENCED + 5):
            await redis.hset(reserved.FENCED, f"old-{number}", str(number))
        await connections.fence(redis, ["bb"])
        assert await redis.hlen(reserved.FENCED) <= connections.MOST_FENCED + 6
        assert await redis.hexists(reserved.FENCED, "aa")
        assert await redis.hexists(reserved.FENCED, "bb")
        assert not await redis.hexists(reserved.FENCED, "old-0")
    finally:
        await redis.delete(reserved.FENCED)
        for instance in ("aa", "bb"):
            await redis.execute_command("ACL", "DELUSER", connections.fence_user(instance))


async def test_a_mark_says_who_has_fenced(redis: Redis) -> None:
    try:
        await connections.fence(redis, ["aa"], "one 1")
        await connections.fence(redis, ["bb"])
        assert await connections.fenced_by(redis, ["aa", "bb", "cc"]) == {"one 1"}
        await connections.fence(redis, ["aa"], "two")
        assert await connections.fenced_by(redis, ["aa"]) == {"two"}
    finally:
        await redis.delete(reserved.FENCED)
        for instance in ("aa", "bb"):
            await redis.execute_command("ACL", "DELUSER", connections.fence_user(instance))


async def test_marks_are_forgotten(redis: Redis) -> None:
    """Marks that are only a user, or only a field, are forgotten, too."""
    everyone = ("aa", "bb", "cc")
    users = [connections.fence_user(instance) for instance in everyone]
    try:
        assert await connections.marks_of(redis) == set()
        await connections.fence(redis, everyone)
        await redis.hdel(reserved.FENCED, "aa")
        await redis.execute_command("ACL", "DELUSER", users[1])
        assert await connections.marks_of(redis) == {*everyone}
        await connections.forget_marks(redis, ["aa", "bb", "dd"])
        assert await connections.marks_of(redis) == {"cc"}
        assert await connections.fenced_among(redis, everyone) == {"cc"}
    finally:
        await redis.delete(reserved.FENCED)
        await redis.execute_command("ACL", "DELUSER", *users)


async def test_which_proxies_are_connected(redis: Redis, connect: Connect) -> None:
    """Their number costs nothing: the server's list is searched once."""
    for name in (
        connections.worker_prefix("a" * 32, 1) + "7",
        connections.worker_prefix("a" * 32, 2) + "8",
        "slotferry.topom",
    ):
        await connect(name)
    other = await connect(connections.worker_prefix("b" * 32, 1) + "9")
    assert await connections.connected_proxies(redis) == {"a" * 32, "b" * 32}
    await other.aclose()
    async with asyncio.timeout(60):
        while await connections.connected_proxies(redis) != {"a" * 32}:
            await asyncio.sleep(0.01)
    at = redis.connection_pool.connection_kwargs
    three = Redis(host=at["host"], port=at["port"], protocol=3)
    assert await connections.connected_proxies(three) == {"a" * 32}
    await three.aclose()
