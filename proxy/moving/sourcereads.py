"""Reads of keys that go in pieces: until the copy is whole, the source owns the key, and reads run there.

This is **absent-first** the other way round: a read may run at the source only while the key is there. So it goes as a
transaction that first checks for its keys, in the same step. If a key has left meanwhile, the reply is thrown away, and
the session goes on waiting for the move, which is over by then. A command that may write waits in any case.

**by-action**: each connection first asks the source for its run id. If it is another process than the one that the
action began with, it may have older data, and nothing is read there (:mod:`slots.beginning`).

**bounded**: a reply is kept whole, up to the session's output limit.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from proxy.engine.backend import Backend, command
from proxy.engine.framing import EXEC, MULTI
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.moving.move import Origin
from proxy.settings import ProxySettings
from slots import commands
from slots.commands import CommandError
from slots.keys import KeysError
from slots.permits import run_id_of

WHO = command(("INFO", "server"))
Seen = tuple[list[int], bytes]
"""How many of the keys were there at each check, and the reply."""


@dataclass(eq=False, slots=True)
class Reading:
    """A connection to a source, and the process at its other end: ``run_id``, for the connection number
    ``identified``."""

    backend: Backend
    identified: int = 0
    run_id: str = ""

    def identify(self) -> None:
        """Ask for the run id before anything else is sent, unless it is known for this connection."""
        if not self.backend.is_ready or self.backend.connects != self.identified:
            self.backend.call(WHO, self._said)

    def _said(self, reply: bytes) -> None:
        # A refused question says nothing of the connection that comes up meanwhile.
        self.run_id = run_id_of(reply)
        self.identified = self.backend.connects if self.run_id else 0

    def leads_to(self, run_id: str) -> bool:
        """Whether this process gave the latest answer."""
        return bool(run_id) and (self.run_id, self.identified) == (run_id, self.backend.connects)


class SourceReads:
    """The reads of one worker's sessions at sources, over connections that carry nothing else.

    Args:
        router: gives the slot of a key.
        settings: limits.
    """

    def __init__(self, router: Router, settings: ProxySettings) -> None:
        self._router = router
        self._settings = settings
        self._readings: dict[tuple[str, int, int], Reading] = {}

    def begin(self, session: Session, origin: Origin, leave: Callable[[], bool]) -> None:
        """Read at the source, if the request at the front of ``session`` is a read of keys of one slot.

        Args:
            leave: ends the session's wait for the move; false if it no longer waits there.
        """
        front = session.front()
        if front is None:
            return
        argv, request = front
        keys = read_keys(argv)
        if not keys or len({self._router.slot_of_key(session.database, key) for key in keys}) != 1:
            return

        def answered(seen: Seen | None) -> None:
            if seen is not None and seen[0] == [len(keys)] and leave():
                session.complete(seen[1])

        self._transact(session, origin, [keys], request, answered)

    async def read(self, session: Session, origin: Origin, keys: list[bytes], request: bytes) -> Seen | None:
        """Which of a request's keys are there, and the reply of the same step; None if that is not known."""
        answered: asyncio.Future[Seen | None] = asyncio.get_running_loop().create_future()

        def answer(seen: Seen | None) -> None:
            if not answered.done():
                answered.set_result(seen)

        self._transact(session, origin, [[key] for key in keys], request, answer)
        return await answered

    def _transact(
        self,
        session: Session,
        origin: Origin,
        looks: list[list[bytes]],
        request: bytes,
        done: Callable[[Seen | None], None],
    ) -> None:
        reading = self._reading(origin.address, session.database, session.protocol)
        reading.identify()
        said: list[bytes] = []
        for payload in (MULTI, *(command(("EXISTS", *keys)) for keys in looks), request):
            reading.backend.call(payload, said.append)

        def ended(reply: bytes) -> None:
            if not reading.leads_to(origin.beginning.source):
                done(None)
            elif reply.startswith(b"-EXECABORT") and said[-1].startswith(b"-"):
                # It is refused in any case.
                done(([len(keys) for keys in looks], said[-1]))
            else:
                done(_seen(reply, len(looks)))

        reading.backend.call(EXEC, ended)

    def backend(self, source: str, database: int) -> Backend:
        """The connection to a source for commands in one database."""
        return self._reading(source, database, 2).backend

    def _reading(self, source: str, database: int, protocol: int) -> Reading:
        reading = self._readings.get((source, database, protocol))
        if reading is None:
            reading = self._readings[source, database, protocol] = Reading(
                Backend(
                    self._router.loop,
                    source,
                    database,
                    protocol,
                    self._router.options,
                    self._settings.backend_reply_seconds,
                )
            )
        return reading

    def keep(self, sources: set[str]) -> None:
        """Close the connections to all other sources."""
        for name, reading in list(self._readings.items()):
            if name[0] not in sources:
                reading.backend.close()
                del self._readings[name]

    def check_time(self) -> None:
        """Close connections whose replies are overdue."""
        for reading in list(self._readings.values()):
            reading.backend.check_time()

    def leave(self, sources: Collection[str]) -> None:
        """End the connections to these servers. A session that waits for a reply goes on waiting for the move."""
        for reading in list(self._readings.values()):
            if reading.backend.address in sources:
                reading.backend.reset("was left: it has failed or was replaced; the command may have run there")

    def reset(self, reason: str) -> None:
        """End every connection. A session that waits for a reply goes on waiting for the move."""
        for reading in list(self._readings.values()):
            reading.backend.reset(reason)


def _seen(reply: bytes, looks: int) -> Seen | None:
    header, *there = reply.split(b"\r\n", looks + 1)
    if header != b"*%d" % (looks + 1) or not all(re.fullmatch(rb":[0-9]{1,9}", line) for line in there[:looks]):
        return None
    return [int(line[1:]) for line in there[:looks]], there[looks]


def read_keys(argv: list[bytes]) -> list[bytes]:
    """The keys that a request reads, if it may run at a source; else none."""
    try:
        row = commands.find(argv)
        # absent-first: the command table says what is safe here. A server's claim that a command only reads is not
        # enough.
        return commands.keys_of(row, argv) if row.at_source else []
    except (CommandError, KeysError):
        return []
