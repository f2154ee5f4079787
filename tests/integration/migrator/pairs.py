"""A pair of real servers, and what tests of the migrator ask of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from migrator.connection import Timeouts
from migrator.move import migrate
from migrator.options import Confirmation, MoveOptions
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.withdrawing import withdraw
from slotferry.redis_server import RedisServer
from slots import functions, permits, reserved
from slots.access import ServerAccess
from slots.beginning import UNKNOWN, Beginning
from slots.keyslots import KeySlots

NUMBER_OF_SLOTS = 1024
INSTANCE = "5107fe44" * 4


def client_of(server: RedisServer, database: int = 0, password: str | None = None) -> Redis:
    """A client whose replies are bytes and lists, as the server gives them."""
    return Redis(host="127.0.0.1", port=server.port, db=database, password=password, protocol=2)


def slot_of(key: bytes) -> int:
    return functions.slot("crc32", key, NUMBER_OF_SLOTS)


@dataclass
class Pair:
    """A source and a target."""

    source: RedisServer
    target: RedisServer
    pace: Pace = field(default_factory=Pace)
    progress: Progress = field(default_factory=Progress)
    timeouts: Timeouts = field(default_factory=Timeouts)
    beginning: Beginning | None = None
    """What the action began with; by default, the servers as they are at the first call."""
    confirmation: Confirmation = field(default_factory=Confirmation)
    require: Callable[[], None] = lambda: None

    async def migrate(self, slots: Sequence[int] = range(NUMBER_OF_SLOTS), password: str | None = None) -> None:
        if self.beginning is None:
            # A connection that is refused finds out nothing.
            with suppress(RedisError):
                ends = self.source, self.target
                self.beginning = Beginning(*[await run_id_at(server, password) for server in ends])
        await migrate(
            self.source.address,
            self.target.address,
            slots,
            key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
            access=ServerAccess(password or ""),
            pace=self.pace,
            progress=self.progress,
            instance=INSTANCE,
            timeouts=self.timeouts,
            options=MoveOptions(self.beginning or UNKNOWN, self.confirmation, self.require),
        )
        access = ServerAccess(password or "")
        await withdraw(self.source.address, self.target.address, access=access, instance=INSTANCE)

    async def keys_moved(self, call: asyncio.Task[None], count: int) -> None:
        """Return once so many keys have moved. A call that ends before ends this with its own error."""
        await while_under_way(call, lambda: self.progress.keys_moved >= count)


async def while_under_way(call: asyncio.Task[None], holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once something holds. A call that ends before ends this with its own error."""
    async with asyncio.timeout(60):
        while True:
            ended = call.done()
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            if ended:
                await call
                pytest.fail("the call ended before")
            await asyncio.sleep(0.001)


async def run_id_at(server: RedisServer, password: str | None = None) -> str:
    async with client_of(server, password=password) as redis:
        return str((await redis.info("server"))["run_id"])


async def permit_at(source: Redis) -> str:
    """The permit by which keys leave a server; empty if none does."""
    found = (await source.hget(reserved.STATE, "permit") or b"").decode()
    return found if all(permits.processes_of(found)) else ""


async def size(redis: Redis) -> int:
    """Keys of the selected database, without Slotferry's own."""
    return int(await redis.dbsize()) - int(await redis.exists(*reserved.RESERVED_KEYS))


async def fill(redis: Redis, count: int, start: int = 0) -> None:
    """Set ``key:N`` to ``value:N``."""
    for first in range(start, start + count, 5000):
        await redis.mset({f"key:{n}": f"value:{n}" for n in range(first, min(first + 5000, start + count))})


async def assert_moved(source: Redis, target: Redis, count: int, slots: range = range(NUMBER_OF_SLOTS)) -> None:
    """Each ``key:N`` is on one server only, the right one, with its value."""
    for first in range(0, count, 5000):
        names = [f"key:{n}" for n in range(first, min(first + 5000, count))]
        at_source, at_target = await source.mget(names), await target.mget(names)
        for name, old, new in zip(names, at_source, at_target, strict=True):
            value = f"value:{name[4:]}".encode()
            assert (old, new) == ((None, value) if slot_of(name.encode()) in slots else (value, None)), name
