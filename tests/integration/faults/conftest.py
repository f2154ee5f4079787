"""One cluster and one traffic for all tests of a module: each test leaves the cluster at rest and whole."""

from collections.abc import AsyncIterator

import pytest_asyncio

from slotferry.traffic.driver import Traffic
from tests.integration.cluster.harness import BALLAST
from tests.integration.faults.cluster import DATABASES, FaultCluster

KEYS = 2000
RATE = 600.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[tuple[FaultCluster, Traffic]]:
    """The cluster and traffic on it that has loaded its keys."""
    assert BALLAST >= 2000
    cluster = FaultCluster()
    async with cluster, Traffic(cluster.proxy_addresses, KEYS, connections=16, rate=RATE, databases=DATABASES) as it:
        loaded = await it.load()
        assert loaded.clean, loaded.to_wire()
        yield cluster, it


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(shared: tuple[FaultCluster, Traffic]) -> AsyncIterator[FaultCluster]:
    """The cluster at rest, with both proxies online."""
    found, _ = shared
    async with found.visit():
        await found.at_rest()
        await found.all_online()
        yield found
        found.mend()


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(shared: tuple[FaultCluster, Traffic]) -> Traffic:
    """Traffic over both proxies that does not run."""
    return shared[1]
