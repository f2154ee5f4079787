from collections.abc import Mapping

from slots.commands import Command

class CommandLookup:
    def __init__(self, commands: Mapping[str, Command]) -> None: ...
