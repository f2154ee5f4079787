"""What a server that comes back with older data may have lost, and what it may not.

It loses what it alone had: keys of slots that were at rest there or on their way to it when it stopped, and keys of
slots on their way from it that had not moved yet. All data elsewhere has to be as it was (**owned**, **by-action**). So
the places of slots are recorded all the time, and doubtful cases are not judged.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slotferry.calls import TopomError
from slots.keyslots import KeySlots
from tests.histories.cluster import SLOTS, HistoriesCluster
from tests.histories.operations import Outcome, Partition

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 1.0
"""How long topom may take to say where slots are; after that, it is not known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot is: its group, the one that it is on its way to (0 for none), and the state of that."""

    group: int
    target: int
    state: str


@dataclass(slots=True)
class Look:
    """Topom's answer about all slots, asked for and heard in these seconds of the run."""

    asked: float
    heard: float
    places: list[Place]


@dataclass(slots=True)
class Older:
    """A server that came back with older data.

    Attributes:
        group: that it is the master of.
        killed: when it went, in seconds of the run.
        back: when it was there again.
        before, after: the last look before it went, and the first one after; None if topom did not say.
    """

    group: int
    killed: float
    back: float
    before: Look | None
    after: Look | None


class Losses:
    """Watches a run, and says afterwards from which partitions a server may have lost something.

    Args:
        cluster: whose slots.
        function: its slot function.
        now: the seconds of the run.
    """

    def __init__(self, cluster: HistoriesCluster, function: str, now: Callable[[], float]) -> None:
        self.older: list[Older] = []
        self._cluster = cluster
        self._function = function
        self._now = now
        self._looks: list[Look] = []

    async def watch(self) -> None:
        """Look where slots are, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> Look | None:
        """Where slots are now; None if topom does not say."""
        asked = self._now()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await self._cluster.api.slots()
        except (TopomError, TimeoutError):
            return None
        look = Look(asked, self._now(), [_place(slot) for slot in answer["slots"]])
        self._looks.append(look)
        return look

    def excuses(self, partition: Partition) -> bool:
        """Whether a server may have lost something of this partition."""
        slot = self._slot_of(partition.keys[0])
        return any(self._may_have_lost(one, slot, partition) for one in self.older)

    def excuses_key(self, key: str) -> bool:
        """Whether a server may have lost a key that was not written since the run began."""
        slot = self._slot_of(key)
        return any(self._was_at(one, slot) for one in self.older)

    def _slot_of(self, key: str) -> int:
        slot = KeySlots(self._function, SLOTS).slot_of(0, key.encode())
        return int(slot)

    def _was_at(self, one: Older, slot: int) -> bool:
        """Whether keys of a slot may have been at the server when it went."""
        if one.before is None or one.after is None:
            return True
        before, after = one.before.places[slot], one.after.places[slot]
        return before != after or one.group in (before.group, before.target)

    def _may_have_lost(self, one: Older, slot: int, partition: Partition) -> bool:
        if not partition.operations or partition.operations[0].invoked > one.back:
            return False
        if not self._was_at(one, slot):
            return False
        # A total is never deleted, so what a source brings back of it is older than what the target has.
        return partition.kind != "total" or not self._has_moved(one, slot, partition)

    def _has_moved(self, one: Older, slot: int, partition: Partition) -> bool:
        """Whether the key had left the server before it went: something ran at the target since its slot migrates."""
        if one.before is None or one.after is None or one.before.places[slot] != one.after.places[slot]:
            return False
        place = one.before.places[slot]
        if place.state != "migrating" or place.group != one.group:
            return False
        since = one.before.heard
        for look in reversed(self._looks):
            if look.heard > one.before.heard:
                continue
            if look.places[slot] != place:
                break
            since = look.heard
        return any(
            it.outcome is Outcome.ANSWERED and it.invoked > since and it.answered < one.killed
            for it in partition.operations
        )


def _place(slot: Mapping[str, object]) -> Place:
    action = slot["action"] or {}
    assert isinstance(action, Mapping)
    return Place(int(str(slot["group_id"])), int(action.get("target_id") or 0), str(action.get("state") or ""))
