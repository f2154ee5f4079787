"""Three servers of a store, of which some die or stand still."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from slots.messages.message import Product
from tests.integration.stores.servers import (
    StoreServer,
    need_etcd,
    need_zookeeper,
    start_etcd,
    start_zookeeper,
    stop,
)
from topom.cluster.ledger import Ledger
from topom.store import STATE, Store, StoreConflict, StoreError
from topom.term.settings import TopomSettings
from topom.term.stores import open_store

ONE, TWO = "1" * 32, "2" * 32
URL = "http://127.0.0.1:1"
LIMIT_SECONDS = 90.0
"""Against hanging only."""


@pytest.fixture(scope="module", params=["etcd", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def servers(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreServer]]:
    found: list[StoreServer]
    if kind == "etcd":
        need_etcd()
        found = [*asyncio.run(start_etcd(tmp_path_factory.mktemp(kind), 3))]
    else:
        need_zookeeper()
        found = [*asyncio.run(start_zookeeper(tmp_path_factory.mktemp(kind), 3))]
    yield found
    asyncio.run(stop(found))


@asynccontextmanager
async def opened(kind: str, servers: list[StoreServer], prefix: str, folder: Path) -> AsyncIterator[Store]:
    store = open_store(
        TopomSettings.load(
            store=kind,
            store_servers=",".join(server.address for server in servers),
            store_prefix=prefix,
            store_timeout_seconds=2.0,
            data=folder,
        )
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    await store.open()
                    break
                except StoreError:
                    await asyncio.sleep(0.05)
        yield store
    finally:
        await store.close()


async def leader_of(servers: list[StoreServer]) -> StoreServer:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            for server in servers:
                if await server.leads():
                    return server
            await asyncio.sleep(0.05)


async def persist(ledger: Ledger, number: int) -> None:
    """Change something, in spite of failures; LostPlace does not count as one."""
    while True:
        try:
            await ledger.change(lambda state, epoch: replace(state, next_proxy_id=number))
        except StoreError:
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.long
async def test_the_leading_server_is_killed(kind: str, servers: list[StoreServer], tmp_path: Path) -> None:
    prefix = f"/test/{secrets.token_hex(8)}"
    async with opened(kind, servers, prefix, tmp_path) as store, opened(kind, servers, prefix, tmp_path) as other:
        ledger = Ledger(store, "w")
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    await ledger.start(Product(name="p", number_of_slots=64, slot_function="crc32", databases=16))
                    break
                except StoreError:
                    await asyncio.sleep(0.05)
            leadership = await store.campaign(ONE, URL, 30.0)
            watched = [(await other.book(STATE).read()).version]

            async def watch() -> None:
                while watched[-1] < 41:
                    try:
                        watched.append(await other.watch(watched[-1], 60.0))
                    except StoreError:
                        await asyncio.sleep(0.05)

            watching = asyncio.create_task(watch())
            dead = await leader_of(servers)
            for number in range(2, 42):
                if number == 5:
                    await dead.kill()
                await persist(ledger, number)
            await watching
            assert watched == sorted(set(watched))
            assert ledger.state.next_proxy_id == 41
            assert (await other.book(STATE).read()).version == ledger.state.version
            assert leadership.valid(), "the store was away for less than the lease"
            assert await other.leader() == leadership.leader
            dead.start()
            await dead.ready()


@pytest.mark.long
async def test_most_servers_stand_still(kind: str, servers: list[StoreServer], tmp_path: Path) -> None:
    prefix = f"/test/{secrets.token_hex(8)}"
    async with opened(kind, servers, prefix, tmp_path) as store:
        async with asyncio.timeout(LIMIT_SECONDS):
            await store.book(STATE).write(0, 1, {"a": b"1"})
            first = await store.campaign(ONE, URL, 2.0)
        paused = [server for server in servers if server is not await leader_of(servers)]
        for server in paused:
            server.pause()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await first.lost.wait()
                assert not first.valid()
                calls = [
                    store.book(STATE).read(),
                    store.leader(),
                    store.watch(1, 0.5),
                    store.book(STATE).write(1, 2, {"a": b"2"}),
                ]
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert type(outcome) is StoreError, outcome
                campaign = asyncio.create_task(store.campaign(TWO, URL, 2.0))
                await asyncio.wait([campaign], timeout=0.5)
                assert not campaign.done()
        finally:
            for server in paused:
                server.resume()
        async with asyncio.timeout(LIMIT_SECONDS):
            second = await campaign
            assert second.leader.term > first.leader.term
            await second.resign()
            while True:
                try:
                    # The write of unknown outcome is there, or not, or takes effect in between. No other write does.
                    stored = await store.book(STATE).read()
                    assert stored.version in (1, 2)
                    await store.book(STATE).write(stored.version, 3, {"a": b"3"})
                    break
                except StoreConflict:
                    raise
                except StoreError:
                    await asyncio.sleep(0.05)
            assert (await store.book(STATE).read()).documents == {"a": b"3"}
