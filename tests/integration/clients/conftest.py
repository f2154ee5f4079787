"""One cluster for all tests of this folder: three groups, a proxy with two workers. Tests use keys of their own."""

import asyncio
from collections.abc import Iterator

import pytest

from cli.local import LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """The cluster; nothing here moves slots or ends processes of it."""
    running = LocalCluster(groups=3, proxies=1, workers=2)
    asyncio.run(running.start())
    yield running
    for process in running.processes:
        print(f"--- end of the log of {process.name} (status {process.status})\n{process.tail(20)}")
    asyncio.run(running.stop())


@pytest.fixture(scope="session")
def address(cluster: LocalCluster) -> tuple[str, int]:
    """Host and port of the proxy."""
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    return host, int(port)
