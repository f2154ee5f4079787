"""Asks every master, for a question that no single one can answer, or for a command that all have to run.

A command about the whole keyspace has to find each key while keys move. So while slots move, the masters that keys
leave are asked first. The masters that keys go to are asked after all of the first have answered. If a key has left its
source when the source is asked, the key is at the target when the target is asked. A master that is both is asked
twice. By **drained** no other slot can begin to move unseen. If this worker has seen one begin before all have
answered, all are asked again.

Where keys were copied, they are at the source, and at one moment at the target (**hidden**). By **drained** a slot is
locked at this worker then. So nobody is asked while it is, and all are asked again if it was.

**bounded**: in bytes by the session's output limit, over all replies together; in time by each connection's
``backend_reply_seconds``; in attempts by :data:`ATTEMPTS`. The first error is the reply.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.commands import replies
from proxy.commands.keyspace.listedkeys import ShownSlots
from proxy.commands.keyspace.moves import Moves
from proxy.commands.services import Services
from proxy.engine.outcomes import Answered, Reply, unlocked
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers import everywhere

ATTEMPTS = 5
ALWAYS_MOVING = (
    f"TRYAGAIN slots began to move during each of {ATTEMPTS} attempts to ask all servers; there is no complete answer"
)


class FanOutError(Answered):
    """Some server gave an error or no answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """The masters' replies, by address, in the order of their groups' ids."""

    first: dict[str, bytes]
    """The replies of all masters except those that keys only go to."""
    then: dict[str, bytes]
    """The replies of masters that keys go to; empty where none move."""
    shown: ShownSlots
    """The keys that are shown of each master, by the table of the question."""

    @property
    def latest(self) -> dict[str, bytes]:
        """The latest reply of each."""
        return self.first | self.then

    @property
    def all(self) -> list[tuple[str, bytes]]:
        """Every reply with its address, in the order of the questions."""
        return [*self.first.items(), *self.then.items()]


class FanOut:
    """Asks over the connections of the session's other requests, so that the replies include their effects.

    Args:
        services: the worker's parts.
        moves: brings the worker's view of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._router = services.router
        self._limit = services.settings.session_output_limit_bytes
        self._moves = moves

    async def ask(self, session: Session, request: bytes) -> Said:
        """Have every master run a request. Raises :class:`FanOutError`, and Answered."""
        for _ in range(ATTEMPTS):
            moves = await self.settled()
            shown, seen = moves.shown, (moves.begun, moves.switches)
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
            moves = self._moves()
            if seen == (moves.begun, moves.switches):
                return said
        raise FanOutError(replies.error(ALWAYS_MOVING))

    async def settled(self) -> Moves:
        """The moves, once no slot is locked whose keys were copied. Raises Answered if one is for too long."""
        await unlocked(lambda: self._moves().switching)
        return self._moves()

    async def ask_one(self, session: Session, address: str, request: bytes) -> bytes:
        """The reply of one master. Raises :class:`FanOutError`."""
        return (await self._ask(session, [address], request, _Budget(self._limit)))[address]

    async def _ask(
        self, session: Session, addresses: Iterable[str], request: bytes, budget: "_Budget"
    ) -> dict[str, bytes]:
        waiting: dict[str, Reply[bytes]] = {}
        for address in addresses:
            said = waiting[address] = Reply()
            self._router.shared(session, address).call(request, lambda reply, said=said: budget.keep(said, reply))  # type: ignore[misc]
        heard = {address: await said for address, said in waiting.items()}
        error = everywhere.first_error(heard)
        if error is not None:
            raise FanOutError(error)
        return heard


class _Budget:
    """Counts the bytes of replies, and keeps no reply beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def keep(self, said: Reply[bytes], reply: bytes) -> None:
        self._left -= len(reply)
        if self._left < 0:
            reply = replies.error(
                f"ERR the servers' replies are larger than the {self._limit} bytes that a client may be owed"
                " (session_output_limit_bytes)"
            )
        said.give(reply)
