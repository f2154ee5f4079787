"""Asking every master what no single one knows, or having all of them do it.

A command about the whole keyspace has to find each key exactly where it is, while keys move. So where slots move,
the masters that keys come from are asked first, and those that keys go to only after all of these have answered: a
key that has left its source by the time that the source is asked is at the target by the time that the target is.
A master that is both is asked twice. **drained** lets no other slot begin to move unseen: if this worker has seen one
begin by the time that all have answered, all are asked again.

**bounded**: in bytes by the session's output limit, over all replies together; in time by each connection's
``backend_reply_seconds``; in attempts by :data:`ATTEMPTS`. The first error speaks for all.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.engine.session import Session
from proxy.slowpath import everywhere, replies
from proxy.slowpath.everywhere import NO_SERVER
from proxy.slowpath.listedkeys import ShownSlots
from proxy.slowpath.moves import Moves
from proxy.slowpath.services import Services

ATTEMPTS = 5
ALWAYS_MOVING = (
    f"TRYAGAIN slots began to move during each of {ATTEMPTS} attempts to ask all servers; what they said was not put "
    "together"
)


class FanOutError(Exception):
    """Not all have answered well. ``reply`` is the error for the client."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Said:
    """What the masters have said, by address in the order of their groups' ids."""

    first: dict[str, bytes]
    """All but those that keys only go to."""
    then: dict[str, bytes]
    """Those that keys go to; empty where none move."""
    shown: ShownSlots
    """Which keys are shown of each, as of when they were asked."""

    @property
    def latest(self) -> dict[str, bytes]:
        """The last word of each."""
        return self.first | self.then

    @property
    def all(self) -> list[tuple[str, bytes]]:
        """Every reply and whose it is, in the order in which they were asked for."""
        return [*self.first.items(), *self.then.items()]


class FanOut:
    """Asks over the connections that a session's other requests go over, so that it finds what they have done.

    Args:
        services: the worker's parts.
        moves: brings what the worker has seen of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._router = services.router
        self._limit = services.settings.session_output_limit_bytes
        self._moves = moves

    async def ask(self, session: Session, request: bytes) -> Said:
        """Have every master run a request. Raises :class:`FanOutError`."""
        for _ in range(ATTEMPTS):
            moves = self._moves()
            begun, shown = moves.begun, moves.shown
            masters = dict(moves.masters)
            sources = {source for source, _ in moves.edges}
            targets = {target for _, target in moves.edges} & masters.keys()
            if not masters:
                raise FanOutError(NO_SERVER)
            first = [master for group, master in masters.items() if group not in targets or group in sources]
            budget = _Budget(self._limit)
            said_first = await self._ask(session, first, request, budget)
            said = Said(
                said_first,
                await self._ask(session, [masters[group] for group in sorted(targets)], request, budget),
                shown,
            )
            if self._moves().begun == begun:
                return said
        raise FanOutError(replies.error(ALWAYS_MOVING))

    async def ask_one(self, session: Session, address: str, request: bytes) -> bytes:
        """The reply of one master. Raises :class:`FanOutError`."""
        return (await self._ask(session, [address], request, _Budget(self._limit)))[address]

    async def _ask(
        self, session: Session, addresses: Iterable[str], request: bytes, budget: "_Budget"
    ) -> dict[str, bytes]:
        loop = asyncio.get_running_loop()
        waiting: dict[str, asyncio.Future[bytes]] = {}
        for address in addresses:
            said: asyncio.Future[bytes] = loop.create_future()
            waiting[address] = said
            self._router.shared(session, address).call(request, lambda reply, said=said: budget.keep(said, reply))  # type: ignore[misc]
        heard = {address: await said for address, said in waiting.items()}
        error = everywhere.first_error(heard)
        if error is not None:
            raise FanOutError(error)
        return heard


class _Budget:
    """Counts the bytes of replies, and keeps none beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def keep(self, said: "asyncio.Future[bytes]", reply: bytes) -> None:
        self._left -= len(reply)
        if self._left < 0:
            reply = replies.error(
                f"ERR the servers' replies are larger than the {self._limit} bytes that a client may be owed"
                " (session_output_limit_bytes)"
            )
        # Whoever asked may have gone.
        if not said.done():
            said.set_result(reply)
