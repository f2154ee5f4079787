"""Users of clients that topom keeps: an operator changes them once, and all workers of all proxies follow at once."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, ResponseError

from tests.integration.reloading.processes import LIMIT_SECONDS, OLD, OWN, File, client_of, events, filed_topom
from tests.integration.reloading.proxies import NOW, Proxy
from tests.integration.topom_process import HandProxy, TopomProcess, address_of, redis_server

FIRST, SECOND = "the-first-password-of-ada", "the-second-password-of-ada"
DIGESTS = [hashlib.sha256(password.encode()).hexdigest() for password in (FIRST, SECOND)]
VIEWER = "viewer:eve:the-secret-of-eve-the-viewer"


@pytest.fixture
async def proxies(tmp_path: Path) -> AsyncIterator[list[Proxy]]:
    """Two of them with two workers each, by their id. Neither has users of its own."""
    file = File(tmp_path / "topom.toml", token=OWN, proxy_lease_seconds=60.0)
    file.write(tokens=[NOW, VIEWER])
    with redis_server(tmp_path / "1") as server:
        async with filed_topom(tmp_path / "data", file) as topom, client_of(topom) as asked, AsyncExitStack() as ending:
            await asked.post("/api/v1/groups", json={"id": 1, "servers": [address_of(server)]})
            await asked.post("/api/v1/slots/assign", json={"slots": "0-15", "group_id": 1})
            found = []
            for name in ("one", "two"):
                proxy = Proxy(tmp_path / name, topom)
                proxy.file.write(table_file=str(tmp_path / name / "table"))
                proxy.process.start()
                ending.push_async_callback(proxy.process.stop)
                await ready(proxy)
                found.append(proxy)
            yield found
            paths = ("users", "users/ada", "users/default", "events", "status", "proxies", "doctor", "settings")
            told = [(await asked.get(f"/api/v1/{path}")).text for path in paths]
            told.append((await asked.get("/metrics")).text)
            assert not any(secret in one for secret in (FIRST, SECOND, *DIGESTS) for one in told)
    for said in (topom.log(), *(proxy.process.log.read_text() for proxy in found)):
        assert not any(secret in said for secret in (OWN, FIRST, SECOND, *DIGESTS))
        assert "Traceback" not in said


async def ready(proxy: Proxy, times: int = 1) -> None:
    await proxy.until(lambda: len(proxy.said("proxy_ready")) >= times)


async def user(topom: TopomProcess, *words: str, given: str = "", token: str = OWN) -> tuple[int | None, Any]:
    """Run ``slotferry user``; the exit status, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slotferry", "user", *words, "--output", "json", "--topom", topom.url),
        env={**os.environ, "SLOTFERRY_TOKEN": token},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        said, problem = await process.communicate(given.encode())
    return process.returncode, json.loads(said) if said else problem.decode()


class Clients:
    """Makes clients that hold one connection each, and closes them in the end."""

    def __init__(self) -> None:
        self._made: list[redis.asyncio.Redis] = []
        self._ids: dict[redis.asyncio.Redis, int] = {}

    async def at_each_worker(self, proxies: list[Proxy], **login: Any) -> list[redis.asyncio.Redis]:
        found = [client for proxy in proxies for client in (await proxy.each_worker(**login)).values()]
        self._made += found
        self._ids |= {client: await client.client_id() for client in found}
        return found

    async def goes_on(self, client: redis.asyncio.Redis) -> bool:
        """Whether its connection is still the one with which it began."""
        return bool(await client.client_id() == self._ids[client])

    async def close(self) -> None:
        for client in self._made:
            await client.aclose()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    await made.close()


async def refused_everywhere(proxies: list[Proxy], **login: Any) -> bool:
    """Whether no new client gets in by this."""
    for proxy in proxies:
        for _ in range(8):
            async with proxy.client(**login, retry=Retry(NoBackoff(), 0)) as client:
                with pytest.raises((AuthenticationError, ResponseError)):
                    await client.ping()
    return True


async def ended(client: redis.asyncio.Redis) -> bool:
    """Whether its connection was closed."""
    connection = client.connection
    assert connection is not None

    async def talk() -> None:
        while True:
            await connection.send_command("PING")
            await connection.read_response()

    async with asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises((ConnectionError, OSError)):
            await talk()
    return True


async def test_a_change_holds_at_all_workers_of_all_proxies_when_the_command_ends(
    proxies: list[Proxy], clients: Clients
) -> None:
    topom = proxies[0].topom
    others = await clients.at_each_worker(proxies)
    status, said = await user(topom, "set", "ada", "--password", "rules=~a:* +@all", given=FIRST)
    assert (status, said["left_out"], said["behind"]) == (0, [], [])
    assert said["users"] == [{"name": "ada", "password": True, "fields": {"rules": "~a:* +@all"}}]
    first = await clients.at_each_worker(proxies, username="ada", password=FIRST)
    for client in first:
        assert await client.acl_whoami() == "ada"
        assert await client.set("a:1", "x")
        with pytest.raises(NoPermissionError):
            await client.set("b:1", "x")
        assert sorted(await client.acl_users()) == ["ada", "default"]
        assert "~a:*" in (await client.acl_getuser("ada"))["keys"]
        assert any(line.startswith("user ada on") for line in await client.acl_list())

    # Another password: the former one opens nothing more, and who is in stays in.
    assert (await user(topom, "set", "ada", "--password", given=f"{SECOND}\n"))[0] == 0
    assert await refused_everywhere(proxies, username="ada", password=FIRST)
    second = await clients.at_each_worker(proxies, username="ada", password=SECOND)
    for client in first:
        assert await client.get("a:1") == b"x"
        assert await clients.goes_on(client)

    # Less than before: it is logged in no more, and nobody else notices.
    status, said = await user(topom, "set", "ada", "read_only=true")
    assert (status, said["behind"]) == (0, [])
    for client in (*first, *second):
        assert await ended(client)
    third = await clients.at_each_worker(proxies, username="ada", password=SECOND)
    for client in third:
        with pytest.raises(NoPermissionError):
            await client.set("a:1", "y")
        assert await client.get("a:1") == b"x"

    # A limit
    assert (await user(topom, "set", "ada", "requests_per_second=20", "over_limit=refuse"))[0] == 0
    pipeline = third[0].pipeline(transaction=False)
    for _ in range(200):
        pipeline.get("a:1")
    replies = await pipeline.execute(raise_on_error=False)
    assert any(isinstance(reply, ResponseError) for reply in replies)

    # A prefix: it knows its keys by other names, and is logged in no more.
    lifted = [f"{field}=" for field in ("over_limit", "read_only", "requests_per_second", "rules")]
    assert (await user(topom, "set", "ada", "prefix=a:", *lifted))[0] == 0
    for client in third:
        assert await ended(client)
    fourth = await clients.at_each_worker(proxies, username="ada", password=SECOND)
    for count, client in enumerate(fourth, 1):
        assert await client.get("1") == b"x"
        assert await client.incr("key") == count
    assert await others[0].get("a:key") == b"%d" % len(fourth)
    status, problem = await user(topom, "set", "ada", "prefix=a*")
    assert status != 0
    assert "letters, digits" in problem

    assert (await user(topom, "remove", "ada"))[0] == 0
    for client in fourth:
        assert await ended(client)
    assert await refused_everywhere(proxies, username="ada", password=SECOND)
    for client in others:
        assert await client.set("b:1", "x")
        assert await clients.goes_on(client), "clients that need no login have noticed nothing"
    assert all(proxy.said("users_changed") for proxy in proxies)
    async with client_of(topom) as asked:
        found = [(what, text) for what, who, text in await events(asked) if what.startswith("user_")]
    assert found == [
        ("user_set", "user ada was added"),
        ("user_set", "user ada was changed: password_sha256"),
        ("user_set", "user ada was changed: read_only"),
        ("user_set", "user ada was changed: over_limit, requests_per_second"),
        ("user_set", "user ada was changed: over_limit, prefix, read_only, requests_per_second, rules"),
        ("user_removed", "user ada was removed"),
    ]


@pytest.mark.long
async def test_users_outlive_topom_and_proxies_and_hold_while_topom_is_away(
    proxies: list[Proxy], clients: Clients
) -> None:
    one, two = proxies
    topom = one.topom
    async with client_of(topom) as asked:
        for name, digest in zip(("ada", "default"), DIGESTS, strict=True):
            answer = await asked.post(f"/api/v1/users/{name}", json={"fields": {"password_sha256": digest}})
            assert answer.is_success
    assert await refused_everywhere(proxies)

    # A proxy that starts has them before it lets anybody in.
    assert await two.process.stop() == 0
    two.process.start()
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(two.said("proxy_ready")) < 2:
            async with two.client(retry=Retry(NoBackoff(), 0)) as client:
                with pytest.raises((AuthenticationError, ConnectionError)):
                    await client.ping()
    assert await clients.at_each_worker([two], username="ada", password=FIRST)

    # topom is away: they hold, also at a proxy that starts by its table file.
    await kept(two)
    assert topom.stop() == 0
    assert await refused_everywhere([one])
    await two.process.kill(family=True)
    two.process.start()
    await two.until(lambda: bool(two.said("serves_alone")))
    await ready(two, 3)
    assert await clients.at_each_worker(proxies, username="ada", password=FIRST)
    assert await refused_everywhere(proxies)

    # topom is back
    await topom.start()
    async with client_of(topom) as asked:
        said = (await asked.get("/api/v1/users")).json()
        assert [one["name"] for one in said["users"]] == ["ada", "default"]
        await until(lambda: follows(topom))
        assert await refused_everywhere(proxies)
        answer = await asked.delete("/api/v1/users/default")
        assert (answer.status_code, answer.json()["error"]) == (409, "OpensProxies"), answer.text
        assert await refused_everywhere(proxies)
        assert (await asked.delete("/api/v1/users/default", params={"open": True})).is_success
        assert await clients.at_each_worker(proxies)
        assert (await asked.delete("/api/v1/users/ada")).is_success
    assert await refused_everywhere(proxies, username="ada", password=FIRST)


async def follows(topom: TopomProcess) -> bool:
    """Whether all proxies use the users as they are."""
    async with client_of(topom) as asked:
        return bool((await asked.get("/api/v1/users")).json()["behind"] == [])


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await holds():
            await asyncio.sleep(0.05)


async def kept(proxy: Proxy) -> None:
    """Wait until the table file has the users, and which process its server is."""
    path = proxy.file.path.parent / "table"

    def has_all() -> bool:
        if not path.is_file():
            return False
        content = json.loads(path.read_text().partition("\n")[2])
        return bool(content["users"]) and bool(content["processes"])

    await proxy.until(has_all)
    assert path.stat().st_mode & 0o077 == 0, "digests of passwords are in it"


@pytest.mark.long
async def test_a_proxy_follows_once_no_process_of_it_can_start_with_the_former_users(proxies: list[Proxy]) -> None:
    topom, two = proxies[0].topom, proxies[1]
    assert (await user(topom, "set", "ada", "--password", given=FIRST))[1]["behind"] == []
    await kept(two)
    path = two.file.path.parent / "table"
    obstacle = path.with_name("table.new")
    obstacle.mkdir()  # where the next file would be written first
    status, said = await user(topom, "remove", "ada")
    assert (status, [one["proxy_id"] for one in said["behind"]]) == (0, [2])
    assert await refused_everywhere(proxies, username="ada", password=FIRST), "workers wait for no disk"
    obstacle.rmdir()
    await until(lambda: follows(topom))
    assert json.loads(path.read_text().partition("\n")[2])["users"]["kept"]["users"] == []


@pytest.mark.long
async def test_where_users_do_not_hold_is_said(proxies: list[Proxy], clients: Clients) -> None:
    one, two = proxies
    one.file.write(users=[{"name": "ada", "password": SECOND}], table_file=str(one.file.path.parent / "table"))
    assert (await one.hang_up())["changed"] == ["users"]
    async with AsyncExitStack() as ending:
        older = HandProxy(one.topom)  # it says nothing of users
        one.topom.token = f"{OLD}-proxy"
        await ending.enter_async_context(older)
        one.topom.token = OWN
        status, said = await user(one.topom, "set", "ada", "--password", given=FIRST)
        assert status == 0
        assert [(each["proxy_id"], "earlier version" in each["cause"]) for each in said["behind"]] == [(3, True)]
        assert older.attempts == 1, "what it does not know, it passes over"
    _, said = await user(one.topom, "list")
    assert said["left_out"] == [{"proxy_id": 1, "name": "ada", "cause": "own"}]
    assert await refused_everywhere([one], username="ada", password=FIRST)
    assert await clients.at_each_worker([one], username="ada", password=SECOND)
    assert await clients.at_each_worker([two], username="ada", password=FIRST)
    # The proxy with users of its own wants a login, as it did. The other does not.
    assert await refused_everywhere([one])
    assert await clients.at_each_worker([two])
    one.file.write(table_file=str(one.file.path.parent / "table"))
    await one.hang_up()
    assert await clients.at_each_worker(proxies, username="ada", password=FIRST)
    assert await clients.at_each_worker(proxies)


@pytest.mark.long
async def test_viewers_see_users_and_only_operators_change_them(proxies: list[Proxy]) -> None:
    topom, eve = proxies[0].topom, VIEWER.rpartition(":")[2]
    assert (await user(topom, "set", "a/bc?", "--password", given=FIRST))[0] == 0
    status, said = await user(topom, "show", "a/bc?", token=eve)
    assert (status, said) == (0, {"name": "a/bc?", "password": True, "fields": {}})
    for words in (["set", "a/bc?", "read_only=true"], ["remove", "a/bc?"]):
        status, problem = await user(topom, *words, token=eve)
        assert (status, "needs the role operator" in problem) == (1, True)
    status, problem = await user(topom, "set", "bob")
    assert (status, "it needs a password, or no_password" in problem) == (1, True)
    status, problem = await user(topom, "set", "bob", "no_password=true", "rules=+nosuch")
    assert (status, "rules is wrong" in problem) == (1, True)
    async with client_of(topom) as asked:
        answer = await asked.post("/api/v1/users/bob", json={"fields": {"password": FIRST}})
        assert answer.status_code == 422
        assert FIRST not in answer.text
    assert (await user(topom, "remove", "a/bc?"))[0] == 0
    assert (await user(topom, "show", "a/bc?"))[0] == 1
