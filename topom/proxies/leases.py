"""Finds the proxies whose lease has ended.

A lease is counted only while this process runs. If the process was held up, heartbeats wait unread: the silence is its
own, not that of the proxies.
"""

import asyncio
from typing import ClassVar

from slots.ranges import show
from topom.periodic import Look, Loop
from topom.proxies.members import Members

LOOKS = 20
"""How many looks there are in the time of one lease."""


class Leases(Loop):
    """The leases of one topom's proxies."""

    name = "leases"
    pause_seconds: ClassVar[float | None] = 0.0

    def __init__(self, members: Members) -> None:
        super().__init__()
        self._members = members
        self._interval = members.lease_seconds / LOOKS
        self._looked_at: float | None = None

    async def look(self) -> Look:
        """Find the proxies that are lost now."""
        now = asyncio.get_running_loop().time()
        if self._looked_at is not None:
            late = now - self._looked_at - self._interval
            if late > self._interval:
                self._members.allow(late)
        self._looked_at = now
        lost = self._members.lose_silent()
        says = f"proxies are lost: {show(member.record.id for member in lost)}" if lost else ""
        return Look(says, self._interval)
