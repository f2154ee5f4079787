"""Data to be sized, and its truth asked key by key."""

import random
from dataclasses import dataclass
from typing import Any

import redis

from sizing.options import ReadOptions
from sizing.partitions import ScanPartition
from sizing.scan import read_partition
from sizing.schema import SERVER_COLUMNS
from sizing.selection import Selection
from slotferry.redis_server import RedisServer
from slots import functions

ALL = tuple(column.name for column in SERVER_COLUMNS)
DATABASES = (0, 3, 9)


def client_of(server: RedisServer, database: int = 0) -> "redis.Redis":
    return redis.Redis(port=server.port, db=database, protocol=2)


def fill(server: RedisServer, keys: int, databases: tuple[int, ...] = DATABASES) -> None:
    """Keys of every type, small and big, with and without a deadline, and names of every kind of byte."""
    draw = random.Random(5)
    for database in databases:
        client = client_of(server, database)
        client.flushdb()
        with client.pipeline(transaction=False) as pipe:
            for number in range(keys):
                _add(pipe, draw, number)
            pipe.set(b"{tag}\x00\xff\r\n", "v").set(b"", "the key without a name").set("n", 17)
            pipe.set("big", "x" * 100_000).rpush("{tag}long", *range(5_000)).sadd("numbers", *range(400))
            pipe.hset("{}hash", mapping={f"field {i}": "y" * i for i in range(800)})
            pipe.set(b"__slotferry:moving", "Slotferry's own").execute()
        client.close()


def _add(pipe: Any, draw: random.Random, number: int) -> None:
    size = draw.choice((1, 3, 20, 200))
    key = f"user:{number}" if number % 3 else f"{{session:{number}}}:x"
    match number % 6:
        case 0 | 1:
            pipe.set(key, "v" * size)
        case 2:
            pipe.rpush(key, *range(size))
        case 3:
            pipe.sadd(key, *(f"m{i}" for i in range(size)))
        case 4:
            pipe.zadd(key, {f"m{i}": i for i in range(size)})
        case 5 if size == 3:
            pipe.xadd(key, {"field": "value"})
        case 5:
            pipe.hset(key, mapping={f"f{i}": i for i in range(size)})
    if number % 4 == 0:
        pipe.pexpire(key, 3_600_000 + number)


LENGTHS = {"string": "STRLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "hash": "HLEN", "stream": "XLEN"}


@dataclass(frozen=True)
class Truth:
    type: str
    encoding: str
    bytes: int
    elements: int
    expires: bool
    slot: int


def truth(server: RedisServer, database: int, samples: int = 5) -> dict[bytes, Truth]:
    """What the server says of each key, asked one by one."""
    client = client_of(server, database)
    keys = [key for key in client.keys("*") if not key.startswith(b"__slotferry:")]

    def ask(*commands: tuple[Any, ...]) -> list[Any]:
        replies: list[Any] = []
        for first in range(0, len(commands), 1_000):
            pipe = client.pipeline(transaction=False)
            for command in commands[first : first + 1_000]:
                pipe.execute_command(*command)
            replies += pipe.execute()
        return replies

    kinds = [kind.decode() for kind in ask(*(("TYPE", key) for key in keys))]
    found = zip(
        kinds,
        [name.decode() for name in ask(*(("OBJECT", "ENCODING", key) for key in keys))],
        ask(*(("MEMORY", "USAGE", key, "SAMPLES", samples) for key in keys)),
        ask(*((LENGTHS[kind], key) for kind, key in zip(kinds, keys, strict=True))),
        [left >= 0 for left in ask(*(("PTTL", key) for key in keys))],
        [functions.slot("crc32", key, 1024) for key in keys],
        strict=True,
    )
    client.close()
    return dict(zip(keys, (Truth(*each) for each in found), strict=True))


def seen(row: dict[str, Any]) -> Truth:
    """What a row of all columns says."""
    return Truth(
        row["type"], row["encoding"], row["bytes"], row["elements"], row["ttl_ms"] is not None, row["slot"]
    )  # fmt: skip


def options_of(*servers: RedisServer, **options: object) -> ReadOptions:
    named = ",".join(server.address for server in servers)
    return ReadOptions.of({"servers": named, **{name: str(value) for name, value in options.items()}})


def selection(*columns: str, **narrowed: Any) -> Selection:
    return Selection(tuple((column, True) for column in columns or ALL), **narrowed)


def rows_of(partitions: list[ScanPartition], options: ReadOptions, chosen: Selection) -> list[dict[str, Any]]:
    """All rows of partitions."""
    return [
        row
        for partition in partitions
        for batch in read_partition(partition, options, chosen)
        for row in batch.to_pylist()
    ]
