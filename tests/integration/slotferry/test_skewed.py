"""The clients of the demo with ``--skew`` against a server that hangs."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from slotferry import skewed
from slotferry.redis_server import start_redis
from slotferry.skewed import hot_clients

LIMIT_SECONDS = 30.0


async def test_clients_end_without_the_replies_of_a_server_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skewed, "REPLY_SECONDS", 3600.0)
    server = await start_redis("redis", tmp_path)
    hangs = asyncio.Event()

    async def ask() -> None:
        async with hot_clients(server.address, ["hot:1"], 1e9) as asked:
            while not asked.requests:
                await asyncio.sleep(0.01)
            os.kill(server.pid, signal.SIGSTOP)
            before = 0
            while asked.requests > before:
                before = asked.requests
                await asyncio.sleep(0.3)
            hangs.set()
            await asyncio.Event().wait()

    try:
        asking = asyncio.create_task(ask())
        async with asyncio.timeout(LIMIT_SECONDS):
            await hangs.wait()
        asking.cancel()
        ended, _ = await asyncio.wait([asking], timeout=LIMIT_SECONDS)
        assert ended
        assert asking.cancelled()
    finally:
        await server.kill()
