"""COPY with the option DB, and MOVE: a key goes to another database of its slot, which is at the same server. If a rule
gives it another slot there, the command is refused.

A user limited to some databases may only use those as destinations.
"""

from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.databases import databases, elsewhere
from proxy.commands.databases.databases import DatabaseError
from proxy.commands.family import Family, Handler
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome, clear, nothing_owed
from proxy.engine.refusals import crossslot
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots import commands


class CopyAndMoveCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        refusal: the error for a database that the session's user may not use; None if it may.
    """

    def __init__(self, services: Services, refusal: Callable[[Session, int], bytes | None]) -> None:
        self._router = services.router
        self._databases = services.databases
        self._refusal = refusal

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"COPY": self.cross, "MOVE": self.cross}

    async def cross(self, session: Session, argv: list[bytes]) -> Outcome:
        """COPY source destination [DB index] [REPLACE], MOVE key index."""
        keys = commands.keys_of(commands.find(argv), argv)
        try:
            database = databases.target(argv, self._databases)
        except DatabaseError as error:
            return replies.error(str(error))
        if database is None or database == session.database:
            return keys
        refused = self._refusal(session, database)
        if refused is not None:
            return refused
        await nothing_owed()
        slot, address = await clear(keys[:1])
        # owned: a rule may give the key another slot there.
        if (there := self._router.slot_of_key(database, keys[-1])) != slot:
            return crossslot(keys[0], slot, keys[-1], there)
        if elsewhere.moves(self._router, slot):
            return elsewhere.MOVES
        backend = self._router.shared(session, address)
        return await slotrequests.send(self._router, slot, backend, command(tuple(argv)), 0, slotrequests.as_it_came)
