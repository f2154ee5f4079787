"""One etcd and one ZooKeeper for all tests of a process, started when the first asks; each test has its own prefix."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.stores.servers import (
    EtcdServer,
    ZooKeeperServer,
    need_etcd,
    need_zookeeper,
    start_etcd,
    start_zookeeper,
    stop,
)
from topom.store import Store
from topom.term.settings import TopomSettings
from topom.term.stores import open_store

Open = Callable[[], Awaitable[Store]]
"""Gives one more store, opened, over the same data."""


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    need_etcd()
    servers = asyncio.run(start_etcd(tmp_path_factory.mktemp("etcd")))
    yield servers[0]
    asyncio.run(stop(servers))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    need_zookeeper()
    servers = asyncio.run(start_zookeeper(tmp_path_factory.mktemp("zookeeper")))
    yield servers[0]
    asyncio.run(stop(servers))


@pytest.fixture(params=["sqlite", "etcd", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> TopomSettings:
    """Settings for an unused store."""
    servers = "" if kind == "sqlite" else request.getfixturevalue(kind).address
    return TopomSettings.load(
        store=kind,
        store_servers=servers,
        store_prefix=f"/test/{secrets.token_hex(8)}",
        store_timeout_seconds=20.0,
        data=tmp_path,
    )


@pytest.fixture
async def another(settings: TopomSettings) -> AsyncIterator[Open]:
    """Opens stores, and closes them in the end."""
    opened: list[Store] = []

    async def open_one() -> Store:
        store = open_store(settings)
        opened.append(store)
        await store.open()
        return store

    yield open_one
    for store in opened:
        await store.close()
