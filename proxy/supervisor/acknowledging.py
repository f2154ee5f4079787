"""Decides which epoch the proxy as a whole may acknowledge to topom.

An acknowledged epoch means that **drained** holds for it: commands that must no longer go to their former servers have
all been answered there. Live workers know that of themselves. A dead worker cannot say it: its commands may still wait
in a server's socket buffer. So for each slot this module remembers the groups that commands could have gone to since
the last acknowledgement. An epoch that takes a slot from such a group is not acknowledged until a dead worker's
connections there are known to be ended.
"""

from collections import deque
from collections.abc import Set

from slots.slot import OFFLINE, Slot
from slots.states import SlotState
from slots.table import SlotTable

REMEMBERED_TABLES = 64
"""The number of tables kept between two acknowledgements. With more, every group counts as endangered."""


def reached(slot: Slot) -> frozenset[int]:
    """The groups to which commands for ``slot``, and moves of its keys, are sent. Empty while it is locked."""
    state = slot.action.state if slot.action else None
    if state is SlotState.PREPARED:
        return frozenset()
    groups = {slot.owner_id, slot.group_id} if state is SlotState.MIGRATING else {slot.owner_id}
    return frozenset(groups - {OFFLINE})


class Acknowledgements:
    """The epochs that were received, acknowledged and refused. It knows nothing of processes or connections."""

    def __init__(self) -> None:
        self.acked = 0
        """The newest epoch that was acknowledged under the present identity."""
        self.nacked = 0
        """The newest epoch that was refused."""
        self._tables: deque[SlotTable] = deque(maxlen=REMEMBERED_TABLES)  # the acknowledged one and all since
        self._forgot = False
        self._first: int | None = None  # the first epoch received under the present identity

    def received(self, table: SlotTable) -> None:
        """A table was received; its epoch is not smaller than any before."""
        if self._first is None:
            self._first = table.epoch
        if self._tables and self._tables[-1].epoch == table.epoch:
            return
        self._forgot = self._forgot or len(self._tables) == REMEMBERED_TABLES
        self._tables.append(table)

    def new_identity(self) -> None:
        """The proxy registers again: nothing is acknowledged yet. Groups that could be reached before still count."""
        self.acked = self.nacked = 0
        self._first = None

    def endangered(self, table: SlotTable) -> frozenset[int]:
        """Groups that lose something by ``table`` and that may have got commands for it since the last
        acknowledgement."""
        if self._forgot:
            return frozenset(group for known in (*self._tables, table) for group in known.groups)
        found: set[int] = set()
        for older in self._tables:
            if older.epoch >= table.epoch:
                break
            if table.coming not in (None, older.coming) or table.rules not in (older.rules, older.coming):
                # Commands for some key went to a slot that is not its slot by now, or that is not settled.
                found.update(*(reached(slot) for slot in older.slots))
            for before, now in zip(older.slots, table.slots, strict=True):
                if before is not now and before != now:
                    found |= reached(before) - reached(now)
        return frozenset(found)

    def next(self, applied: int, leftovers: Set[int]) -> int | None:
        """The newest epoch to acknowledge now, or None. Remembers it as acknowledged.

        Args:
            applied: the epoch that every live worker has applied.
            leftovers: groups at whose masters a dead worker's connections may still be alive.
        """
        for table in reversed(self._tables):
            if table.epoch <= self.acked or self._first is None or table.epoch < self._first:
                break
            if table.epoch > applied or (table.epoch == self.nacked and table.locks):
                continue
            # drained: not while a dead worker's commands may still run at a group that loses a slot.
            if leftovers and self.endangered(table) & leftovers:
                continue
            self.acked = table.epoch
            while self._tables[0].epoch < table.epoch:
                self._tables.popleft()
            self._forgot = False
            return table.epoch
        return None

    def withheld(self, applied: int, leftovers: Set[int]) -> frozenset[int]:
        """Groups that keep the newest table from being acknowledged, although all live workers apply it."""
        newest = self._tables[-1] if self._tables else None
        if newest is None or newest.epoch > applied or newest.epoch <= self.acked:
            return frozenset()
        return self.endangered(newest) & leftovers

    def refuse(self, epoch: int) -> bool:
        """Remember that ``epoch`` is refused. False if it was refused or acknowledged before: then say nothing."""
        if epoch <= max(self.acked, self.nacked):
            return False
        self.nacked = epoch
        return True
