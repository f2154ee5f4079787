"""How far each master is in its stream of writes: noted while it can be asked, and stored for the next leader.

A replica takes the place of a failed master only if it is near what the master had (:mod:`topom.masters.failover`), and
a failed master cannot tell that. So topom asks every master that has replicas each :data:`NOTE_SECONDS`, and as soon as
a group has changed. It asks as long as the master answers topom itself, whatever other views say. (A master begins
another stream when it becomes a master, and when its first replica connects.) What the master says is stored when it is
in another stream, or has gone on by a good part of what a replica may lack. So a topom that has just begun to lead
knows how far the master was, except for that part, and for what was written while no topom led.

**bounded**: one entry for each group; one write for all groups, and none while clients write little. A master that
hangs holds nothing up: nothing else waits for these questions.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from slots.group import Group
from slots.ranges import show
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Noted
from topom.periodic import Look, Loop
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, look_at_all

NOTE_SECONDS = 1.0
"""Seconds between two questions to all masters, while no group changes."""
LATELY_SECONDS = 1.5
"""How many seconds old their answers may be then: topom asks them that often in any case
(:mod:`topom.servers.health`)."""
SHARE = 8
"""What is stored is behind what was noted by at most one part in so many of what a replica may lack."""


def with_noted(state: ClusterState, noted: dict[int, Noted]) -> ClusterState:
    """The state with these notes of how far masters are, and without the notes of groups that need none.

    A note of a former master says nothing of the present master.
    """
    masters = {group.id: group.servers[0] for group in state.table.groups.values() if group.replicas}
    entries = [*state.offsets.items(), *noted.items()]
    offsets = {number: entry for number, entry in entries if masters.get(number) == entry.server}
    return replace(state, offsets=offsets) if offsets != state.offsets else state


class Offsets(Loop):
    """The masters of one topom's groups.

    Args:
        hears: whether a server has answered this topom just now.
        lag_bytes: how many bytes a replica may be behind.
    """

    name = "offsets"
    pause_seconds: ClassVar[float | None] = 0.1

    def __init__(
        self, ledger: Ledger, replication: ServerReplication, hears: Callable[[str], bool], lag_bytes: int
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._replication = replication
        self._hears = hears
        self._part = lag_bytes // SHARE
        self._seen: dict[int, Noted] = {}
        self._asked_at: dict[int, float] = {}
        self._is_changed = True
        ledger.listen(self._changed)

    def of(self, group: Group) -> Noted | None:
        """How far a group's master was when it was last asked, by this topom or an earlier leader; None if that is not
        known.
        """
        for found in (self._seen.get(group.id), self._ledger.state.offsets.get(group.id)):
            if found is not None and found.server == group.servers[0]:
                return found
        return None

    def age(self, group: Group) -> float:
        """How many seconds ago this very topom asked the group's master and had an answer; infinity if never."""
        found = self._seen.get(group.id)
        if found is None or found.server != group.servers[0]:
            return math.inf
        return asyncio.get_running_loop().time() - self._asked_at[group.id]

    async def look(self) -> Look:
        """Ask all masters now if a group has changed; else take what they have said lately."""
        seconds = 0.0 if self._is_changed else LATELY_SECONDS
        self._is_changed = False
        await self.ask(seconds)
        silent = [group.id for group in self._ledger.table.groups.values() if group.replicas and self.of(group) is None]
        says = f"how far their masters are is not known of groups {show(silent)}" if silent else ""
        return Look(says, NOTE_SECONDS)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        # A server that has just stopped joining was seen whole: its stream is its master's.
        if old.table.groups != new.table.groups or old.joining != new.joining:
            self._is_changed = True
            self.wake()

    async def ask(self, seconds: float = 0.0) -> None:
        """Ask all masters that answer, and store what is news. Raises as :meth:`topom.cluster.ledger.Ledger.change`.

        Args:
            seconds: how many seconds ago they may have been asked.
        """
        groups = [group for group in self._ledger.table.groups.values() if group.replicas]
        self._seen = {group.id: self._seen[group.id] for group in groups if group.id in self._seen}
        self._asked_at = {number: self._asked_at[number] for number in self._seen}
        asked = {group.id: group.servers[0] for group in groups if self._hears(group.servers[0])}
        began = asyncio.get_running_loop().time() - seconds
        said = await look_at_all(self._replication, sorted(set(asked.values())), seconds)
        for number, server in asked.items():
            found = said[server]
            known = self._seen.get(number)
            if known is not None and known.server == server and self._asked_at[number] > began:
                continue  # what is known may be newer
            if isinstance(found, Replication) and found.is_master and found.stream:
                self._seen[number] = Noted(server, found.stream, found.offset)
                self._asked_at[number] = began
        news = {number: noted for number, noted in self._seen.items() if self._is_news(number, noted)}
        if news or self._ledger.state.offsets.keys() - {group.id for group in groups}:
            await self._ledger.change(lambda state, epoch: with_noted(state, news))

    def _is_news(self, number: int, noted: Noted) -> bool:
        stored = self._ledger.state.offsets.get(number)
        if stored is None or (stored.server, stored.stream) != (noted.server, noted.stream):
            return True
        return noted.offset < stored.offset or noted.offset > stored.offset + self._part
