"""Which slots move together, and which pairs of groups side by side.

Stock servers have no index of a slot's keys, so a pass over a source costs the same for one slot as for many:
slots of one (source, target) pair form a batch. A group takes part in one batch at a time. MIGRATE holds up
its source until the target has answered, so two servers that move keys to each other, or a ring of more,
would hold each other up until they time out.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from migrator.progress import Progress
from slots.states import SlotState
from slots.table import OFFLINE, SlotTable


@dataclass
class Batch:
    """Slots on their way together. ``message`` tells the operator what it waits for, if it does."""

    source_id: int
    target_id: int
    slots: tuple[int, ...]
    state: SlotState
    message: str = ""
    progress: Progress = field(default_factory=Progress)

    @property
    def groups(self) -> frozenset[int]:
        """The groups that it keeps busy."""
        return frozenset({self.source_id, self.target_id} - {OFFLINE})


def next_batches(table: SlotTable, running: Iterable[Batch], most_slots: int, begin: bool) -> list[Batch]:
    """Batches that can start beside the ``running`` ones.

    Slots that are further than ``pending`` and in no running batch were left by a topom that ended: they come
    first, as the batch that they were. Then pending slots by ascending id, at most ``most_slots`` a batch, if
    new work may ``begin``.
    """
    taken = {slot for batch in running for slot in batch.slots}
    busy = {group for batch in running for group in batch.groups}
    left: dict[tuple[int, int, SlotState], list[int]] = {}
    waiting: dict[tuple[int, int, SlotState], list[int]] = {}
    for slot in table.slots:
        if slot.action is None or slot.id in taken:
            continue
        found = waiting if slot.action.state == SlotState.PENDING else left
        found.setdefault((slot.group_id, slot.action.target_id, slot.action.state), []).append(slot.id)
    batches: list[Batch] = []

    def add(candidates: dict[tuple[int, int, SlotState], list[int]], most: int | None) -> None:
        for (source_id, target_id, state), slots in candidates.items():
            batch = Batch(source_id, target_id, tuple(slots[:most]), state)
            if not batch.groups & busy:
                busy.update(batch.groups)
                batches.append(batch)

    add(left, None)
    if begin:
        add(waiting, most_slots)
    return batches


def servers_of(table: SlotTable, source_id: int, target_id: int) -> Collection[str]:
    """Servers at which a proxy with an older table could do harm to slots on this way.

    Slots without a source with servers may have had any owner before, so that is every server.
    """
    if table.master_of(source_id) is None:
        return all_servers(table)
    return [*table.groups[source_id].servers, *table.groups[target_id].servers]


def all_servers(table: SlotTable) -> list[str]:
    """Every server of every group."""
    return [server for group in table.groups.values() for server in group.servers]
