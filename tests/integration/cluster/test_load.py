"""What topoms say of the load while real clients use a cluster: it is right, and stays right whatever restarts."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from slotferry.client import TopomClient
from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.harness import eventually, meanwhile, plain_client, running
from tests.integration.cluster.several import SeveralTopoms
from tests.integration.stores.servers import need_etcd
from topom.load.asking import ASK_SECONDS
from topom.term import loadkeeping

SLOTS = 64
HOT = 20
COLD = 20
"""Requests of one burst at each proxy: for one hot key, and for many others."""
BURSTS = 10
"""A second, at each proxy."""
MOST = 1.6
"""How much higher or lower than the true rate a rate may be: bursts are not even, and periods of proxies overlap."""
LATE_SECONDS = 30.0
"""Over which the true rate is taken."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SeveralTopoms]:
    need_etcd()
    yield from running(SeveralTopoms(topoms=2, groups=2, proxies=2, workers=1, number_of_slots=SLOTS))  # type: ignore[misc]


@pytest.fixture
async def cluster(shared_cluster: SeveralTopoms) -> AsyncIterator[SeveralTopoms]:
    async with shared_cluster.visit():
        await shared_cluster.all_well()
        await shared_cluster.online(2)
        yield shared_cluster


class Requests:
    """How many requests clients make a second: ``most`` if nothing holds them up."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._began = time.monotonic()
        self._made: deque[tuple[float, int]] = deque()

    def made(self, number: int) -> None:
        """So many were made just now."""
        self._made.append((time.monotonic(), number))

    @property
    def of_late(self) -> float:
        """What they really made: a busy machine holds them up."""
        now = time.monotonic()
        while self._made and self._made[0][0] < now - LATE_SECONDS:
            self._made.popleft()
        return sum(number for _, number in self._made) / min(LATE_SECONDS, now - self._began)


def bursts(client: Redis, requests: Requests) -> Callable[[], Awaitable[None]]:
    """The same number of requests at a proxy, ten times a second; a proxy that is away gets none."""
    loop = asyncio.get_running_loop()
    due = loop.time()

    async def burst() -> None:
        nonlocal due
        pipeline = client.pipeline(transaction=False)
        for _ in range(HOT):
            pipeline.get("hot")
        for number in range(COLD):
            pipeline.set(f"cold:{number}", "x" * 100)
        with suppress(RedisError, OSError):
            await pipeline.execute()
            requests.made(HOT + COLD)
        due = max(due + 1 / BURSTS, loop.time())
        await asyncio.sleep(due - loop.time())

    return burst


@asynccontextmanager
async def asked(cluster: SeveralTopoms) -> AsyncIterator[Requests]:
    """Clients at both proxies inside the block."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(plain_client(address)) for address in cluster.proxy_addresses]
        requests = Requests(len(clients) * BURSTS * (HOT + COLD))
        async with meanwhile(*(bursts(client, requests) for client in clients)):
            yield requests


def rate(found: dict[str, Any]) -> float:
    return float(found["total"]["requests"])


async def shown(cluster: SeveralTopoms, client: TopomClient, requests: Requests) -> dict[str, Any]:
    """Wait until both proxies tell about so many requests, and the hot key."""

    def met(found: dict[str, Any]) -> bool:
        return (
            found["proxies_telling"] == 2
            and requests.of_late / MOST < rate(found) < requests.most * MOST
            and any(key["key"] == "hot" for key in found["hot_keys"])
        )

    return await eventually(client.load, met, "both proxies to tell their load")


def requests_in(history: dict[str, Any], minutes: int) -> dict[str, list[float | None]]:
    """What the first minutes of a history say, by name."""
    series = {one["name"]: one["requests"][:minutes] for one in history["series"]}
    return {name: values for name, values in series.items() if any(value is not None for value in values)}


async def minutes_known_to_all(cluster: SeveralTopoms) -> tuple[list[float], dict[str, list[float | None]]]:
    """When the minutes began that the topoms that follow have asked for, and the requests of proxies in them."""

    def known(found: dict[str, Any]) -> list[float]:
        asked_before = time.time() - 2 * loadkeeping.SECONDS
        return [began_at for began_at in found["minutes"] if began_at + 60 + ASK_SECONDS < asked_before]

    async def look() -> dict[str, Any]:
        await asyncio.sleep(1.0)
        return await cluster.api.load_history("proxies", 60, 20)

    found = await eventually(look, lambda found: bool(known(found)), "a minute that is known to all")
    return known(found), requests_in(found, len(known(found)))


@pytest.mark.long
async def test_what_clients_ask_for_is_shown_by_every_topom_and_on_the_command_line(cluster: SeveralTopoms) -> None:
    async with asked(cluster) as requests:
        leader = await cluster.all_well()
        async with TopomClient(cluster.urls[1 - leader], cluster.token) as follower:
            found = await shown(cluster, follower, requests)
        busiest, hottest = found["slots"][0], found["hot_keys"][0]
        assert (hottest["key"], hottest["database"], hottest["slot"]) == ("hot", 0, busiest["slot"])
        assert hottest["length"] == 3
        assert 0.3 < hottest["share"] < 0.8
        assert sum(group["requests"] for group in found["groups"]) == pytest.approx(
            sum(slot["requests"] for slot in found["slots"]), rel=0.01
        )
        assert {server["server"] for server in found["servers"]} <= {
            server for servers in cluster.groups.values() for server in servers
        }
        assert all(server["milliseconds"] > 0 for server in found["servers"])
        assert [user["user"] for user in found["users"]] == ["default"]
        # 100 bytes of a value go in with every other request, and "hot" has none to come out.
        assert found["total"]["bytes_in"] > found["total"]["requests"] * 50
        verbs = [["load"], ["top", "--once"], ["load", "-o", "json", "--all-slots"]]
        text, looked, as_json = await asyncio.gather(
            *(slotferry(*verb, SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token) for verb in verbs)
        )
        for outcome in (text, looked):
            assert outcome.status == 0, outcome
            assert "2 of 2 proxies tell their load" in outcome.out
            assert "hot" in outcome.out
        assert len(as_json.json["slots"]) == SLOTS


@pytest.mark.long
async def test_a_big_key_that_is_read_over_two_proxies_is_one_entry(cluster: SeveralTopoms) -> None:
    leader = await cluster.all_well()
    key, value = b"big:[<b>]\xff", b"hidden" * 400_000
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(plain_client(address)) for address in cluster.proxy_addresses]
        await clients[0].set(key, value)
        for client in clients:
            assert await client.get(key) == value
            assert await client.get("small") is None
        await clients[0].delete(key)

        async def of_key(api: TopomClient) -> list[dict[str, Any]]:
            found = (await api.notable(512))["requests"]
            return [one for one in found if one["length"] == len(key) and one["why"] != "slow"]

        found = await eventually(
            lambda: of_key(cluster.api),
            lambda found: [(one["why"], one["times"]) for one in found] == [("big_reply", 2), ("big_request", 1)],
            "both proxies to tell of the big key",
        )
    read, written = found
    assert (read["command"], read["key"], read["database"]) == ("get", r"big:[<b>]\xff", 0)
    assert (written["command"], written["slot"]) == ("set", read["slot"])
    assert written["bytes_in"] > len(value) < read["bytes_out"]
    assert read["first_at"] <= read["last_at"]
    for one in (read, written):
        assert one["server"] in cluster.groups[one["group_id"]]
        assert one["proxy_address"] in cluster.proxy_addresses
        assert (one["user"], one["client"].rpartition(":")[0]) == ("default", "127.0.0.1")
    async with TopomClient(cluster.urls[1 - leader], cluster.token) as follower:
        assert await of_key(follower) == found
    environment = {"SLOTFERRY_TOPOM": cluster.topom_url, "SLOTFERRY_TOKEN": cluster.token}
    text = await slotferry("load", "--notable", **environment)
    assert text.status == 0, text
    assert r"big:[<b>]\xff" in text.out
    assert "2.3 MiB" in text.out
    assert "hidden" not in text.out + str(found)


@pytest.mark.long
async def test_a_proxy_that_is_killed_and_another_leader_leave_no_wrong_figures(cluster: SeveralTopoms) -> None:
    former = await cluster.all_well()
    async with asked(cluster) as requests:
        await shown(cluster, cluster.api, requests)
        highest = 0.0

        async def watch() -> None:
            nonlocal highest
            with suppress(Exception):
                highest = max(highest, rate(await cluster.api.load()))
            await asyncio.sleep(0.5)

        async with meanwhile(watch):
            # When: a proxy is killed, and starts again.
            before = {proxy["proxy_id"] for proxy in (await cluster.api.load())["proxies"]}
            await cluster.proxies[0].kill()
            await eventually(
                cluster.api.load, lambda found: len(found["proxies"]) == 1, "the killed proxy to have no part"
            )
            cluster.proxies[0].start()
            found = await shown(cluster, cluster.api, requests)
            assert len({proxy["proxy_id"] for proxy in found["proxies"]} - before) == 1
            # When: another topom leads. Then: it begins anew, but with the minutes of the one before.
            known, before_it = await minutes_known_to_all(cluster)
            began = asyncio.get_running_loop().time()
            cluster.pause_topom(former)
            try:
                leader, _ = await cluster.taken_over(former)
                async with TopomClient(cluster.urls[leader], cluster.token) as client:
                    found = await shown(cluster, client, requests)
                    history = await client.load_history("proxies", 60, 20)
                assert found["measured_seconds"] <= asyncio.get_running_loop().time() - began
                assert history["minutes"][: len(known)] == known
                assert requests_in(history, len(known)) == before_it != {}
            finally:
                cluster.resume_topom(former)
        assert highest < requests.most * MOST
    await cluster.all_well()
