"""SORT and SORT_RO. Their BY and GET patterns may name keys (:mod:`slots.sorting`,
:mod:`proxy.commands.scripting.unnamed`).
"""

from proxy.commands import replies
from proxy.commands.family import Decided, Family, Handler
from proxy.commands.scripting import unnamed
from proxy.commands.services import Services
from proxy.engine.session import Session
from slots import commands, sorting


class SortCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"SORT": self.sort, "SORT_RO": self.sort}

    def sort(self, session: Session, argv: list[bytes]) -> Decided:
        """SORT key [BY pattern] [GET pattern ...] [STORE destination] ..., and SORT_RO."""
        keys = commands.keys_of(commands.find(argv), argv)
        patterns = sorting.patterns(argv)
        slot = self._router.slot_of_key(session.database, argv[1])
        for option, pattern in patterns:
            if self._router.slot_of_pattern(session.database, pattern) != slot:
                return replies.error(sorting.denial(option))

        def refused() -> bytes | None:
            # absent-first: only the list tells which keys the patterns name.
            return unnamed.SORT_REFUSED if unnamed.moves(self._router, session.database, keys) else None

        return keys if not patterns or refused() is None else unnamed.run(argv, keys, refused)
