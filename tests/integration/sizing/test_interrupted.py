"""A run that is told to end while it begins to read ends at once, says so in a sentence, and leaves nothing behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
import redis

from slotferry.redis_server import start_redis
from tests.integration.sizing.test_runs import INTERRUPTED, LIMIT_SECONDS, QUICK_START

KEYS = 2000
"""At a key a second, they take much longer than the limit."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_run_ends_at_once_while_it_begins_to_read(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # FORCE_COLOR has the bar shown, as on a terminal.
    environment = {**os.environ, "TMPDIR": str(temporary), "FORCE_COLOR": "1", "MPLCONFIGDIR": str(tmp_path)}
    server = await start_redis("server", tmp_path)
    command = [sys.executable, "-m", "sizing", "run", "--servers", server.address, "--into", str(tmp_path / "sizes")]
    command += ["--max-keys-per-second", "1", "--master", "local[1]", "--conf", QUICK_START]
    try:
        with redis.Redis(port=server.port) as client:
            client.mset({f"user:{key}": key for key in range(KEYS)})
        run = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        assert run.stderr is not None
        said = b""
        async with asyncio.timeout(2 * LIMIT_SECONDS):
            # When: its bar is drawn, and Spark has no job yet.
            while b"keys" not in said:
                more = await run.stderr.read(4096)
                assert more, said.decode()
                said += more
            run.send_signal(number)
            said = await run.stderr.read()
            assert await run.wait() == INTERRUPTED, said.decode()
    finally:
        await server.stop()
    assert "goes on where this one was" in said.decode()
    assert "Traceback" not in said.decode()
    assert [path.name for path in temporary.iterdir() if path.name.startswith("slotferry-")] == []
