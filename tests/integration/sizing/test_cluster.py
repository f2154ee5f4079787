"""The job on a standalone cluster of one master and two workers, which have none of our code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import redis

import sizing
from sizing.java import find_java_home
from sizing.python import worker_python
from slotferry.processes import ManagedProcess, free_ports, until
from slotferry.redis_server import start_redis

HOST = "127.0.0.1"
KEYS = 300
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For six JVMs that do little."""
START_SECONDS = 120.0
RUN_SECONDS = 400.0


def environment() -> dict[str, str]:
    """Of every process: Python is ours, and nothing of ours is to be found from it."""
    import pyspark

    java = find_java_home()
    left_out = ("PYTHONPATH", "SPARK_", "PYSPARK_", "SLOTFERRY_")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(left_out)},
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": worker_python(),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
    }


@asynccontextmanager
async def standalone(folder: Path) -> AsyncIterator[str]:
    """A cluster, as Spark's address of it. Its processes end with the context."""
    env = environment()
    command = f"{env['SPARK_HOME']}/bin/spark-class"
    port, *others = free_ports(6)
    address = f"spark://{HOST}:{port}"
    package = "org.apache.spark.deploy"
    started = []

    async def start(name: str, arguments: list[str], ready: str) -> None:
        process = ManagedProcess(name, [command, *arguments], folder / f"{name}.log", env)
        started.append(process)
        process.start()

        async def is_ready() -> bool:
            return process.logged(ready)

        await until(is_ready, name, START_SECONDS, [process])

    listening = ["--host", HOST, "--port"]
    try:
        await start(
            "master",
            [f"{package}.master.Master", *listening, str(port), "--webui-port", str(others[0])],
            "I have been elected leader",
        )
        for number in (1, 2):
            ports = [str(others[2 * number - 1]), "--webui-port", str(others[2 * number])]
            size = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"worker-{number}")]
            await start(
                f"worker-{number}",
                [f"{package}.worker.Worker", *listening, *ports, *size, address],
                "Successfully registered with master",
            )
        yield address
    finally:
        for process in reversed(started):
            await process.stop()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_executors_run_what_is_shipped_to_them(tmp_path: Path) -> None:
    server = await start_redis("server", tmp_path)
    try:
        client = redis.Redis(port=server.port)
        client.mset({f"user:{number}": "v" * number for number in range(KEYS)})
        expected = sum(client.memory_usage(key) for key in client.scan_iter())
        client.close()
        env = environment()
        async with standalone(tmp_path) as master:
            # The driver imports us from beside the script; executors have another folder, and no such path.
            script = Path(sizing.__file__).with_name("__main__.py")
            arguments = [
                *(f"{env['SPARK_HOME']}/bin/spark-submit", "--master", master, "--executor-memory", "512m"),
                *("--conf", f"spark.driver.host={HOST}", "--conf", "spark.sql.shuffle.partitions=2"),
                *("--driver-java-options", QUICK_START, "--conf", f"spark.executor.extraJavaOptions={QUICK_START}"),
                *("--conf", "spark.ui.enabled=false", str(script)),
                *("run", "--ship", "--servers", server.address, "--into", str(tmp_path / "out")),
            ]
            job = ManagedProcess("job", arguments, tmp_path / "job.log", env)
            job.start()
            try:
                status = await job.wait(RUN_SECONDS)
            finally:
                await job.stop()
        assert status == 0, job.tail(60)
    finally:
        await server.stop()

    slots = parquet.read_table(tmp_path / "out" / "slots").to_pylist()
    assert (sum(row["keys"] for row in slots), sum(row["bytes"] for row in slots)) == (KEYS, expected)
    for number in (1, 2):
        # Both had executors, and unpacked our code there.
        assert list((tmp_path / f"worker-{number}").glob("app-*/*/slotferry-shipped/sizing/source.py"))
        assert not list((tmp_path / f"worker-{number}").glob("app-*/*/sizing"))


@pytest.mark.long
def test_an_executor_has_what_it_needs_in_the_archive(tmp_path: Path) -> None:
    from sizing import shipping

    archive = shipping.pack(tmp_path)
    folder = tmp_path / "unpacked"

    async def imported() -> str:
        unpacking = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "zipfile", "-e", str(archive), str(folder)
        )
        assert await unpacking.wait() == 0
        importing = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import sizing.source, sizing.rdb.source; print(sizing.source.__file__)"),
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": str(folder)},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await importing.communicate()
        return said.decode().strip()

    assert asyncio.run(imported()) == str(folder / "sizing" / "source.py")
