"""Users with rules run those scripts whose text shows that they stay within the user's rights."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.commands.scripting.knownscripts import digest
from proxy.commands.scripting.scriptcalls import NOT_SHOWN
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_users import connected

StartWorker = Callable[..., Awaitable[WorkerHarness]]

USERS: list[dict[str, Any]] = [
    {"name": "tenant", "password": "t", "rules": "~app:* %R~shared:* &app:* +@all -@dangerous"},
    {"name": "listener", "password": "l", "rules": "~* &* +@all -@dangerous"},
    {"name": "boss", "password": "b"},
]
SETS = "return redis.call('set', KEYS[1], ARGV[1])"
GETS = "return redis.call('get', KEYS[1])"
NO_KEY = b"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"
NO_SCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


async def test_scripts_that_keep_to_the_users_keys(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen, "tenant t") as client:
        assert await client(["EVAL", SETS, "1", "app:a", "1"]) == b"+OK\r\n"
        assert await client(["EVALSHA", digest(SETS.encode()), "1", "app:b", "2"]) == b"+OK\r\n"
        assert await client(["EVAL_RO", GETS, "1", "app:b"]) == b"$1\r\n2\r\n"
        assert await client(["EVAL_RO", GETS, "1", "shared:b"]) == b"$-1\r\n"
        for request in (
            ["EVAL", SETS, "1", "other", "1"],
            ["EVAL", GETS, "1", "shared:b"],  # Redis takes it for a script that writes
            ["EVALSHA", digest(SETS.encode()), "1", "other", "1"],
            ["EVAL", SETS, "2", "app:a", "other", "1"],
        ):
            assert await client(list(request)) == NO_KEY, request
    async with worker.direct(1) as direct:
        assert sorted(await direct.keys()) == [b"app:a", b"app:b"]


@pytest.mark.parametrize(
    ("script", "refusal"),
    [
        ("return redis.call('set', 'other', 1)", NOT_SHOWN),
        ("return redis.call('set', KEYS[1] .. 'x', 1)", NOT_SHOWN),
        ("local c = 'set' return redis.call(c, KEYS[1], 1)", NOT_SHOWN),
        ("return redis.call('flushall')", NOT_SHOWN),
        ("return redis.call('keys', '*')", NOT_SHOWN),
        ("return redis.call('sort', KEYS[1], 'get', '*')", NOT_SHOWN),
        ("return redis.call('select', 1)", NOT_SHOWN),
        ("return loadstring('return 1')()", NOT_SHOWN),
        ("-- " + "x" * 10_000, NOT_SHOWN),
        (
            "return redis.call('restore', KEYS[1], 0, ARGV[1])",
            b"-NOPERM the script calls 'restore', which this user may not\r\n",
        ),
        ("redis.call('publish', 'other', 'x')", b"-NOPERM the script calls 'publish', which this user may not\r\n"),
    ],
)
async def test_other_scripts_are_refused(start_worker: StartWorker, script: str, refusal: bytes) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with (
        connected(worker.settings.listen, "boss b") as boss,
        connected(worker.settings.listen, "tenant t") as client,
    ):
        assert await client(["EVAL", script, "1", "app:a"]) == refusal
        name = digest(script.encode())
        await boss(["SCRIPT", "LOAD", script])
        assert await client(["EVALSHA", name, "1", "app:a"]) == refusal
        await client("MULTI")
        assert await client(["EVALSHA", name, "1", "app:a"]) == refusal
        assert (await client("EXEC")).startswith(b"-EXECABORT")
    async with worker.direct(1) as direct:
        assert await direct.keys() == []


async def test_a_script_that_only_the_servers_know_has_to_be_shown(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with worker.direct(1) as direct:
        name = await direct.script_load("return redis.call('set', 'other', 1)")
    async with connected(worker.settings.listen, "tenant t") as client:
        assert await client(["EVALSHA", name, "1", "app:a"]) == NO_SCRIPT
        assert await client(["EVALSHA", "short", "1", "app:a"]) == NO_SCRIPT


async def test_a_script_that_was_not_shown_is_said_not_to_be_there(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    name = digest(SETS.encode())
    async with worker.direct(1) as direct:
        await direct.script_load(SETS)
    async with (
        connected(worker.settings.listen, "boss b") as boss,
        connected(worker.settings.listen, "tenant t") as client,
    ):
        assert await boss(["SCRIPT", "EXISTS", name]) == b"*1\r\n:1\r\n"
        # Clients load in advance what is not there, as for EVALSHA within MULTI.
        assert await client(["SCRIPT", "EXISTS", name]) == b"*1\r\n:0\r\n"
        await client(["SCRIPT", "LOAD", SETS])
        assert await client(["SCRIPT", "EXISTS", name]) == b"*1\r\n:1\r\n"
        assert await client(["EVALSHA", name, "1", "app:a", "1"]) == b"+OK\r\n"


async def test_scripts_in_a_transaction(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen, "tenant t") as client:
        await client("MULTI")
        assert await client(["EVAL", SETS, "1", "app:a", "1"]) == b"+QUEUED\r\n"
        assert await client(["EVALSHA", digest(SETS.encode()), "1", "app:a", "2"]) == NO_SCRIPT, "nobody has run it yet"
        await client("DISCARD")
        await client(["SCRIPT", "LOAD", SETS])
        await client("MULTI")
        assert await client(["EVALSHA", digest(SETS.encode()), "1", "app:a", "2"]) == b"+QUEUED\r\n"
        assert await client("EXEC") == b"*1\r\n+OK\r\n"


async def test_what_others_have_run_is_looked_at_for_users_with_all_keys_too(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    script = "return redis.call('keys', '*')"
    name = digest(script.encode())
    async with (
        connected(worker.settings.listen, "boss b") as boss,
        connected(worker.settings.listen, "listener l") as client,
    ):
        for _ in range(3):
            # The engine knows now that the server has it.
            assert await boss(["EVAL", script, "1", "a"]) == await boss(["EVALSHA", name, "1", "a"]) == b"*0\r\n"
        assert await client(["EVAL", script, "1", "a"]) == NOT_SHOWN
        assert await client(["EVALSHA", name, "1", "a"]) == NOT_SHOWN
        assert await client(["EVAL_RO", script, "1", "a"]) == NOT_SHOWN


async def test_functions_are_refused_and_channels_may_be_all(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with connected(worker.settings.listen, "listener l") as client:
        for name in ("fcall", "fcall_ro"):
            refused = f"-NOPERM this user has no permissions to run the '{name}' command\r\n".encode()
            assert await client([name, "f", "1", "app:a"]) == refused
        # Others would call what this user has put in place of their library.
        library = "#!lua name=lib\nredis.register_function('f', function() end)"
        for words in (["LOAD", "REPLACE", library], ["DELETE", "lib"], ["FLUSH"], ["RESTORE", "x"]):
            refused = (
                f"-NOPERM this user has no permissions to run the 'function|{words[0].lower()}' command\r\n".encode()
            )
            assert await client(["FUNCTION", *words]) == refused
        assert await client(["EVAL", "return redis.call('publish', 'any', 'x')", "0"]) == b":0\r\n"
    async with connected(worker.settings.listen, "boss b") as boss:
        assert await boss(["EVAL", "return redis.call('set', 'other', 1)", "1", "other"]) == b"+OK\r\n"
