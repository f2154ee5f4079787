"""What changed in the slot table since an epoch that a client knows, for clients that read the table."""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState

TABLES_KEPT = 64
"""How many tables are kept to tell changes from. A client with an older table gets the whole new one."""


class TableHistory:
    """The last tables of this topom, the newest last. Each answer is encoded once, for all who ask for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._before: deque[SlotTable] = deque(maxlen=TABLES_KEPT - 1)
        self._answers: dict[int | None, str] = {}  # by the epoch that the client knows
        ledger.listen(self._changed)

    @property
    def table(self) -> SlotTable:
        """The newest one."""
        return self._ledger.table

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.table is not new.table:
            self._before.append(old.table)
            self._answers.clear()

    def answer(self, epoch: int) -> str:
        """The changes from the table of ``epoch`` to the newest one, as JSON.

        ``{"since", "epoch", "slots", "groups", "removed_groups"}``: slots and groups that changed, in their wire form,
        and ids of groups that are gone. ``since`` is ``epoch``. If the table of that epoch is not known, ``since`` is
        None, and all slots and groups are given.
        """
        old = next((table for table in (*self._before, self.table) if table.epoch == epoch), None)
        since = old.epoch if old else None
        found = self._answers.get(since)
        if found is None:
            found = self._answers[since] = json.dumps(_changes(old, self.table), separators=(",", ":"))
        return found


def _changes(old: SlotTable | None, new: SlotTable) -> dict[str, Any]:
    slots: Iterable[Slot] = new.slots
    groups: Sequence[Group] = [new.groups[group_id] for group_id in sorted(new.groups)]
    removed: list[int] = []
    if old is not None:
        slots = [
            after for before, after in zip(old.slots, new.slots, strict=True) if before is not after and before != after
        ]
        groups = [group for group in groups if old.groups.get(group.id) != group]
        removed = sorted(set(old.groups) - set(new.groups))
    return {
        "since": old.epoch if old else None,
        "epoch": new.epoch,
        "slots": [slot.to_wire() for slot in slots],
        "groups": [group.to_wire() for group in groups],
        "removed_groups": removed,
    }
