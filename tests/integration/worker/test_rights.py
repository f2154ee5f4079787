"""What users may do by rules of Redis's ACL: the same as a user with the same rules at a Redis server."""

import random
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from proxy.engine.backend import command
from slots import commands
from slots.commands import Code
from slots.keyaccess import READS, WRITES
from slots.rights import parse
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_users import Client, connected, redis_with

StartWorker = Callable[..., Awaitable[WorkerHarness]]

RULES = (
    "~app:* %R~shared:* &app:* +@read +@write -@dangerous +config|get",
    "~* &* +@all -@admin -@dangerous",
    "%R~a* %W~b* %RW~c? &news.* +@all",
    "~* +@all -@write",
    "~k[a-c]* ~\\x +@all -config -client +client|id &*",
    "-@all +get +set ~x",
    "allkeys allchannels nocommands +@fast -@string +object|encoding +object|freq +multi +exec",
    "~app:* allchannels +@all -select -@blocking",
    "%W~app:* %R~shared:* resetchannels +@all +@pubsub",
    "%R~* ~app:* +@all",
    "",
)
WORDS = (
    *("app:1", "app:{1}2", "shared:1", "a1", "b1", "c1", "cc", "ka", "kd", "x", "\\x", "other", ""),
    *("app:*", "news.1", "zz", "1", "2", "0", "-1", "GROUP", "GET", "SET", "STORE", "STREAMS", "BY", "LIMIT", "MATCH"),
    *("*", "u8", "INCRBY", "OVERFLOW", "WRAP", "NX", "COUNT", "LEFT", "ID", ">", "$"),
)
NEW = ("CLIENT|NO-TOUCH", "CLIENT|SETINFO", "CLUSTER|MYSHARDID", "WAITAOF")
"""Commands that Redis 7.0 does not have, and those of fields that expire."""
UNFIT = frozenset(
    {"AUTH", "HELLO", "QUIT", "RESET", "MONITOR", "SHUTDOWN", "SYNC", "PSYNC", "DEBUG", "FAILOVER", "SLAVEOF"}
    | {"REPLICAOF", "REPLCONF", "MULTI", "EXEC", "DISCARD", "SELECT", "SWAPDB", "FLUSHALL", "FLUSHDB", "WAIT"}
    | {"CLIENT", "ACL", "MODULE", "SAVE", "BGSAVE", "BGREWRITEAOF", "CONFIG", "MIGRATE", "KEYS", "SCRIPT", "FUNCTION"}
    | {"RESTORE", "RESTORE-ASKING", "LATENCY", "SLOWLOG", "PFSELFTEST", "PFDEBUG", "LOLWUT", "OBJECT", "CLUSTER"}
    | {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "READONLY", "READWRITE"}
)
"""They change how the connection goes on, or what others of this test do."""


def users_of(rules: Sequence[str]) -> list[dict[str, Any]]:
    return [
        *({"name": f"u{number}", "password": "p", "rules": text} for number, text in enumerate(rules)),
        {"name": "boss", "password": "b"},
    ]


def known_to_redis(name: str) -> bool:
    return name not in NEW and not ((name.startswith("H") and "EXP" in name) or name in ("HPERSIST", "HTTL", "HPTTL"))


def by_chance(chance: random.Random, count: int) -> list[list[str]]:
    """Requests of all commands of Redis 7.0, most with enough arguments."""
    rows = [row for row in commands.table().values() if known_to_redis(row.name)]
    made = []
    while len(made) < count:
        row = chance.choice(rows)
        if row.container and chance.random() < 0.9:
            continue
        named = row.name.lower().split("|")
        number = max(0, abs(row.arity) - len(named) + (chance.randrange(5) if row.arity < 0 else 0))
        made.append([*named, *chance.choices(WORDS, k=number)])
    return made


async def said(client: Client, requests: Sequence[Sequence[str | bytes]]) -> list[bytes]:
    """The replies to requests that are sent at once."""
    client._writer.write(b"".join(command(tuple(request)) for request in requests))
    return [await client._reply() for _ in requests]


def needs_proof(request: Sequence[str]) -> bool:
    """Whether it runs code, which is looked at here and which Redis looks at while it runs, or changes what others
    call."""
    if request[0].upper() == "FUNCTION":
        return request[1].upper() in ("DELETE", "FLUSH", "LOAD", "RESTORE")
    row = commands.table().get(request[0].upper())
    return row is not None and row.code in (Code.TEXT, Code.DIGEST, Code.FUNCTION)


def is_odd(request: Sequence[str]) -> bool:
    """Whether its keys cannot be told. Redis may find some of them, and refuse it for those."""
    argv = [word.encode() for word in request]
    try:
        commands.keys_of(commands.find(argv), argv)
    except (commands.CommandError, commands.KeysError):
        return True
    return False


def finds_no_key(request: Sequence[str]) -> bool:
    """Whether Redis 7.0 misses all keys: it gives up where a specification of some of them finds none, and looks for
    STREAMS from a place on."""
    name = request[0].upper()
    return (name == "PFMERGE" and len(request) == 2) or (name == "XREADGROUP" and request[1] != "GROUP")


async def test_rules_say_of_every_command_what_they_say_in_redis(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1, users=users_of(RULES))
    lines = [f"u{number} on >p {rules}".rstrip() for number, rules in enumerate(RULES)]
    chance = random.Random(102)
    async with (
        redis_with(tmp_path, *lines) as server,
        connected(worker.settings.listen, "boss b") as proxied,
        connected(server) as direct,
    ):
        refusals = 0
        for number in range(len(RULES)):
            requests = by_chance(chance, 1000)
            asked = [["ACL", "DRYRUN", f"u{number}", *request] for request in requests]
            for request, theirs, ours in zip(
                requests, await said(direct, asked), await said(proxied, asked), strict=True
            ):
                refusals += theirs[:1] == b"$"
                if is_odd(request) and ours[:5] == b"-ERR ":
                    continue
                if needs_proof(request) and ours[:1] == b"$":
                    continue
                if theirs == b"+OK\r\n" and finds_no_key(request):
                    continue
                assert ours == theirs, (RULES[number], request)
        assert refusals > 2000


async def test_requests_are_refused_as_in_redis(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1, users=users_of(RULES))
    lines = [f"u{number} on >p {rules}".rstrip() for number, rules in enumerate(RULES)]
    chance = random.Random(102)
    async with redis_with(tmp_path, *lines) as server:
        refusals = 0
        for number in range(len(RULES)):
            requests = [
                request
                for request in by_chance(chance, 900)
                if request[0].upper() not in UNFIT
                and "blocking" not in commands.table()[request[0].upper()].flags
                and not needs_proof(request)
                and not finds_no_key(request)
            ]
            async with (
                connected(worker.settings.listen, f"u{number} p") as proxied,
                connected(server, f"u{number} p") as direct,
            ):
                for request, theirs, ours in zip(
                    requests, await said(direct, requests), await said(proxied, requests), strict=True
                ):
                    if b"-NOPERM" in (theirs[:7], ours[:7]):
                        if is_odd(request) and ours[:5] == b"-ERR ":
                            continue
                        refusals += 1
                        assert ours == theirs, (RULES[number], request)
        assert refusals > 1000


async def test_patterns_are_read_as_redis_reads_them(start_worker: StartWorker, tmp_path: Path) -> None:
    chance = random.Random(102)
    letters = [b"a", b"b", b"*", b"?", b"[", b"]", b"^", b"-", b"\\", b"\xc3\xa9", b"\xc3"]
    async with redis_with(tmp_path, "u on >p +@all") as server, connected(server) as direct:
        seen = set()
        for _ in range(400):
            pattern = b"".join(chance.choices(letters[:-1], k=chance.randrange(1, 7)))
            set_up = ["ACL", "SETUSER", "u", "resetkeys", b"%RW~" + pattern]
            keys = [b"".join(chance.choices(letters, k=chance.randrange(6))) for _ in range(20)]
            answers = await said(direct, [set_up, *(["ACL", "DRYRUN", "u", "GET", key] for key in keys)])
            rights = parse(f"+@all %RW~{pattern.decode()}")
            for key, answer in zip(keys, answers[1:], strict=True):
                allowed = rights.allows_key(key, READS)
                seen.add(allowed)
                assert allowed == rights.allows_key(key, READS | WRITES) == (answer == b"+OK\r\n"), (pattern, key)
        assert seen == {True, False}


CONVERSATION: tuple[str, ...] = (
    *("SET app:a 1", "GET app:a", "GET shared:a", "SET shared:a 1", "SET app:a 2 GET", "GET other", "MGET app:a app:b"),
    *("MGET app:a other", "DEL app:b other", "MSET app:x 1 app:y 2", "MSET app:x 1 other 2", "EXISTS shared:a other"),
    *("EXISTS shared:a", "COPY shared:a app:z", "COPY app:z shared:a", "RENAME app:a other", "OBJECT ENCODING app:x"),
    *("SUBSCRIBE other", "PSUBSCRIBE app:*", "PSUBSCRIBE app:x*", "PUNSUBSCRIBE app:*", "SUBSCRIBE app:x"),
    *("UNSUBSCRIBE", "PUBLISH app:x hello", "PUBLISH other hello", "SPUBLISH other hello", "SSUBSCRIBE other"),
    *(
        "MULTI",
        "GET other",
        "EXEC",
        "MULTI",
        "SET app:m 1",
        "SET shared:m 1",
        "EXEC",
        "MULTI",
        "PUBLISH other x",
        "EXEC",
    ),
    *("MULTI", "SET app:m 1", "GET app:m", "EXEC", "MULTI", "FLUSHALL", "DISCARD", "WATCH other", "WATCH app:m"),
    *("UNWATCH", "RPUSH app:l 1", "SORT app:l", "SORT app:l BY nosort", "SORT app:l GET #", "SORT app:l BY {t}w*"),
    *("SORT app:l STORE app:s", "SORT app:l STORE other", "SORT_RO app:l", "BLPOP other 1", "BLPOP app:l 1"),
    *(
        "XADD app:s2 * a b",
        "XREAD STREAMS other 0",
        "XREAD STREAMS app:s3 0",
        "XGROUP CREATE app:s2 g 0",
        "XGROUP CREATE other g 0",
        "ZUNIONSTORE app:u 1 other",
    ),
    *(
        "ZUNIONSTORE other 1 app:u",
        "ZUNIONSTORE app:u 1 app:v",
        "LMOVE app:l other LEFT LEFT",
        "BITFIELD shared:a GET u8 0",
    ),
    *("BITFIELD shared:a SET u8 0 1", "BITFIELD shared:a", "CONFIG GET port x", "CONFIG SET a b", "FLUSHALL", "KEYS *"),
    *("XREADGROUP GROUP g c STREAMS app:s2 >", "XREADGROUP GROUP g c STREAMS app:s2 other > >", "XACK other g 1"),
    *(
        "XREADGROUP GROUP STREAMS other STREAMS app:s2 >",
        "ACL WHOAMI",
        "ACL LIST",
        "DBSIZE",
        "RANDOMKEY",
        "SELECT 1",
        "PING",
        "CLIENT LIST",
        "GETEX other",
    ),
)


async def test_a_conversation_of_a_tenant(start_worker: StartWorker, tmp_path: Path) -> None:
    rules = "~app:* %R~shared:* &app:* +@all -@dangerous +sort +sort_ro"
    worker = await start_worker(servers=1, users=users_of([rules]))
    async with redis_with(tmp_path, f"u0 on >p {rules}") as server:
        for protocol in (2, 3):
            # All keys have one slot.
            tagged = [
                one if "SUBSCRIBE" in one else re.sub("(app:|shared:|other)", r"\1{t}", one) for one in CONVERSATION
            ]
            requests = [f"HELLO {protocol} AUTH u0 p", *tagged]
            async with connected(worker.settings.listen) as proxied, connected(server) as direct:
                for request in requests:
                    theirs, ours = await direct(request), await proxied(request)
                    if request.startswith(("HELLO", "XADD", "XREADGROUP", "RANDOMKEY", "CONFIG GET")):
                        theirs, ours = theirs[:1], ours[:1]
                    assert ours == theirs, request
            async with worker.direct(1) as cleared:
                await cleared.flushall()
            async with connected(server) as cleared_there:
                await cleared_there("FLUSHALL")
