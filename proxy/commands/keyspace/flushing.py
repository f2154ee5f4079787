"""FLUSHDB and FLUSHALL: keys that were there when the command came, and not written since, are gone when it is
answered.

For each key there is one moment at which it goes, even if its slot moves. Nothing that was acknowledged later is
removed, even if the client gets an error. An error means that some keys may be gone, and that the command should be
sent again. :mod:`slots.flushes` says how this holds while slots move. This module runs the steps:

1. The permit to move keys is withheld at every server, and the claims on keys that are on their way are removed. Steps
   that movers have already sent then do nothing.
2. Every server is flushed.
3. Keys may move again.

**drained**: a flush counts as under way for every slot, so no slot begins to move or is turned round during it, and
this worker knows all moves. A flush lets a waiting lock go first, so that a series of flushes does not hold the lock
up. A failover does not wait for a master that is lost: the flush then gives an error.

Keys that are known to be absent from a source (**one-way**) stay absent, for a flush only removes keys. Marks that late
processes have to find (:data:`slots.reserved.OUTLAST_FLUSH`) are kept, in the same step.

The masters of groups without slots are flushed, too: they may have keys of slots that are offline by now.

**bounded**: each step by ``backend_reply_seconds`` for each server, the wait for a lock by ``lock_drain_seconds``.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection

from proxy.commands import replies
from proxy.commands.arguments import SYNTAX_ERROR
from proxy.commands.family import Family, Handler, to_its_end
from proxy.commands.keyspace.moves import Moves
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome, nothing_owed
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers import everywhere
from slots.flushes import FLUSH, RELEASE, WITHHOLD
from slots.reserved import FLUSH_FIELD, OUTLAST_FLUSH, STATE

LOOK_SECONDS = 0.005
"""Seconds between two checks whether a lock has been taken."""
INTERRUPTED = replies.error(
    "TRYAGAIN a server was replaced, or keys moved again, while the servers were flushed; not everything may be gone"
)
NO_SCRIPTS = b"-NOPERM"


class FlushCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        moves: brings the worker's view of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._services = services
        self._router = services.router
        self._moves = moves

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"FLUSHDB": self.flush, "FLUSHALL": self.flush}

    async def flush(self, session: Session, argv: list[bytes]) -> Outcome:
        """FLUSHDB [ASYNC|SYNC], FLUSHALL [ASYNC|SYNC]."""
        if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"ASYNC", b"SYNC")):
            return SYNTAX_ERROR
        if session.owed and argv[0].upper() == b"FLUSHALL":
            # in-order: the session's requests in other databases use other connections.
            await nothing_owed()
        return await to_its_end(self._router, self._flush(session, argv))

    async def _flush(self, session: Session, argv: list[bytes]) -> bytes:
        loop = self._router.loop
        latest = time.monotonic() + self._services.settings.lock_drain_seconds
        while loop.on_drained is not None and time.monotonic() < latest:
            await asyncio.sleep(LOOK_SECONDS)
        slots = range(loop.number_of_slots)
        for slot in slots:
            # drained
            loop.hold_slot(slot)
        try:
            return await self._flush_all(session, argv)
        finally:
            for slot in slots:
                loop.release_slot(slot)

    async def _flush_all(self, session: Session, argv: list[bytes]) -> bytes:
        moves = self._moves()
        masters, seen = moves.masters, self._seen()
        servers = self._services.every_master()
        if not servers:
            return NO_SERVER
        ends = {masters[group] for edge in moves.edges for group in edge if group in masters}
        if not ends:
            return await self._flush_each(session, servers, "", argv) or replies.OK
        field = FLUSH_FIELD + secrets.token_hex(8)
        error = await self._withhold(session, servers, field)
        if error is None and seen != self._seen():
            error = INTERRUPTED
        if error is None:
            error = await self._flush_each(session, servers, field, argv)
        release = command(("EVAL", RELEASE.text, 1, STATE, field))
        if error is not None:
            # bounded: a server that does not answer was waited for. If the flush arrives late, it is refused there.
            for address in servers:
                self._router.shared(session, address).call(release, _drop)
            return error
        released = await self._ask(session, servers, release)
        held = all(reply == b":1\r\n" or reply.startswith(NO_SCRIPTS) for reply in released.values())
        # run-id: a server that was restarted may have data from before.
        return replies.OK if held and seen == self._seen() else INTERRUPTED

    def _seen(self) -> tuple[int, int]:
        """A value that changes with the proxy's identity and with the master of any group."""
        moves = self._moves()
        return moves.known_since, moves.masters_changed

    async def _withhold(self, session: Session, servers: Collection[str], field: str) -> bytes | None:
        heard = await self._ask(session, servers, command(("EVAL", WITHHOLD.text, 1, STATE, field)))
        may = {address: reply for address, reply in heard.items() if not reply.startswith(NO_SCRIPTS)}
        return everywhere.first_error(may)

    async def _flush_each(
        self, session: Session, servers: Collection[str], field: str, argv: list[bytes]
    ) -> bytes | None:
        keeping = command(("EVAL", FLUSH.text, len(OUTLAST_FLUSH), *OUTLAST_FLUSH, field, session.database, *argv))
        heard = await self._ask(session, servers, keeping)
        without = [address for address, reply in heard.items() if reply.startswith(NO_SCRIPTS)]
        # Where scripts cannot run, nothing moves.
        heard |= await self._ask(session, without, command(tuple(argv)))
        return everywhere.first_error(heard)

    async def _ask(self, session: Session, servers: Collection[str], request: bytes) -> dict[str, bytes]:
        """The servers' replies, over the connections of the session's other requests."""
        return await everywhere.ask_each([self._router.shared(session, address) for address in servers], request)


def _drop(reply: bytes) -> None:
    """Drop a reply that no client waits for."""
