"""Moves slots to and fro among the groups for as long as a run lasts, and changes the pace of the migration."""

import asyncio
import random

from slotferry.calls import TopomError
from slots.ranges import show
from tests.histories.cluster import GROUPS, SLOTS, HistoriesCluster

POLL_SECONDS = 0.05
IMPATIENCE_SECONDS = 3.0
"""After this time, more slots are told to move although others are still on their way."""
TOGETHER = 3
"""One order of so many goes to several targets at once."""
RATES = (200, 800, 0)
"""Keys that may move in a second; 0 is as many as there are."""
GOAL_MILLISECONDS = 10.0
"""The latency goal. None holds while the cluster comes to rest, for on a busy machine the migrator would take its time.
"""


class Mover:
    """Gives orders until it is cancelled. topom may be away or refuse: the next order still comes.

    Args:
        cluster: whose slots.
        seed: of the choices.
        together: one order of so many goes to several targets at once.
    """

    def __init__(self, cluster: HistoriesCluster, seed: int, together: int = TOGETHER) -> None:
        self.orders = 0
        """Orders that topom has taken."""
        self.slots_moved = 0
        """Slots that were seen to have come to rest at another group."""
        self.turn = asyncio.Lock()
        """The holder of this lock is the only one that gives orders."""
        self._cluster = cluster
        self._together = together
        self._random = random.Random(f"moves {seed}")
        self._owners: list[int] = []
        self._pair = (1, 2)
        self._holds = False

    async def run(self) -> None:
        """Give orders."""
        while True:
            try:
                async with self.turn:
                    await self._order()
                await self._rest()
            except TopomError:
                await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Count the slots that have another owner than at the last look."""
        owners = [slot["group_id"] for slot in (await self._cluster.api.slots())["slots"]]
        if self._owners:
            self.slots_moved += sum(now != before for now, before in zip(owners, self._owners, strict=True))
        self._owners = owners

    async def _order(self) -> None:
        await self._let_go()  # topom was away at the end of the order before
        await self.look()
        source, target = self._next_pair()
        if self._random.randrange(3) == 0:
            await self._cluster.api.set_migration(keys_per_second=self._random.choice(RATES))
        if self._random.randrange(6) == 0:
            await self._cluster.api.cancel_migration()
        owned = [slot for slot in range(SLOTS) if self._owners[slot] == source]
        slots = [slot for slot in owned if self._random.randrange(4)]
        parts = {target: slots}
        if self._random.randrange(self._together) == 0:
            # The slots of one source go to several targets at once.
            other = self._random.choice([group for group in range(1, GROUPS + 1) if group not in (source, target)])
            parts = {target: slots[::2], other: slots[1::2]}
        if len(parts) > 1:
            await self._hold()
        for group, part in parts.items():
            if part:
                await self._cluster.api.move_slots(show(part), group)
                self.orders += 1
        await self._let_go()

    async def _hold(self) -> None:
        """What is ordered from now on begins at the same time: copies of one source share a stream then."""
        self._holds = True
        await self._cluster.api.pause_migration()

    async def _let_go(self) -> None:
        if self._holds:
            await self._cluster.api.resume_migration()
            self._holds = False

    def _next_pair(self) -> tuple[int, int]:
        """Mostly the same two groups for a while, so that servers keep their connections to each other."""
        match self._random.randrange(6):
            case 0:
                one, other = self._random.sample(range(1, GROUPS + 1), 2)
                self._pair = one, other
            case 1 | 2 | 3:
                self._pair = self._pair[::-1]
        return self._pair

    async def _rest(self) -> None:
        """Wait until no slot is on its way, but not for long: orders may overlap."""
        limit = IMPATIENCE_SECONDS * self._random.uniform(0.3, 1.0)
        try:
            async with asyncio.timeout(limit):
                while (await self._cluster.api.status())["slots"]["moving"]:
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            return
