"""What the tests of this folder start."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from slotferry.redis_server import start_redis
from tests.integration.frameworks.harness import Product

StartProduct = Callable[..., Awaitable[Product]]


@pytest.fixture
async def start_product(tmp_path: Path) -> AsyncIterator[StartProduct]:
    """Starts a product with the rules of some profiles, and ends it after the test."""
    started: list[Product] = []

    async def start(*names: str) -> Product:
        product = await Product.start(tmp_path, names)
        started.append(product)
        return product

    yield start
    for product in started:
        print(f"--- the worker's log\n{product.worker.process.tail(20)}")
        await product.worker.stop()


@pytest.fixture
async def one_redis(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    """Host and port of a server of its own."""
    server = await start_redis("alone", tmp_path)
    yield "127.0.0.1", server.port
    await server.stop()
