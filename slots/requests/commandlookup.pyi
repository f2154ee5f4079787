from collections.abc import Callable, Mapping

from slots.commands import Command

class CommandLookup:
    def __init__(self, commands: Mapping[str, Command], number: Callable[[str], int] | None = None) -> None: ...
