"""Users: the same words as a Redis server with the same users, and limits that nothing gets around."""

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions

from proxy.engine.backend import command
from proxy.settings import ProxySettings
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from slots.messages.channel import Settings, SettingsTaken
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness, slot_of
from topom.servers.redis_servers import Fencing, RedisServers

StartWorker = Callable[..., Awaitable[WorkerHarness]]

USERS: list[dict[str, Any]] = [
    {"name": "writer", "password": "w"},
    {"name": "reader", "password_sha256": hashlib.sha256(b"r").hexdigest(), "read_only": True},
    {"name": "tenant", "password": "t", "databases": [1, 2]},
    {"name": "guest", "no_password": True},
]


class Client:
    """A bare connection, a request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __call__(self, request: str | list[str | bytes]) -> bytes:
        """The raw reply to a request, given as words or as one line."""
        words = tuple(request.split(" ")) if isinstance(request, str) else tuple(request)
        self._writer.write(command(words))
        async with asyncio.timeout(LIMIT):
            return await self._reply()

    async def _reply(self) -> bytes:
        line = await self._reader.readuntil(b"\r\n")
        size = int(line[1:]) if line[:1] in b"$=*%~>" else -1
        if line[:1] in b"$=":
            return line + (await self._reader.readexactly(size + 2) if size >= 0 else b"")
        parts = [await self._reply() for _ in range(size * 2 if line[:1] == b"%" else size)]
        return line + b"".join(parts)


@contextlib.asynccontextmanager
async def connected(address: str, login: str = "") -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    client = Client(reader, writer)
    if login:
        assert await client(f"AUTH {login}") == b"+OK\r\n"
    yield client
    writer.close()


async def same(worker: WorkerHarness, server: str, requests: list[str | list[str | bytes]]) -> None:
    """Every reply is the server's own, byte by byte."""
    async with connected(worker.settings.listen) as proxied, connected(server) as direct:
        for request in requests:
            theirs, ours = await direct(request), await proxied(request)
            if request[:5] == "HELLO" and theirs[:1] in b"*%":
                # The number of the connection is in it.
                theirs, ours = theirs.partition(b"id")[0], ours.partition(b"id")[0]
            assert ours == theirs, request


@contextlib.asynccontextmanager
async def redis_with(tmp_path: Path, *rules: str) -> AsyncIterator[str]:
    """The address of a server with users."""
    server = await start_redis("acl", tmp_path)
    async with connected(server.address) as client:
        for rule in rules:
            assert await client(["ACL", "SETUSER", *rule.split(" ")]) == b"+OK\r\n"
    try:
        yield server.address
    finally:
        await server.stop()


RULES = ("writer on >w ~* &* +@all", "reader on >r ~* &* +@all -@write", "guest on nopass ~* &* +@all")
LOGINS: list[str | list[str | bytes]] = [
    *("PING", "GET a", "AUTH x", "AUTH default", "AUTH default x", "AUTH nobody x", "AUTH writer", "AUTH writer x"),
    *("XYZ a b", "GET", "HELLO", "HELLO 2", "HELLO 3", "HELLO 4", "HELLO x", "HELLO 3 AUTH writer", "AUTH a b c"),
    *("HELLO 3 AUTH writer x", "HELLO 3 SETNAME me", "PING", "AUTH writer w", "PING", "CLIENT GETNAME"),
    *("HELLO 3 AUTH nobody x", "PING", "HELLO 3 AUTH guest w SETNAME you", "CLIENT GETNAME", "HELLO"),
    ["HELLO", "2", "AUTH", "reader", "r", "SETNAME", "a b"],
    *("SET a 1", "HELLO 2 SETNAME x AUTH nobody y", "CLIENT GETNAME", "HELLO 2 AUTH writer w FOO", "SET a 1"),
    ["AUTH", "writer", b"\xff\x00"],
    *("AUTH writer", "AUTH guest", "AUTH guest anything", "SELECT 3", "SELECT 16", "SELECT x", "RESET", "PING"),
    *("AUTH", "HELLO 3 AUTH guest x", "RESET", "HELLO 3", "QUIT"),
]


async def test_logging_in_with_users_and_no_default_user(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with redis_with(tmp_path, *RULES, "default off") as server:
        await same(worker, server, LOGINS)


async def test_logging_in_with_a_password_and_users(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1, password="secret", users=USERS)
    async with redis_with(tmp_path, *RULES, "default on resetpass >secret") as server:
        await same(worker, server, [*LOGINS[:-1], "AUTH secret", "AUTH default secret", "PING", *LOGINS])


async def test_logging_in_where_nobody_has_to(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1, users=[*USERS, {"name": "default", "no_password": True}])
    async with redis_with(tmp_path, *RULES) as server:
        await same(worker, server, LOGINS)


@pytest.mark.parametrize("protocol", ["2", "3"])
async def test_what_a_reader_may_not_do(start_worker: StartWorker, tmp_path: Path, protocol: str) -> None:
    worker = await start_worker(servers=1, users=USERS)
    requests: list[str | list[str | bytes]] = [
        f"HELLO {protocol} AUTH writer w",
        *("SET a 1", "RPUSH l 1 2", f"HELLO {protocol} AUTH reader r"),
        *("GET a", "set a 2", "SET a 2", "SET a", "GET a", "MSET a 1 b 2", "MSET {x}a 1 {x}b 2", "DEL a", "DEL a l"),
        *("MGET a l", "EXISTS a l", "TOUCH a", "UNLINK a b c", "INCR a", "LPOP l", "LRANGE l 0 -1", "XYZ"),
        *("SORT l", "SORT_RO l", "SORT l STORE m", "GETEX a", "GETDEL a", "BITFIELD a GET u8 0", "PFADD p 1"),
        *("BITFIELD_RO a GET u8 0", "COPY a b", "RENAME a b", "EXPIRE a 1", "PERSIST a", "TTL a", "TYPE a"),
        *("XADD x * a b", "XREAD COUNT 1 STREAMS x 0", "OBJECT ENCODING a", "FLUSHDB", "FLUSHALL", "PFCOUNT a"),
        *("SINTERSTORE {x}a {x}b", "ZRANGESTORE {x}a {x}b 0 1", "ZADD z 1 a", "FUNCTION FLUSH", "GEOADD g 1 1 a"),
        *("XGROUP CREATE x g 0", "XGROUP DESTROY x g", "XINFO STREAM x NO", "MEMORY USAGE nothing", "OBJECT FREQ b"),
        *("ZUNIONSTORE z 1 y", "ZUNION 1 z", "LMPOP 1 l LEFT", "XREADGROUP GROUP g c STREAMS x >", "SINTERCARD 1 a"),
        *("EVALSHA_RO 0 1 a", "EVAL_RO return(1) 1 a", "FCALL_RO f 1 a", "GEORADIUS g 1 1 1 m"),
        *("BLPOP l 1", "BLMOVE l m LEFT RIGHT 1", "SWAPDB 0 1", "PING", f"HELLO {protocol} AUTH writer w"),
        *("SET a 2", "GET a"),
    ]
    async with redis_with(tmp_path, *RULES) as server:
        # PFCOUNT of a string, and MSET, which needs no common slot, work there as here.
        await same(worker, server, requests)


async def test_a_reader_runs_no_scripts_that_may_write_and_publishes_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen, "reader r") as client:
        for request, name in (
            (["EVAL", "return redis.call('set', KEYS[1], 'x')", "1", "k"], "eval"),
            (["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", "k"], "evalsha"),
            (["FCALL", "f", "1", "k"], "fcall"),
            (["PUBLISH", "channel", "message"], "publish"),
            (["SPUBLISH", "channel", "message"], "spublish"),
            (["SCRIPT", "FLUSH"], "script|flush"),
        ):
            expected = f"-NOPERM this user has no permissions to run the '{name}' command\r\n".encode()
            assert await client(list(request)) == expected
        assert await client(["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"]) == b"$-1\r\n"
        refused = await client(["EVAL_RO", "return redis.call('set', KEYS[1], 'x')", "1", "k"])
        assert refused.startswith(b"-ERR Write commands are not allowed from read-only scripts")


NO_DATABASE = b"-NOPERM this user has no permissions to access database %d; SELECT another one\r\n"


async def test_a_tenant_stays_in_its_databases(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with worker.direct(1) as direct:
        await direct.set("secret", "0")
        await direct.set("{x}a", "0")
    async with connected(worker.settings.listen, "tenant t") as client:
        # It begins in a database that is not its own.
        for request in (
            *("GET secret", "SET secret 1", "MGET secret b", "DEL secret", "EXISTS secret", "SCAN 0", "KEYS *"),
            *("DBSIZE", "RANDOMKEY", "FLUSHDB", "WATCH secret", "SORT secret", "OBJECT ENCODING secret"),
            *("BLPOP secret 1", "XREAD STREAMS secret 0", "ZUNION 1 secret", "MSET a 1 b 2", "TYPE secret"),
        ):
            assert await client(request) == NO_DATABASE % 0, request
        assert await client("PING") == b"+PONG\r\n"
        assert await client("SELECT 0") == NO_DATABASE % 0
        assert await client("SELECT 3") == NO_DATABASE % 3
        assert await client("SELECT 99") == b"-ERR DB index is out of range\r\n"
        assert await client("SELECT 2") == b"+OK\r\n"
        assert await client("SET mine 1") == b"+OK\r\n"
        assert await client("GET mine") == b"$1\r\n1\r\n"
        assert await client("GET secret") == b"$-1\r\n"
        # A database that is not its own changes nothing about where it is.
        assert await client("SELECT 0") == NO_DATABASE % 0
        assert await client("GET mine") == b"$1\r\n1\r\n"
        # Ways out of a database.
        for request, name in (
            (["EVAL", "redis.call('select', 0) return redis.call('get', 'secret')", "0"], "eval"),
            (["EVAL_RO", "redis.call('select', 0) return redis.call('get', 'secret')", "0"], "eval_ro"),
            (["FCALL", "f", "0"], "fcall"),
            (["SCRIPT", "LOAD", "return 1"], "script|load"),
            (["FUNCTION", "LIST"], "function|list"),
            (["FLUSHALL"], "flushall"),
            (["SWAPDB", "0", "2"], "swapdb"),
        ):
            expected = f"-NOPERM this user has no permissions to run the '{name}' command\r\n".encode()
            assert await client(list(request)) == expected
        for request in (["COPY", "mine", "mine", "DB", "0"], ["MOVE", "mine", "0"]):
            assert await client(list(request)) == NO_DATABASE % 0
        assert await client("AUTH writer w") == b"+OK\r\n"
        assert await client("SELECT 0") == b"+OK\r\n"
        assert await client("GET secret") == b"$1\r\n0\r\n"
        # Back: the limits come with the user, at once.
        assert await client("AUTH tenant t") == b"+OK\r\n"
        assert await client("GET secret") == NO_DATABASE % 0
        assert await client("RESET") == b"+RESET\r\n"
        assert await client("GET secret") == b"-NOAUTH Authentication required.\r\n"
    async with worker.direct(1, db=2) as direct:
        assert await direct.keys() == [b"mine"]


async def test_limits_hold_within_a_pipeline(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    reader, writer = await worker.connect()
    sent = [
        *(("AUTH", "tenant", "t"), ("SET", "k", "1"), ("SELECT", "1"), ("SET", "k", "1"), ("SELECT", "0")),
        *(("GET", "k"), ("AUTH", "reader", "r"), ("SET", "k", "2"), ("GET", "k"), ("SELECT", "0"), ("GET", "k")),
    ]
    writer.write(b"".join(command(words) for words in sent))
    expected = [
        *(b"+OK", (NO_DATABASE % 0).strip(), b"+OK", b"+OK", (NO_DATABASE % 0).strip(), b"$1", b"1", b"+OK"),
        *(b"-NOPERM this user has no permissions to run the 'set' command", b"$1", b"1", b"+OK", b"$-1"),
    ]
    async with asyncio.timeout(LIMIT):
        assert [(await reader.readline()).rstrip(b"\r\n") for _ in expected] == expected
    writer.close()


async def test_anonymous_clients_with_limits(start_worker: StartWorker) -> None:
    users = [{"name": "default", "no_password": True, "read_only": True, "databases": [0]}, USERS[0]]
    worker = await start_worker(servers=1, users=users)
    async with connected(worker.settings.listen) as client:
        assert await client("GET k") == b"$-1\r\n"
        assert await client("SET k 1") == b"-NOPERM this user has no permissions to run the 'set' command\r\n"
        assert await client("SELECT 1") == NO_DATABASE % 1
        assert await client("AUTH writer w") == b"+OK\r\n"
        assert await client("SET k 1") == b"+OK\r\n"
        assert await client("SELECT 1") == b"+OK\r\n"
        assert await client("RESET") == b"+RESET\r\n"
        assert await client("SET k 1") == b"-NOPERM this user has no permissions to run the 'set' command\r\n"
        assert await client("GET k") == b"$1\r\n1\r\n"


async def test_who_waits_to_log_in_need_not_any_more_once_nobody_has_to(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    open_to_all = {"name": "default", "no_password": True, "databases": [1]}
    async with connected(worker.settings.listen) as client:
        assert await client("GET k") == b"-NOAUTH Authentication required.\r\n"
        await take_users(worker, [*USERS, open_to_all])
        assert await client("GET k") == NO_DATABASE % 0
        assert await client("SELECT 1") == b"+OK\r\n"
        assert await client("GET k") == b"$-1\r\n"
        await take_users(worker, USERS)
        with pytest.raises(asyncio.IncompleteReadError):
            await client("GET k")


async def take_users(worker: WorkerHarness, users: list[dict[str, Any]]) -> None:
    """Have it use these users from now on."""
    changed = ProxySettings(**{**worker.settings.model_dump(), "users": users})
    worker.channel.send(Settings(number=1, settings=changed.to_wire()))
    await worker.next(lambda message: isinstance(message, SettingsTaken))


async def test_the_user_is_listed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen, "reader r") as client:
        assert b" user=reader " in await client("CLIENT INFO")
        async with connected(worker.settings.listen, "writer w") as writer:
            assert b" user=reader " in await writer("CLIENT LIST")


async def test_failed_logins_are_counted(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen) as client:
        for _ in range(3):
            await client("AUTH nobody x")
    counters = await worker.next(
        lambda message: message.type == "counters" and message.counters["authentications_failed"] == 3
    )
    assert counters.counters["clients"] <= 1


async def test_servers_with_a_user_of_few_rights(start_worker: StartWorker) -> None:
    """The one that docs/server-access.md recommends."""
    text = (Path(__file__).parents[3] / "docs" / "server-access.md").read_text()
    (rule,) = [line for line in text.splitlines() if line.startswith("user slotferry on") and "-@dangerous" in line]
    worker = await start_worker(
        extra=["--user", *rule.split(" ")[1:], "--requirepass", "other"],
        redis_user="slotferry",
        redis_password="inner",
        backend_reply_seconds=1.0,
        lock_hold_seconds=0.2,
    )
    async with worker.client() as client:
        await client.set("k", "v")
        assert await client.lastsave()
        assert await client.sort("{k}list", by="{k}weight_*", get="{k}object_*") == []
        assert not await client.move("none", 1)
        # What is lost is ended.
        os.kill(worker.servers[0].pid, signal.SIGSTOP)
        try:
            with pytest.raises(redis.exceptions.ResponseError, match="did not reply within"):
                await client.set("k", "v")
        finally:
            os.kill(worker.servers[0].pid, signal.SIGCONT)
        key_slot = slot_of("k")
        async with asyncio.timeout(LIMIT):
            while True:
                epoch = worker.push([Slot(key_slot, 1, Action(SlotState.PREPARED, 2))])
                if (await worker.verdict(epoch)).type == "ack":
                    break
        await worker.act([key_slot], SlotState.MIGRATING)
        assert await client.get("k") == b"v"
        servers = RedisServers(ServerAccess("inner", "slotferry"), 5.0)
        assert not problems(await servers.fence({server: [INSTANCE] for server in worker.addresses}))
        await servers.close()
        # The connection that there was is ended; the next one sees the fence.
        reason = ""
        async with asyncio.timeout(LIMIT):
            while "fenced" not in reason:
                with pytest.raises(redis.exceptions.ResponseError) as raised:
                    await client.get("k")
                reason = str(raised.value)
    assert (await worker.next(lambda message: message.type == "fenced")).instance == INSTANCE


def problems(outcomes: Mapping[str, Fencing]) -> list[str]:
    return [outcome.refusal for outcome in outcomes.values() if outcome.refusal is not None]


async def test_servers_with_a_user(start_worker: StartWorker) -> None:
    rule = "user proxy on >inner ~* &* +@all"
    worker = await start_worker(
        extra=["--requirepass", "other", "--user", *rule.split(" ")[1:]], redis_user="proxy", redis_password="inner"
    )
    for protocol in (2, 3):
        async with worker.client(protocol=protocol) as client:
            assert await client.set("k", "v")
            assert await client.get("k") == b"v"
    async with worker.direct(1, password="other") as direct:
        users = {entry["user"] for entry in await direct.client_list() if entry["name"].startswith("slotferry.")}
        assert users == {"proxy"}


@pytest.mark.parametrize("user", ["", "slotferry"])
async def test_servers_without_hello(start_worker: StartWorker, user: str) -> None:
    """Without HELLO, the error would contain the command that logs in, and so the password."""
    acl = ("--user", "slotferry", "on", ">inner", "~*", "&*", "+@all", "--requirepass", "inner")
    worker = await start_worker(
        servers=1, extra=[*acl, "--rename-command", "HELLO", ""], redis_user=user, redis_password="inner"
    )
    servers = RedisServers(ServerAccess("inner", user), LIMIT)
    assert await servers.unreachable(worker.addresses) == {}
    assert not problems(await servers.fence({server: ["0" * 32] for server in worker.addresses}))
    assert [status.role for status in (await servers.status(worker.addresses)).values()] == ["master"]
    await servers.close()
    async with connected(worker.settings.listen) as client:
        assert await client("SET k v") == b"+OK\r\n"


@pytest.mark.parametrize("renamed", ["HELLO", "AUTH"])
@pytest.mark.parametrize("user", ["", "slotferry"])
async def test_no_client_is_told_the_servers_password(start_worker: StartWorker, renamed: str, user: str) -> None:
    """A server that does not know what it is greeted with repeats it in its error."""
    acl = ("--user", "slotferry", "on", ">inner", "~*", "&*", "+@all", "--requirepass", "inner")
    worker = await start_worker(
        servers=1, extra=[*acl, "--rename-command", renamed, ""], redis_user=user, redis_password="inner"
    )
    hellos, said = [], []
    for protocol in (2, 3):
        async with connected(worker.settings.listen) as client:
            hellos.append(await client(f"HELLO {protocol}"))
            said.append(await client("GET k"))
    # Login is by AUTH in RESP2, by HELLO in RESP3, which clients do not get where a server does not know it.
    assert [reply.startswith(b"-ERR server ") for reply in said] == [renamed == "AUTH", False]
    assert [reply == b"-ERR unknown command 'HELLO'\r\n" for reply in hellos] == [False, renamed == "HELLO"]
    assert b"inner" not in b"".join(hellos + said)
    assert "inner" not in (worker.directory / "worker.log").read_text()


ELSEWHERE = "redis.call('SELECT', 5) redis.call('SET', KEYS[1], 'x') return redis.call('GET', KEYS[1])"
LIBRARY = f"#!lua name=lib\nredis.register_function('f', function(KEYS) {ELSEWHERE} end)"


async def test_a_user_of_some_databases_runs_no_code_that_others_have_run(start_worker: StartWorker) -> None:
    """The worker knows then that it is at the server. But a script may SELECT any database."""
    worker = await start_worker(servers=1, users=USERS)
    digest = hashlib.sha1(ELSEWHERE.encode()).hexdigest()
    code: list[list[str | bytes]] = [
        ["EVAL", ELSEWHERE, "1", "k"],
        ["EVALSHA", digest, "1", "k"],
        ["FCALL", "f", "1", "k"],
    ]
    async with connected(worker.settings.listen) as tenant, connected(worker.settings.listen) as writer:
        assert await tenant("AUTH tenant t") == await tenant("SELECT 1") == b"+OK\r\n"
        assert await writer("AUTH writer w") == b"+OK\r\n"
        assert (await writer(["FUNCTION", "LOAD", LIBRARY])).startswith(b"$")
        for request in code:
            for _ in range(3):
                assert await writer(request) == b"$1\r\nx\r\n"
            assert (await tenant(request)).startswith(b"-NOPERM ")
        # When: the same connection is another user's. Then: that user's rights count.
        assert await tenant("AUTH writer w") == b"+OK\r\n"
        assert [await tenant(request) for request in code] == [b"$1\r\nx\r\n"] * 3
        assert await tenant("AUTH tenant t") == b"+OK\r\n"
        for request in code:
            assert (await tenant(request)).startswith(b"-NOPERM ")
