"""redis-py, blocking: what its users do works through the proxy as it does on one server."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.exceptions

from slotferry.local import LocalCluster

Address = tuple[str, int]


def test_strings(client: redis.Redis) -> None:
    assert client.set("s", b"\x00\r\n\xff")
    assert client.get("s") == b"\x00\r\n\xff"
    assert client.set("s", "x", nx=True) is None
    assert client.set("s", "y", get=True) == b"\x00\r\n\xff"
    assert client.getset("s", "z") == b"y"
    assert client.append("s", "zz") == 3
    assert client.setrange("s", 1, "ab") == 3
    assert client.getrange("s", 0, 1) == b"za"
    assert client.getdel("s") == b"zab"
    assert client.incrbyfloat("f", 1.5) == 1.5
    assert client.setbit("bits", 7, 1) == 0
    assert client.bitcount("bits") == 1
    assert client.bitfield("bits").get("u8", 0).execute() == [1]
    assert client.pfadd("hll", "a", "b", "c") == 1
    assert client.pfcount("hll") == 3


def test_expiry(client: redis.Redis) -> None:
    assert client.set("e", "1", ex=1000)
    assert 990 < client.ttl("e") <= 1000
    assert client.persist("e")
    assert client.ttl("e") == -1
    assert client.pexpire("e", 500_000)
    assert client.getex("e", ex=10) == b"1"
    assert 0 < client.pttl("e") <= 10_000
    assert client.expireat("e", 1)
    assert client.exists("e") == 0


def test_collections(client: redis.Redis, at_rest: bool) -> None:
    client.delete("h", "l", "c", "z")
    assert client.hset("h", mapping={f"field:{number}": number for number in range(2000)}) == 2000
    assert client.hget("h", "field:7") == b"7"
    assert client.hmget("h", "field:1", "nothing") == [b"1", None]
    assert len(client.hgetall("h")) == 2000
    scanned = dict(client.hscan_iter("h", count=100))
    assert scanned.items() <= client.hgetall("h").items()
    if at_rest:
        assert len(scanned) == 2000
    assert client.rpush("l", *range(10)) == 10
    assert client.lrange("l", 2, 3) == [b"2", b"3"]
    assert client.lpop("l", 2) == [b"0", b"1"]
    assert client.lpos("l", "9") == 7
    assert client.sadd("c", "a", "b") == 2
    assert client.smembers("c") == {b"a", b"b"}
    assert [bool(there) for there in client.smismember("c", ["a", "x"])] == [True, False]
    assert set(client.sscan_iter("c")) == {b"a", b"b"}
    assert client.zadd("z", {"one": 1, "two": 2.5}) == 2
    assert client.zscore("z", "two") == 2.5
    assert [tuple(pair) for pair in client.zrange("z", 0, -1, withscores=True)] == [(b"one", 1.0), (b"two", 2.5)]
    assert client.zrange("z", "(1", "+inf", byscore=True) == [b"two"]
    assert client.geoadd("g", (13.361389, 38.115556, "Palermo")) in (0, 1)
    assert client.geosearch("g", longitude=13, latitude=38, radius=100, unit="km") == [b"Palermo"]


def test_streams(client: redis.Redis) -> None:
    client.delete("x")
    for number in range(1, 4):
        assert client.xadd("x", {"number": number}, id=f"{number}-0") == f"{number}-0".encode()
    assert client.xlen("x") == 3
    assert client.xgroup_create("x", "group", id="0")
    streams = client.xreadgroup("group", "consumer", {"x": ">"}, count=2)
    entries = streams[b"x"][0] if isinstance(streams, dict) else streams[0][1]
    assert [entry[0] for entry in entries] == [b"1-0", b"2-0"]
    assert client.xack("x", "group", "1-0") == 1
    assert client.xpending("x", "group")["pending"] == 1
    assert client.xinfo_stream("x")["length"] == 3
    with pytest.raises(redis.exceptions.ResponseError, match="BUSYGROUP"):
        client.xgroup_create("x", "group", id="0")


def test_several_keys_split_over_slots(client: redis.Redis) -> None:
    keys = [f"split:{number}" for number in range(300)]
    assert client.mset({key: key for key in keys})
    assert client.mget([*keys, "nothing"]) == [*(key.encode() for key in keys), None]
    assert client.exists(*keys, keys[0], "nothing") == 301
    assert client.touch(*keys) == 300
    assert client.unlink(*keys[:100]) == 100
    assert client.delete(*keys) == 200


def test_several_keys_of_one_slot(client: redis.Redis) -> None:
    client.delete("{tag}a", "{tag}b", "{tag}c", "{tag}d")
    client.set("{tag}a", "1")
    assert client.rename("{tag}a", "{tag}b")
    assert client.copy("{tag}b", "{tag}a")
    assert client.sadd("{tag}c", "m", "n") == 2
    assert client.smove("{tag}c", "{tag}d", "n")
    assert client.sunion("{tag}c", "{tag}d") == {b"m", b"n"}
    assert client.eval("return redis.call('GET', KEYS[1]) .. ARGV[1]", 2, "{tag}a", "{tag}b", "!") == b"1!"
    assert client.sort("{tag}c", alpha=True) == [b"m"]
    payload = client.dump("{tag}a")
    assert client.restore("{tag}a", 0, payload, replace=True)
    assert client.object("encoding", "{tag}a") == b"int"
    assert client.type("{tag}c") == b"set"
    with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
        client.rename("a", "b")


def test_a_pipeline(client: redis.Redis) -> None:
    client.delete(*(f"p:{number}" for number in range(1000)))
    with client.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.incr(f"p:{number}").expire(f"p:{number}", 100).mget(f"p:{number}", f"p:{number - 1}")
        replies = pipe.execute()
    assert replies[:3] == [1, True, [b"1", None]]
    assert replies[3:] == [1, True, [b"1", b"1"]] * 999
    with client.pipeline(transaction=False) as pipe:
        replies = pipe.set("p:s", "text").incr("p:s").get("p:s").execute(raise_on_error=False)
    assert isinstance(replies[1], redis.exceptions.ResponseError)
    assert [replies[0], replies[2]] == [True, b"text"]


def test_errors_are_those_of_redis_and_the_connection_goes_on(client: redis.Redis) -> None:
    client.set("{tag}string", "text")
    # One connection, so that it is the same one that goes on.
    with client.client() as single:
        for said, command in {
            "WRONGTYPE Operation against a key holding the wrong kind of value": ("LPUSH", "{tag}string", "x"),
            "value is not an integer or out of range": ("INCR", "{tag}string"),
            "wrong number of arguments for 'get' command": ("GET",),
            "unknown command 'NOSUCH', with args beginning with: 'x' ": ("NOSUCH", "x"),
            "unknown subcommand 'NOSUCH'. Try OBJECT HELP.": ("OBJECT", "NOSUCH", "x"),
            "syntax error": ("SET", "{tag}string", "x", "SOON"),
            "no such key": ("RENAME", "{tag}missing", "{tag}other"),
            "EXEC without MULTI": ("EXEC",),
            "timeout is negative": ("BLPOP", "{tag}list", "-1"),
            "invalid cursor": ("SCAN", "no cursor"),
            "No matching script.": ("EVALSHA", "f" * 40, "1", "{tag}string"),
            "This instance has cluster support disabled": ("CLUSTER", "INFO"),
        }.items():
            with pytest.raises(redis.exceptions.ResponseError) as caught:
                single.execute_command(*command)
            assert str(caught.value).startswith(said), command
            assert single.set("after", said)
            assert single.get("after") == said.encode()


def test_a_value_of_sixteen_megabytes(client: redis.Redis) -> None:
    value = bytes(range(256)) * (1 << 16)
    assert client.set("large", value)
    assert client.strlen("large") == len(value)
    assert client.get("large") == value
    assert client.delete("large") == 1


def test_who_a_client_is(client: redis.Redis, cluster: LocalCluster) -> None:
    with client.client() as single:
        assert single.client_getname() in (b"redis-py", "redis-py")
        info = single.client_info()
        assert (info["name"], info["lib-name"]) == ("redis-py", "redis-py")
        assert int(info["id"]) == single.client_id()
        assert single.client_id() in [int(entry["id"]) for entry in single.client_list()]
        assert single.ping()
        assert single.echo("said") == b"said"
        assert single.info()["redis_mode"] == "standalone"
        assert single.info("slotferry")["groups"] == len(cluster.groups)
        assert single.command_count() > 200
        assert single.command()["get"]["arity"] == 2
        assert single.time()[0] > 1_600_000_000


def test_every_database_is_apart(address: Address) -> None:
    host, port = address
    for database in range(16):
        with redis.Redis(host=host, port=port, db=database) as client:
            assert client.set("same name", database)
    with redis.Redis(host=host, port=port) as client, client.client() as single:
        for database in reversed(range(16)):
            assert single.select(database)
            assert single.get("same name") == str(database).encode()
    with pytest.raises(redis.exceptions.ResponseError, match="DB index is out of range"):
        redis.Redis(host=host, port=port, db=16).ping()


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
def test_threads_that_share_a_pool(address: Address, protocol: int) -> None:
    host, port = address
    pool = redis.BlockingConnectionPool(max_connections=6, timeout=60, host=host, port=port, protocol=protocol)
    client = redis.Redis(connection_pool=pool, decode_responses=True)
    shared = f"shared:{protocol}"

    def work(thread: int) -> None:
        for number in range(100):
            key = f"thread:{protocol}:{thread}:{number}"
            assert client.set(key, number)
            client.incr(shared)
            with client.pipeline(transaction=False) as pipe:
                assert pipe.get(key).incrby(key, thread).get(shared).execute()[:2] == [
                    str(number).encode(),
                    number + thread,
                ]

    with ThreadPoolExecutor(12) as threads:
        for done in [threads.submit(work, thread) for thread in range(12)]:
            done.result()
    assert client.get(shared) == b"1200"
    pool.disconnect()


def test_a_connection_that_is_looked_after(address: Address) -> None:
    host, port = address
    # Checks the connection with PING before it is used again.
    with redis.Redis(host=host, port=port, health_check_interval=1, decode_responses=True) as client:
        pool = client.connection_pool
        for _ in range(3):
            assert client.set("ü", "ä")
            assert client.get("ü") == "ä"
            connection = pool.get_connection()
            connection.next_health_check = 0
            pool.release(connection)


def test_url(address: Address) -> None:
    host, port = address
    with redis.from_url(f"redis://{host}:{port}/5?protocol=3&client_name=by-url") as client:
        assert client.client_info()["db"] == 5
