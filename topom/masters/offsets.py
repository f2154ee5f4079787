"""How far each master is in its stream of writes: noted while it can be asked, and stored for whoever leads next.

A replica takes the place of a failed master only if it is near what the master had (:mod:`topom.masters.failover`),
which the master cannot tell any more. So every master that has replicas is asked each :data:`NOTE_SECONDS`, and as soon
as a group has changed, whatever others think of it, for as long as topom's own questions are answered. (A master begins
another stream when its first replica connects, and when it becomes one.) What it says is stored when it is in another
stream, or has gone on in it by a good part of what a replica may lack; so a topom that has just come to lead knows how
far the master was, but for that part and for what was written while nobody led.

**bounded**: one entry a group; one write for all groups, and none while little is written. A master that hangs holds
nothing up: nobody waits for these questions.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from slots.ranges import show
from slots.table import Group
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Noted
from topom.periodic import Look, Loop
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, look_at_all

NOTE_SECONDS = 1.0
"""Between two questions to all masters, where no group changes."""
LATELY_SECONDS = 1.5
"""How old what they have said may be then: they are asked as often in any case (:mod:`topom.servers.health`)."""
SHARE = 8
"""What is stored is behind what was noted by less than this part of what a replica may lack."""


def with_noted(state: ClusterState, noted: dict[int, Noted]) -> ClusterState:
    """The state in which masters were noted to be so far; without what it has of groups that need no such note.

    What was said by a server that is its group's master no more says nothing of the one that is.
    """
    masters = {group.id: group.servers[0] for group in state.table.groups.values() if group.replicas}
    entries = [*state.offsets.items(), *noted.items()]
    offsets = {number: entry for number, entry in entries if masters.get(number) == entry.server}
    return replace(state, offsets=offsets) if offsets != state.offsets else state


class Offsets(Loop):
    """The masters of one topom's groups.

    Args:
        hears: whether a server has answered this topom just now.
        lag_bytes: how far a replica may be behind.
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
        """How far a group's master was when it was last asked, by this topom or one before; None if nobody knows."""
        for found in (self._seen.get(group.id), self._ledger.state.offsets.get(group.id)):
            if found is not None and found.server == group.servers[0]:
                return found
        return None

    def age(self, group: Group) -> float:
        """How many seconds ago this very topom has asked the group's master, which said it; infinity if never."""
        found = self._seen.get(group.id)
        if found is None or found.server != group.servers[0]:
            return math.inf
        return asyncio.get_running_loop().time() - self._asked_at[group.id]

    async def look(self) -> Look:
        """Ask all masters: what they say now if a group has changed, else what they have said lately."""
        seconds = 0.0 if self._is_changed else LATELY_SECONDS
        self._is_changed = False
        await self.ask(seconds)
        silent = [group.id for group in self._ledger.table.groups.values() if group.replicas and self.of(group) is None]
        says = f"how far their masters are is not known of groups {show(silent)}" if silent else ""
        return Look(says, NOTE_SECONDS)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        # One that joins no more was seen whole: its master's stream is the one that it has.
        if old.table.groups != new.table.groups or old.joining != new.joining:
            self._is_changed = True
            self.wake()

    async def ask(self, seconds: float = 0.0) -> None:
        """Ask all masters that answer, and store what is news. Raises as :meth:`topom.cluster.ledger.Ledger.change`.

        Args:
            seconds: how long ago they may have been asked.
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
