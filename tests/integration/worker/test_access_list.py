"""ACL: what the proxy says of its users."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_users import connected, redis_with, take_users

StartWorker = Callable[..., Awaitable[WorkerHarness]]

TENANT = "%R~shared:* ~app:* resetchannels &app:* -@all +@string -set"
DIGEST = hashlib.sha256(b"t").hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_users_are_told_as_redis_tells_them(start_worker: StartWorker, tmp_path: Path, protocol: int) -> None:
    users = [
        {"name": "boss", "password": "b"},
        {"name": "tenant", "password_sha256": DIGEST, "rules": TENANT},
        {"name": "default", "no_password": True},
        {"name": "nothing", "password": "n", "rules": ""},
    ]
    worker = await start_worker(servers=1, users=users)
    rules = ("boss on >b ~* &* +@all", f"tenant on >t {TENANT}", "nothing on >n")
    async with (
        redis_with(tmp_path, *rules) as server,
        connected(worker.settings.listen) as proxied,
        connected(server) as direct,
    ):
        for request in (
            f"HELLO {protocol}",
            *("ACL WHOAMI", "ACL USERS", "ACL LIST", "ACL GETUSER tenant", "ACL GETUSER boss", "ACL GETUSER default"),
            *("ACL GETUSER nothing", "ACL GETUSER nobody", "ACL CAT", "ACL CAT nosuch", "ACL CAT a b"),
            *("ACL DRYRUN tenant GET app:1", "ACL DRYRUN tenant get other", "ACL DRYRUN tenant SET app:1 x"),
            *("ACL DRYRUN nobody GET x", "ACL DRYRUN boss nosuch x", "ACL DRYRUN boss GET", "ACL DRYRUN boss CONFIG"),
            *("ACL DRYRUN boss config|get x", "ACL DRYRUN boss config nosuch x", "AUTH boss b", "ACL WHOAMI"),
            *(
                "AUTH tenant t",
                "ACL WHOAMI",
                "ACL LIST",
                "ACL USERS",
                "ACL CAT",
                "ACL DRYRUN boss GET x",
                "ACL GETUSER x",
            ),
        ):
            theirs, ours = await direct(request), await proxied(request)
            if request.startswith("HELLO"):
                theirs, ours = theirs[:4], ours[:4]
            assert ours == theirs, request


async def test_categories_have_the_commands_that_they_have_in_redis(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(servers=1)
    async with redis_with(tmp_path) as server, connected(worker.settings.listen) as ours, connected(server) as theirs:
        for category in (await theirs("ACL CAT")).split(b"\r\n")[2::2]:
            request = f"ACL CAT {category.decode()}"
            lacking = set((await theirs(request)).split(b"\r\n")[2::2]) - set(
                (await ours(request)).split(b"\r\n")[2::2]
            )
            assert not lacking, request


async def test_other_limits_are_told_too_and_changes_are_seen(start_worker: StartWorker) -> None:
    users = [
        {"name": "boss", "password": "b"},
        {"name": "reader", "password": "r", "read_only": True},
        {"name": "tenant", "password": "t", "databases": [3, 1], "addresses": ["127.0.0.0/8"], "connections": 2},
    ]
    worker = await start_worker(servers=1, users=users)
    async with connected(worker.settings.listen, "boss b") as boss:
        lines = (await boss("ACL LIST")).decode().split("\r\n")[2::2]
        assert [line.split()[1] for line in lines] == ["boss", "reader", "tenant"]
        assert lines[1].endswith(
            "~* &* +@all -@write -eval -evalsha -fcall -publish -script|flush -spublish"
            " -@admin +lastsave +role -function|kill -script|kill"
        )
        assert lines[2].endswith("-swapdb resetdbs db=1,3")
        tenant = await boss("ACL GETUSER tenant")
        assert (
            b"databases\r\n*2\r\n:1\r\n:3\r\n$9\r\naddresses\r\n*1\r\n$11\r\n127.0.0.0/8\r\n$11\r\nconnections\r\n:2"
            in tenant
        )
        await take_users(worker, [users[0], {"name": "other", "password": "o", "rules": "+get ~x"}])
        assert await boss("ACL USERS") == b"*2\r\n$4\r\nboss\r\n$5\r\nother\r\n"
        for word in ("SETUSER x", "DELUSER x", "LOAD", "SAVE"):
            refused = await boss(f"ACL {word}")
            assert refused.startswith(
                f"-ERR ACL {word.split()[0]} is refused by Slotferry: topom keeps users for all proxies".encode()
            )


async def test_a_client_reads_what_limits_a_user_beyond_redis(start_worker: StartWorker) -> None:
    users = [
        {"name": "boss", "password": "b"},
        {"name": "plain", "password": "p", "rules": "~shop:* +@read"},
        {"name": "slow", "password": "s", "sheddable": "+@slow -sort", "bytes_per_second": 9, "over_limit": "refuse"},
        {"name": "quick", "password": "q", "sheddable": True, "cached_reads": True, "requests_per_second": 7},
        {"name": "small", "password": "m", "worker_percent": 5},
    ]
    worker = await start_worker(servers=1, users=users)
    for protocol in (2, 3):
        client = redis.asyncio.Redis.from_url(
            f"redis://boss:b@{worker.settings.listen}", protocol=protocol, decode_responses=True
        )
        async with client:
            plain, slow, quick, small = [await client.acl_getuser(name) for name in ("plain", "slow", "quick", "small")]
        ours = {"sheddable", "cached_reads", "requests_per_second", "bytes_per_second", "over_limit"}
        assert ours & plain.keys() == set()
        assert (slow["sheddable"], slow["bytes_per_second"], slow["over_limit"]) == ("-@all +@slow -sort", 9, "refuse")
        assert {"cached_reads", "requests_per_second"} & slow.keys() == set()
        assert (quick["sheddable"], quick["cached_reads"], quick["requests_per_second"]) == ("+@all", "yes", 7)
        assert (quick["over_limit"], quick["flags"]) == ("delay", ["on"])
        assert "bytes_per_second" not in quick
        assert (small["worker_percent"], small["over_limit"]) == (5, "delay")
        assert "worker_percent" not in quick
