"""Measures the cost of sizing every key of a server, compared with ``redis-cli --memkeys``, and its effect on another
client.

    python -m benchmarks.sizing

One server has a million keys of mixed types. In turns, they are sized by ``redis-cli --memkeys``; by the data source's
own reading of slot, key and bytes, as fast as possible, at the default throttle, and with the type as well; and by
Spark, including its start, after a run with ``--warm``. Then the p99 of another client is measured, in quiet and while
keys are read at the default throttle. Last comes the memory of a process that reads a fifth of the keys, and of one
that reads all.

The client's wait for the server is to be measured. As a rule a client has a processor of its own. If server, reader and
client share two, the client may also wait for the reader, up to a time slice of milliseconds, as the scheduler decides.
So the client has priority over them (SCHED_FIFO, which needs CAP_SYS_NICE), in both cases. Its figures without priority
are also given.
"""

import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import load, probe, report
from benchmarks.processes import percentile
from slotferry.redis_server import RedisServer, start_redis

COLUMNS = "slot,key,bytes"
MORE_COLUMNS = {"columns": "slot,key,type,bytes"}
"""The columns that redis-cli knows, too."""
UNTHROTTLED = {"milliseconds_per_call": "1000", "scan_count": "500"}
SPARK = {
    # For a job of seconds: a JVM that compiles less leaves the server its core. A query that runs once is also not
    # worth compiling to Java.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
PROBE_KEYS = 1000
PROBE_BYTES = 64
PROBE_RATE = 1000.0
"""Requests a second of the other client."""
PROBE_SECONDS = 8.0
CHUNK = 2000
LIMIT_SECONDS = 900.0
GOALS = {
    "keys/s, without Spark's start, to memkeys": (">=", 5.0),
    "keys/s, with Spark's start, to memkeys": (">=", 3.0),
    "p99 of another client at the default throttle, to quiet": ("<=", 2.0),
    "memory of five times the keys, to that of one": ("<=", 1.1),
}


def fill(server: RedisServer, first: int, last: int) -> None:
    """Store keys ``first`` to ``last - 1``, of every type and many sizes, a third with a deadline."""
    draw = random.Random(first)
    with redis.Redis(port=server.port, protocol=2) as client:
        for begin in range(first, last, CHUNK):
            pipe = client.pipeline(transaction=False)
            for number in range(begin, min(begin + CHUNK, last)):
                _add(pipe, draw, number)
            pipe.execute()


def _add(pipe: Any, draw: random.Random, number: int) -> None:
    kind, few = number % 20, draw.choice((2, 4, 12))
    if kind < 12:
        pipe.set(f"user:{number}:name", b"v" * draw.randint(5, 200), ex=draw.choice((None, None, 86_400)))
    elif kind < 15:
        pipe.hset(f"user:{number}:profile", mapping={f"field{i}": f"value {i}" for i in range(few)})
    elif kind < 17:
        pipe.rpush(f"queue:{number}", *range(few * 3))
    elif kind < 18:
        pipe.sadd(f"tags:{number}", *(f"tag {i}" for i in range(few)))
    else:
        pipe.zadd(f"board:{number}", {f"player {i}": i for i in range(few)})


def read_here(address: str, options: dict[str, str], seconds: float = 0.0) -> tuple[int, float]:
    """Read all keys in this process, again and again for ``seconds``; give how many, and how long it took."""
    from sizing.cluster import Cluster
    from sizing.options import ReadOptions
    from sizing.partitions import plan_partitions
    from sizing.scan import read_partition
    from sizing.selection import Selection

    # One after the other: the reading in this process is one task.
    given = ReadOptions.of({"servers": address, "partitions_per_server": "1", "columns": COLUMNS, **options})
    chosen = Selection(tuple((name, True) for name in given.columns))
    began, keys = time.monotonic(), 0
    while True:
        for partition in plan_partitions(Cluster.of(given), given):
            keys += sum(batch.num_rows for batch in read_partition(partition, given, chosen))
        spent = time.monotonic() - began
        if spent >= seconds:
            return keys, spent


def read_with_spark(address: str, options: dict[str, str], warm: bool = False) -> dict[str, float]:
    """Start Spark, and sum up bytes by slot. ``warm``: keep Java's classes, like ``slotferry sizing run --warm``."""
    began = time.monotonic()
    from pyspark.sql.functions import count
    from pyspark.sql.functions import sum as total

    from sizing import archive
    from sizing.session import close, open_session, prepare

    unfinished = archive.begin() if warm else None
    session = open_session("local[2]", SPARK, unfinished)
    started = time.monotonic()
    prepare(session, rdb=False)
    frame = session.read.format("slotferry").options(servers=address, columns=COLUMNS, **options).load()
    rows = frame.groupBy("slot").agg(count("key").alias("keys"), total("bytes").alias("bytes")).collect()
    ended = time.monotonic()
    close(session, unfinished)
    return {"keys": sum(row["keys"] for row in rows), "start": started - began, "seconds": ended - began}


def most_megabytes() -> float:
    """The most memory of this process so far; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def in_a_process(what: str, address: str, options: dict[str, str]) -> dict[str, float]:
    """Run one of these functions in a process of its own, with its own memory."""
    command = [sys.executable, "-m", "benchmarks.sizing", "--only", what, "--address", address]
    command += ["--options", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def memkeys(server: RedisServer, keys: int) -> float:
    """Keys a second of redis-cli."""
    began = time.monotonic()
    subprocess.run(
        ["redis-cli", "-p", str(server.port), "--memkeys"], stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS, check=True
    )
    return keys / (time.monotonic() - began)


def p99(server: RedisServer, folder: Path, meanwhile: Callable[[], object], ahead: bool) -> float:
    """Milliseconds within which another client has 99 of 100 replies, while ``meanwhile`` runs.

    ``ahead``: the client has priority for a processor, if this user may set that.
    """
    output = folder / "probe"
    arguments = ["--output", str(output), "--keys", str(PROBE_KEYS), "--value-bytes", str(PROBE_BYTES)]
    arguments += ["--rate", str(PROBE_RATE), "--writes", "0", "--limit", str(PROBE_SECONDS)]
    other = subprocess.Popen([sys.executable, "-m", "benchmarks.probe", server.address, *arguments])
    try:
        if ahead:
            try:
                os.sched_setscheduler(other.pid, os.SCHED_FIFO, os.sched_param(1))
            except PermissionError:
                print("the other client waits for processors: SCHED_FIFO needs CAP_SYS_NICE", file=sys.stderr)
        meanwhile()
        other.wait(LIMIT_SECONDS)
    finally:
        other.kill()
        other.wait()
    # The first second is its own start.
    requests = list(probe.read(output))
    took = sorted(each.seconds for each in requests if each.at > requests[0].at + 1)
    return 1000 * percentile(took, 99)


async def measure(keys: int, turns: int) -> dict[str, list[float]]:
    """All figures, by name, each with its turns."""
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        print(f"{name}: {value:.3f}", file=sys.stderr, flush=True)

    folder = Path(tempfile.mkdtemp(prefix="slotferry-sizing-"))
    server = await start_redis("redis", folder)
    try:
        load.fill(server.address, PROBE_KEYS, PROBE_BYTES)
        fill(server, 0, keys // 5)
        for _ in range(turns):
            note("MB, a fifth of the keys", in_a_process("memory", server.address, UNTHROTTLED)["megabytes"])
        fill(server, keys // 5, keys)
        total = keys + PROBE_KEYS
        in_a_process("warm", server.address, UNTHROTTLED)
        for _ in range(turns):
            note("MB, all keys", in_a_process("memory", server.address, UNTHROTTLED)["megabytes"])
            note("keys/s, memkeys", memkeys(server, total))
            for name, options in (
                ("unthrottled", UNTHROTTLED),
                ("unthrottled, with type", {**UNTHROTTLED, **MORE_COLUMNS}),
                ("default throttle", {}),
            ):
                read, seconds = read_here(server.address, options)
                assert read == total, f"{read} of {total} keys were read"
                note(f"keys/s, {name}", read / seconds)
            said = in_a_process("spark", server.address, UNTHROTTLED)
            assert said["keys"] == total, f"{said['keys']:.0f} of {total} keys were read"
            note("keys/s, Spark with its start", total / said["seconds"])
            note("keys/s, Spark without its start", total / (said["seconds"] - said["start"]))
            for ahead, name in ((True, ""), (False, ", for processors as well")):
                note(f"ms, p99 quiet{name}", p99(server, folder, lambda: None, ahead))
                note(
                    f"ms, p99 at the default throttle{name}",
                    p99(server, folder, lambda: read_here(server.address, {}, PROBE_SECONDS + 1), ahead),
                )
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    for name, above, below in (
        ("keys/s, without Spark's start, to memkeys", "keys/s, unthrottled", "keys/s, memkeys"),
        ("keys/s, with Spark's start, to memkeys", "keys/s, Spark with its start", "keys/s, memkeys"),
        (
            "p99 of another client at the default throttle, to quiet",
            "ms, p99 at the default throttle",
            "ms, p99 quiet",
        ),
        (
            "p99 of one that waits for processors as well, to quiet",
            "ms, p99 at the default throttle, for processors as well",
            "ms, p99 quiet, for processors as well",
        ),
        ("memory of five times the keys, to that of one", "MB, all keys", "MB, a fifth of the keys"),
    ):
        found[name] = [a / b for a, b in zip(found[above], found[below], strict=True)]
    return found


def main(
    keys: Annotated[int, typer.Option(min=10_000, help="Keys of the server.")] = 1_000_000,
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the keys, once: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="Where every figure is kept, as JSON.")] = None,
    only: Annotated[str, typer.Option(hidden=True)] = "",
    address: Annotated[str, typer.Option(hidden=True)] = "",
    options: Annotated[str, typer.Option(hidden=True)] = "{}",
) -> None:
    """Measure what sizing costs, beside redis-cli --memkeys."""
    if only in ("spark", "warm"):
        print(json.dumps(read_with_spark(address, json.loads(options), only == "warm")))
        return
    if only == "memory":
        read_here(address, json.loads(options))
        print(json.dumps({"megabytes": most_megabytes()}))
        return
    if shutil.which("redis-cli") is None:
        raise SystemExit("redis-cli is missing: install redis-tools")
    found = asyncio.run(measure(keys // 10 if quick else keys, 1 if quick else turns))
    table = Table(title=f"Sizing {keys // 10 if quick else keys:,} keys")
    for heading in ("what", "median (range)", "goal", "verdict"):
        table.add_column(heading)
    for name, values in found.items():
        sign, bound = GOALS.get(name, ("", 0.0))
        median = statistics.median(values)
        met = median >= bound if sign == ">=" else median <= bound
        verdict = ("met" if met else "not met") if sign else ""
        table.add_row(name, report.Spread.of(values).show(), f"{sign} {bound:g}" if sign else "", verdict)
    Console(width=120).print(table)
    path = report.save("sizing", output, {"machine": report.machine(), "figures": found})
    print(f"kept in {path}")


if __name__ == "__main__":
    typer.run(main)
