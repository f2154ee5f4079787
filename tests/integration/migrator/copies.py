"""Two real servers, perhaps of different versions, and one big key that goes from one to the other in pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from migrator.connection import Connection, Timeouts
from migrator.errors import SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.options import Confirmation
from migrator.pace import Pace
from migrator.pieces.copying import Copied, copy
from migrator.pieces.cutter import PieceCutter
from migrator.pieces.finishing import finish
from migrator.pieces.piece import EXPIRY_SECONDS
from slotferry.redis_server import RedisServer
from slots.access import ServerAccess
from slots.permits import renew, withdraw
from tests.integration.migrator.pairs import client_of

KEY = b"big \x00\r\n key"
TEMPORARY = b"__slotferry:piece:1"

NASTY = [
    *(b"", b"0", b"-1", b"007", b"+5", b" 5", b"-0", b"1e5", b"nan", b"inf", b"9223372036854775807"),
    *(b"9223372036854775808", b"-9223372036854775808", b"127", b"128", b"4095", b"4096", b"32768", b"8388608"),
    *(b"\r\n", b"*1\r\n$4\r\nPING\r\n", bytes(range(256)), b"\x00", b"\xff" * 63, b"\xfe" * 64, b"\xfd" * 65),
    *(b"x" * 4095, b"y" * 8193, b"z" * 70_000),
]
"""Elements that a server keeps in special ways, or that a careless reader takes for something else."""


Action = Callable[[], Awaitable[object]]


class Interrupted(Pace):
    """A pace that does something when the piece of a given number, from 1 on, asks to go, and when later ones do."""

    def __init__(self, number: int, action: Action, later: dict[int, Action] | None = None) -> None:
        super().__init__()
        self.asked = 0
        self._actions = {number: action, **(later or {})}

    async def admit(self, keys: int, size: int) -> None:
        self.asked += 1
        if self.asked in self._actions:
            await self._actions[self.asked]()
        await super().admit(keys, size)


@dataclass
class Way:
    """From a source to a target."""

    source: Redis
    target: Redis
    from_source: Connection
    to_target: Connection
    cutter: PieceCutter = field(default_factory=PieceCutter)
    pace: Pace = field(default_factory=Pace)
    database: int = 0
    """The database that both connections have selected."""

    async def copy(self) -> Copied:
        return await copy(self.from_source, self.to_target, KEY, TEMPORARY, self.cutter, self.pace, Confirmation())

    async def finish(self, copied: Copied, *, permit: str = "", keeps_target: bool = False) -> bool | None:
        """The last step at the target; if no permit is given, one is set for this step alone."""
        permit = permit or await renew(self.from_source, self.to_target, "target")
        try:
            return await finish(
                self.to_target, permit, self.database, KEY, TEMPORARY, copied, keeps_target=keeps_target
            )
        finally:
            await withdraw(self.from_source, self.to_target)

    async def move(self) -> Copied:
        """All of it, without the delete at the source."""
        copied = await self.copy()
        assert await self.target.exists(KEY) == 0
        assert 0 < await self.target.pttl(TEMPORARY) <= EXPIRY_SECONDS * 1000
        assert await self.finish(copied)
        assert await self.target.keys() == [KEY]
        return copied

    async def raw(self, connection: Connection, *command: str | bytes | int) -> Any:
        """A reply as the server gives it."""
        return await connection.call(*command)


@asynccontextmanager
async def way_between(source: RedisServer, target: RedisServer, timeouts: Timeouts | None = None) -> AsyncIterator[Way]:
    """A way between two servers; both are emptied."""
    limits = timeouts or Timeouts()
    async with client_of(source) as at_source, client_of(target) as at_target:
        await at_source.flushall()
        await at_target.flushall()
        from_source = await Connection.open(
            source.address,
            name="source",
            access=ServerAccess(),
            unavailable=SourceUnavailable,
            refused=SourceRefused,
            timeouts=limits,
        )
        to_target = await Connection.open(
            target.address,
            name="target",
            access=ServerAccess(),
            unavailable=TargetUnavailable,
            refused=TargetRefused,
            timeouts=limits,
        )
        try:
            yield Way(at_source, at_target, from_source, to_target)
        finally:
            from_source.close()
            to_target.close()
