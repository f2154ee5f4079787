"""The command as a process: it is broken off and goes on, and leaves files with which later runs start sooner."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sizing.command import INTERRUPTED
from sizing.locking import FolderInUse, held
from slotferry.redis_server import RedisServer, start_redis

LIMIT_SECONDS = 300.0
QUICK_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that do little: one that compiles less is through sooner."""
STILL_READING = 12_000
"""Keys that are read slowly enough for the run to be broken off among them."""
DONE = "work/done/*.json"
"""Notes of what was read."""
MAPPED = """
import pathlib, sys
from sizing.session import close, open_session
session = open_session("local[1]", dict([sys.argv[2].split("=", 1)]))
print(sys.argv[1] in pathlib.Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text())
close(session)
"""


def fill(server: RedisServer, keys: int) -> None:
    with redis.Redis(port=server.port) as client, client.pipeline(transaction=False) as pipe:
        for number in range(keys):
            pipe.set(f"key:{number}", number)
        pipe.execute()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(600)
async def test_a_run_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    cache, output = tmp_path / "cache", tmp_path / "sizes"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    # Servers are read in the order of their addresses.
    few, many = sorted([await start_redis(name, tmp_path) for name in ("one", "two")], key=lambda one: one.address)
    command = [sys.executable, "-m", "sizing", "run", "--servers", f"{few.address},{many.address}"]
    command += ["--into", str(output), "--parallel", "1", "--max-keys-per-second", "3000", "-o", "json"]
    command += ["--master", "local[1]", "--conf", QUICK_START, "--conf", "spark.sql.shuffle.partitions=1"]
    command += ["--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"]

    async def started(*more: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command, *more, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )

    async def outcome(run: asyncio.subprocess.Process) -> tuple[str, str]:
        async with asyncio.timeout(LIMIT_SECONDS):
            said, errors = await run.communicate()
        return said.decode(), errors.decode()

    try:
        fill(few, 100)
        fill(many, STILL_READING)
        # When: it is broken off while the second server is read.
        run = await started()
        await until(lambda: bool(list(output.glob(DONE))) or run.returncode is not None)
        with pytest.raises(FolderInUse, match=f"process {run.pid} "), held(f"file:{output}", print):
            pass
        run.send_signal(signal.SIGINT)
        _, errors = await outcome(run)
        assert run.returncode == INTERRUPTED, errors
        assert "goes on where this one was" in errors
        # Then: the same again reads only that one; of the first, a key that has come since is not seen.
        with redis.Redis(port=few.port) as client:
            client.set("later", 1)
        run = await started("--warm")
        said, errors = await outcome(run)
        assert run.returncode == 0, errors
        assert json.loads(said)["total"]["keys"] == 100 + STILL_READING
        assert [line for line in errors.splitlines() if "WARN" in line or "log level" in line or "log4j" in line] == []
    finally:
        for server in (few, many):
            await server.stop()
    # And: the next Java has its classes from there.
    (archive,) = (cache / "slotferry").iterdir()
    command = [sys.executable, "-c", MAPPED, str(archive), QUICK_START]
    run = await started()
    said, errors = await outcome(run)
    assert said.split() == ["True"], errors
