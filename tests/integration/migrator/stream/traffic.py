"""Clients that write keys of every type in several databases, with deadlines, until they are told to stop."""

import asyncio
import random
from collections.abc import Callable

from slotferry.redis_server import RedisServer
from tests.integration.migrator.pairs import client_of

DATABASES = (0, 3)
KEYS = 60
"""Of each type."""

Command = tuple[str | bytes | int | float, ...]


class Writer:
    """One client. Its commands come from a seed.

    Args:
        renames: whether keys are renamed and copied, to any other key.
        fields: whether fields of hashes get deadlines. Few do: their hashes are read within the lock.
    """

    def __init__(self, server: RedisServer, seed: int, *, renames: bool = True, fields: bool = False) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._renames = renames
        self._fields = fields
        self._stopped = False
        self.written = 0

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        clients = [client_of(self._server, database) for database in DATABASES]
        try:
            while not self._stopped:
                client = self._chance.choice(clients)
                pipe = client.pipeline(transaction=self._chance.random() < 0.2)
                for _ in range(self._chance.randrange(1, 12)):
                    pipe.execute_command(*self.command())
                # Some do not fit the key's type, or its absence.
                self.written += len(await pipe.execute(raise_on_error=False))
                await self.rest()
        finally:
            for client in clients:
                await client.aclose()

    async def rest(self) -> None:
        """Wait before the next commands."""
        await asyncio.sleep(0)

    def command(self) -> Command:
        """Any command."""
        kinds: list[Callable[[], Command]] = [
            *(self._string, self._list, self._set, self._sorted_set, self._hash, self._stream),
            *(self._string, self._deadline, self._removal),
            *((self._two,) if self._renames else ()),
            *((self._field,) if self._fields else ()),
        ]
        return self._chance.choice(kinds)()

    def _key(self, kind: str) -> str:
        return f"{kind}:{self._chance.randrange(KEYS)}"

    def _text(self) -> str:
        return f"value {self._chance.randrange(1000)}" * self._chance.choice((1, 1, 1, 30))

    def _string(self) -> Command:
        key, pick = self._key("string"), self._chance.randrange(9)
        number = f"number:{self._chance.randrange(KEYS)}"
        return (
            ("SET", key, self._text()),
            ("SET", key, self._text(), "PX", self._lives()),
            ("SET", key, self._text(), "KEEPTTL"),
            ("APPEND", key, self._text()),
            ("SETRANGE", key, 5, self._text()),
            ("INCR", number),
            ("INCRBYFLOAT", number, "0.5"),
            ("GETEX", key, "PX", self._lives()),
            ("MSET", key, self._text(), self._key("string"), self._text()),
        )[pick]

    def _lives(self) -> int:
        """Milliseconds."""
        return self._chance.choice((1, 50, 400, 2000, 3500, 60_000, 3_600_000, 10**9))

    def _deadline(self) -> Command:
        key = self._key(self._chance.choice(("string", "list", "set", "zset", "hash", "stream")))
        return (
            ("PEXPIRE", key, self._lives()),
            ("PEXPIRE", key, self._lives()),
            ("EXPIRE", key, 1 + self._lives() // 1000),
            ("PERSIST", key),
            ("PEXPIREAT", key, 1),
        )[self._chance.randrange(5)]

    def _removal(self) -> Command:
        keys = [self._key(self._chance.choice(("string", "list", "set", "zset", "hash"))) for _ in range(2)]
        return (self._chance.choice(("DEL", "UNLINK")), *keys)

    def _two(self) -> Command:
        kind = self._chance.choice(("string", "list", "set", "zset"))
        one, other = self._key(kind), self._key(kind)
        return (
            ("RENAME", one, other),
            ("COPY", one, other, "REPLACE"),
            ("COPY", one, other),
            ("RENAMENX", one, other),
            ("SORT", one, "ALPHA", "STORE", "list:0"),
            ("SUNIONSTORE", "set:0", self._key("set"), self._key("set")),
        )[self._chance.randrange(6)]

    def _list(self) -> Command:
        key, other = self._key("list"), self._key("list")
        return (
            ("RPUSH", key, self._text(), self._text()),
            ("LPUSH", key, self._text()),
            ("LPOP", key),
            ("LTRIM", key, 0, 200),
            ("LSET", key, 0, self._text()),
            ("LINSERT", key, "BEFORE", self._text(), "x"),
            ("LMOVE", key, other, "LEFT", "RIGHT"),
            ("BLPOP", key, 0.01),
        )[self._chance.randrange(8)]

    def _set(self) -> Command:
        key = self._key("set")
        return (
            ("SADD", key, self._chance.randrange(500), self._chance.randrange(500)),
            ("SADD", key, self._text()),
            ("SREM", key, self._chance.randrange(500)),
            ("SPOP", key),
            ("SPOP", key, 3),
            ("SMOVE", key, self._key("set"), self._chance.randrange(500)),
        )[self._chance.randrange(6)]

    def _sorted_set(self) -> Command:
        key, score = self._key("zset"), self._chance.uniform(-1e9, 1e9)
        return (
            ("ZADD", key, repr(score), self._text()),
            ("ZADD", key, "inf", "most", "-inf", "least"),
            ("ZINCRBY", key, repr(score / 3), self._text()),
            ("ZREM", key, self._text()),
            ("ZPOPMIN", key),
            ("ZREMRANGEBYRANK", key, 100, -1),
        )[self._chance.randrange(6)]

    def _hash(self) -> Command:
        key, field = self._key("hash"), f"field {self._chance.randrange(300)}"
        return (
            ("HSET", key, field, self._text()),
            ("HSETNX", key, field, self._text()),
            ("HINCRBY", key, "counter", 3),
            ("HINCRBYFLOAT", key, "float", "0.1"),
            ("HDEL", key, field),
        )[self._chance.randrange(5)]

    def _field(self) -> Command:
        key, field = f"hash:{self._chance.randrange(KEYS // 4)}", f"field {self._chance.randrange(300)}"
        return (
            ("HPEXPIRE", key, self._lives(), "FIELDS", 1, field),
            ("HEXPIRE", key, 1 + self._lives() // 1000, "FIELDS", 1, field),
            ("HPERSIST", key, "FIELDS", 1, field),
            ("HSETEX", f"hash:{self._chance.randrange(KEYS)}", "FIELDS", 1, field, self._text()),
            ("HSETEX", key, "PX", self._lives(), "FIELDS", 1, field, self._text()),
            ("HGETDEL", key, "FIELDS", 1, field),
            ("HGETEX", key, "PX", self._lives(), "FIELDS", 1, field),
        )[self._chance.randrange(7)]

    def _stream(self) -> Command:
        key = self._key("stream")
        return (
            ("XADD", key, "*", "field", self._text()),
            ("XADD", key, "MAXLEN", "~", 50, "*", "field", self._text()),
            ("XADD", key, "MAXLEN", "~", 100, "LIMIT", 200, "*", "field", self._text()),
            ("XGROUP", "CREATE", key, "group", "$", "MKSTREAM"),
            ("XREADGROUP", "GROUP", "group", f"consumer {self._chance.randrange(3)}", "COUNT", 5, "STREAMS", key, ">"),
            ("XTRIM", key, "MAXLEN", 20),
            ("XAUTOCLAIM", key, "group", "other", 0, "0", "COUNT", 2),
            ("XADD", key, "*", "other", self._text(), "field", "x"),
        )[self._chance.randrange(8)]


async def filled(server: RedisServer, seed: int, commands: int) -> None:
    """Write so many commands."""
    writer = Writer(server, seed)
    for database in DATABASES:
        async with client_of(server, database) as client:
            pipe = client.pipeline(transaction=False)
            for _ in range(commands // len(DATABASES)):
                pipe.execute_command(*writer.command())
            await pipe.execute(raise_on_error=False)
