"""Clusters for the tests of this folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration.cluster.harness import Cluster

StartCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def start_cluster() -> AsyncIterator[StartCluster]:
    """Starts clusters and ends them after the test. Arguments are those of :class:`slotferry.local.LocalCluster`."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Cluster:
            cluster = await stack.enter_async_context(Cluster(**options))
            return await stack.enter_async_context(cluster.visit())

        yield start
