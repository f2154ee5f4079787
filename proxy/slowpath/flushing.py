"""FLUSHDB and FLUSHALL: what was there when the command came, and was not written since, is gone when it is answered.

While slots move, keys are on their way, too. They are in three places: at the source; at the target, where MIGRATE or
a mover has written them; and on the way between, in a socket's buffer at a target that is slow to read, or in the
memory of a migrator which carries them. So:

1. The sources are flushed. With the keys go the permit to move any and the claims on those that are carried
   (:mod:`slots.moving`): what is sent from now on was written later.
2. Every connection at a target over which a mover writes is ended by the target, with all that it had sent. A migrator
   begins anew, at a source that has nothing of before.
3. The targets are flushed.

What is known to be absent from a source (**one-way**) stays so: a flush only takes keys away. The marks that have to
outlive whoever is late (:data:`slots.moving.OUTLAST_FLUSH`) are kept, in the same step.

**bounded**: the second step by ``backend_reply_seconds`` for each server; an error says that the flush is not whole.
"""

import asyncio
from collections.abc import Callable

from proxy.engine.backend import command
from proxy.engine.session import AFTER_OWED, Session
from proxy.slowpath import replies
from proxy.slowpath.connection import SYNTAX_ERROR
from proxy.slowpath.family import Family, Handler, Outcome
from proxy.slowpath.fanout import FanOut, FanOutError
from proxy.slowpath.moves import Moves
from proxy.slowpath.services import Services
from slots.moving import FLUSH, OUTLAST_FLUSH, STATE


class FlushCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        moves: brings what the worker has seen of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._services = services
        self._fan_out = FanOut(services, moves)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"FLUSHDB": self.flush, "FLUSHALL": self.flush}

    def flush(self, session: Session, argv: list[bytes]) -> Outcome:
        """FLUSHDB [ASYNC|SYNC], FLUSHALL [ASYNC|SYNC]."""
        if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"ASYNC", b"SYNC")):
            return SYNTAX_ERROR
        if session.owed and argv[0].upper() == b"FLUSHALL":
            # in-order: what the session has sent in other databases goes over other connections.
            return AFTER_OWED
        return self._flush(session, argv)

    async def _flush(self, session: Session, argv: list[bytes]) -> bytes:
        keeping = command(("EVAL", FLUSH, 1 + len(OUTLAST_FLUSH), STATE, *OUTLAST_FLUSH, session.database, *argv))
        try:
            try:
                await self._fan_out.ask(session, keeping, self._settle)
            except FanOutError as error:
                if not error.reply.startswith(b"-NOPERM"):
                    raise
                # Without scripts nothing moves.
                await self._fan_out.ask(session, command(tuple(argv)))
        except FanOutError as error:
            return error.reply
        return replies.OK

    async def _settle(self, addresses: list[str]) -> bytes | None:
        permits = self._services.router.mover.permits
        reasons = await asyncio.gather(*(permits.end_under_way(address) for address in addresses))
        for address, reason in zip(addresses, reasons, strict=True):
            if reason is not None:
                return replies.error(
                    f"TRYAGAIN keys on their way to {address} may still arrive there ({reason}); not everything was"
                    " flushed"
                )
        return None
