"""Lets the migration halt and go on by its hours, and measures how fast keys move."""

from topom.migration.actions import Actions
from topom.periodic import Look, Loop

LOOK_SECONDS = 1.0
"""Seconds between two looks at whether the hours of migration have begun or are over."""


class Clock(Loop):
    """The clock of one topom's migration."""

    name = "hours"

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._actions = actions

    async def look(self) -> Look:
        """Follow the clock."""
        self._actions.follow_clock()
        halted = self._actions.halted()
        return Look(f"keys move only if clients ask for them: {halted}" if halted is not None else "", LOOK_SECONDS)
