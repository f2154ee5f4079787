"""What the servers of all groups say, for the live picture.

Groups are asked in turn, so that thousands of servers cost no more than some. What needs no question is seen at each
look: a group that has changed, and a server's condition. Its servers are then asked first.

**bounded**: one turn at a time, of :data:`MOST_SERVERS` and one group more, and the next :data:`TURN_SECONDS` after it.
"""

import asyncio
from collections import deque
from typing import Any

from slots.table import SlotTable
from topom.api import groups
from topom.api.group_models import Group
from topom.api.live.picture import rounded
from topom.cluster.state import known_servers
from topom.servers.readings import Reading
from topom.term.service import Topom

TURN_SECONDS = 1.0
MOST_SERVERS = 30
"""Servers that are asked in a turn. Half a millisecond of topom's time each: 1.5% of a core."""
FIGURES = {"keys", "memory_bytes", "lag_bytes"}
"""Of a server, what changes all the time: it is told apart, and in short."""

Known = tuple[object, ...]
"""Of a group, what is known without a question."""


class Servers:
    """The groups of one topom, as sections of its live picture.

    Attributes:
        groups, figures: the sections; what is as usual is left out.
    """

    def __init__(self, topom: Topom) -> None:
        self._topom = topom
        self._said: dict[str, Reading | None] = {}
        self._known: dict[int, Known] = {}
        self._groups: dict[int, Group] = {}
        self._urgent: dict[int, None] = {}
        """Groups that have changed, the one that changed first at the front."""
        self._round: deque[int] = deque()
        """The other groups, in turn."""
        self._turn: asyncio.Task[dict[str, Reading | None]] | None = None
        self._began_at = 0.0
        self.groups: dict[str, Any] = {}
        self.figures: dict[str, Any] = {}

    @property
    def described(self) -> list[Group]:
        """Every group with its servers' status, by id."""
        return [self._groups[group] for group in sorted(self._groups)]

    async def first(self) -> None:
        """Wait until the first turn is over."""
        self.look()
        if self._turn is not None:
            await asyncio.wait((self._turn,))

    def look(self) -> None:
        """Take what has been said, see what has changed, and have servers asked if it is time."""
        table = self._topom.ledger.table
        changed = self._take_turn(table)
        self._forget(table)
        for group in table.groups:
            known = self._without_asking(table, group)
            if self._known.get(group) != known:
                self._known[group] = known
                self._urgent[group] = None
                changed.add(group)
        if changed:
            self._describe(table, changed & table.groups.keys())
        now = asyncio.get_running_loop().time()
        if self._turn is None and table.groups and now - self._began_at >= TURN_SECONDS:
            self._began_at = now
            self._turn = asyncio.create_task(self._ask(self._next(table)))

    async def close(self) -> None:
        """End the turn that is under way."""
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)

    def _take_turn(self, table: SlotTable) -> set[int]:
        """Groups whose servers have been asked since the last time."""
        if self._turn is None or not self._turn.done():
            return set()
        said, self._turn = self._turn.result(), None
        present = {address for group in table.groups.values() for address in group.servers}
        self._said = {address: found for address, found in (self._said | said).items() if address in present}
        return {group.id for group in table.groups.values() if not said.keys().isdisjoint(group.servers)}

    def _forget(self, table: SlotTable) -> None:
        gone = self._known.keys() - table.groups.keys()
        for group in gone:
            del self._known[group]
            self._groups.pop(group, None)
        if gone:
            self.groups = {name: said for name, said in self.groups.items() if int(name) not in gone}
            self.figures = {name: said for name, said in self.figures.items() if int(name) not in gone}

    def _without_asking(self, table: SlotTable, group: int) -> Known:
        found = table.groups[group]
        conditions = tuple(self._topom.health.condition_of(address) for address in found.servers)
        return self._topom.masters.reasons.get(group), found, len(table.by_group[group]), conditions

    def _describe(self, table: SlotTable, changed: set[int]) -> None:
        described, figures = dict(self.groups), dict(self.figures)
        for group in changed:
            found = self._groups[group] = groups.describe_one(self._topom, table, group, self._said)
            described[str(group)] = found.model_dump(
                mode="json", exclude={"servers": {"__all__": FIGURES}}, exclude_defaults=True
            )
            figures[str(group)] = [
                [server.keys, None if server.memory_bytes is None else rounded(server.memory_bytes), server.lag_bytes]
                for server in found.servers
            ]
        self.groups, self.figures = described, figures

    def _next(self, table: SlotTable) -> list[str]:
        """The servers of the next turn."""
        found: dict[str, None] = {}
        self._round = self._round or deque(sorted(table.groups))
        while len(found) < MOST_SERVERS and (self._urgent or self._round):
            group = next(iter(self._urgent)) if self._urgent else self._round.popleft()
            self._urgent.pop(group, None)
            if group in table.groups:
                found.update(dict.fromkeys(table.groups[group].servers))
        return list(found)

    async def _ask(self, servers: list[str]) -> dict[str, Reading | None]:
        await self._topom.servers.keep_only(known_servers(self._topom.ledger.state))
        answers = await asyncio.gather(*(self._topom.servers.read(address) for address in servers))
        return dict(zip(servers, answers, strict=True))
