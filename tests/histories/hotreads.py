"""Clients whose user has ``cached_reads``, beside all others: what they read of hot keys is theirs, and not old.

Each key has one client that writes it, over one connection after another, and one at another proxy that only reads it.
Both read it so often that their workers answer by themselves. No value comes twice. So the one who writes has to read
what it wrote last, and the other one no value for longer than :data:`PROMISED_SECONDS` after it was replaced.

After a write of unknown outcome, which may come at any later time, another key takes the key's place.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import hiredis

from tests.histories.clients import Connection, Lost, NotSent
from tests.histories.cluster import HOT_USER, PROXY_SETTINGS
from tests.histories.operations import Outcome, outcome_of
from tests.histories.report import Finding

KEYS = 2
AT_ONCE = 50
"""Reads of a pipeline."""
READ_SECONDS = 0.02
"""Between two pipelines."""
READS_A_WRITE = 15
"""Pipelines between two writes."""
PAUSE_SECONDS = 0.1
"""Before a client connects again."""
PROMISED_SECONDS = 2 * PROXY_SETTINGS["backend_reply_seconds"] + 1.0
"""For so long a value may be old (docs/hot-keys.md), with what a busy machine takes."""
SHOWN = 5


@dataclass(slots=True)
class HotKey:
    """A key, and the one that has it now.

    Attributes:
        prefix: of all its names.
        name: its present name.
        written: the seconds of the run when each of its values was acknowledged. The value is the place here.
    """

    prefix: str
    name: bytes = b""
    names: int = 0
    written: list[float] = field(default_factory=list)

    def renew(self) -> None:
        """Take another name."""
        self.names += 1
        self.name = f"{self.prefix}:{self.names}".encode()
        self.written = []


class HotReads:
    """The clients of a run, which read while it is a context.

    Args:
        proxies: addresses of the proxies.
        seed: of the run; part of the keys' names.
        now: the seconds of the run.
    """

    def __init__(self, proxies: Sequence[str], seed: int, now: Callable[[], float]) -> None:
        self.reads = 0
        """How many were answered."""
        self._found: list[tuple[bytes, str]] = []
        self._proxies = proxies
        self._keys = [HotKey(f"h{seed}:hot:{number}") for number in range(KEYS)]
        self._now = now

    async def __aenter__(self) -> Self:
        self._running = []
        for number, key in enumerate(self._keys):
            key.renew()
            for step, use in enumerate((self._write, self._read)):
                address = self._proxies[(number + step) % len(self._proxies)]
                self._running.append(asyncio.create_task(self._again(address, key, use)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def findings(self, is_excused: Callable[[str], bool]) -> list[Finding]:
        """What must not be, but of keys that a server may have lost."""
        found = [Finding("hot reads", text) for name, text in self._found if not is_excused(name.decode())]
        return found[:SHOWN]

    async def _again(self, address: str, key: HotKey, use: Callable[[Connection, HotKey], Any]) -> None:
        while True:
            with suppress(NotSent, Lost):
                connection = await Connection.open(address, 0)
                try:
                    if await connection.call([(b"AUTH", HOT_USER.encode(), HOT_USER.encode())]) == [b"OK"]:
                        await use(connection, key)
                finally:
                    connection.close()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, connection: Connection, key: HotKey) -> None:
        while True:
            await asyncio.sleep(READ_SECONDS)
            number = len(key.written)
            try:
                said, *read = await self._ask(connection, key, [(b"SET", key.name, b"%d" % number)])
            except Lost:
                key.renew()
                raise
            if said == b"OK":
                key.written.append(self._now())
            elif outcome_of(str(said)) is not Outcome.NOT_RUN:
                key.renew()
                continue
            self._compare(key, read)
            for _ in range(READS_A_WRITE):
                await asyncio.sleep(READ_SECONDS)
                self._compare(key, await self._ask(connection, key, []))

    def _compare(self, key: HotKey, read: list[Any]) -> None:
        """Whether the one who writes reads what it wrote."""
        last = b"%d" % (len(key.written) - 1) if key.written else None
        for reply in read:
            if reply != last and not isinstance(reply, hiredis.ReplyError):
                text = f"{key.name.decode()} was {reply!r} at {self._now():.4f} for the client that wrote {last!r} last"
                self._found.append((key.name, text))
                return

    async def _read(self, connection: Connection, key: HotKey) -> None:
        while True:
            await asyncio.sleep(READ_SECONDS)
            name, written, asked = key.name, key.written, self._now()
            for reply in set(map(_value, await self._ask(connection, key, []))):
                # The one that replaced it.
                number = 0 if reply is None else reply + 1
                if reply != ERROR and number < len(written) and written[number] + PROMISED_SECONDS < asked:
                    text = (
                        f"{name.decode()} was {reply!r} when it was asked for at {asked:.4f}, "
                        f"but {number} was written at {written[number]:.4f}"
                    )
                    self._found.append((name, text))

    async def _ask(self, connection: Connection, key: HotKey, before: list[tuple[bytes, ...]]) -> list[Any]:
        said = await connection.call([*before, *[(b"GET", key.name)] * AT_ONCE])
        self.reads += sum(not isinstance(reply, hiredis.ReplyError) for reply in said)
        return said


ERROR = -1


def _value(reply: Any) -> int | None:
    return ERROR if isinstance(reply, hiredis.ReplyError) else None if reply is None else int(reply)
