"""One worker's view of the slots that move between groups, for commands about the whole keyspace.

Keys move only while their slot's action is ``migrating``, from its source to its target, each key once in an action. By
**drained** no action gets so far before every worker has put a table in force that has it ``prepared``. So a worker
that has seen no such table knows that no key has moved. A worker that has seen one knows which way the slot's keys go,
while the action is in its tables. If the keys were copied, all go at the one moment at which ``finished`` is stored,
and a worker hears of that later.

A worker that was just started, or whose proxy was fenced off and took a new identity, has not seen earlier actions. It
knows nothing about epochs before its first table under this identity.
"""

from collections.abc import Callable, Mapping

from proxy.commands.keyspace.listedkeys import Edge, ShownSlots, edge_of, is_switching
from proxy.commands.services import Services
from slots.slot import Slot
from slots.states import SlotState
from slots.table import SlotTable

MOST_COUNTED = 3
"""The most backward moves of one slot that are counted; more count as so many."""


class Moves:
    """Follows the tables of one worker. A move is *backward* when it leads to a group of a smaller id."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch of the newest table."""
        self.known_since = 0
        """The epoch from which on all moves are known."""
        self.begun = 0
        """Grows when a slot is seen to begin to move, or a group to have another master."""
        self.switching: tuple[int, ...] = ()
        """Slots that are locked by the newest table, and whose keys were copied."""
        self.switches = 0
        """Grows with each table that has such slots. Until it does, the keys of no slot go all at once."""
        self.masters: Mapping[int, str] = {}
        """The master of each group that owns slots, gives them away or receives them, by ascending id."""
        self.masters_changed = 0
        """The epoch at which a group was last seen with another master than before."""
        self.shown = ShownSlots(None)
        """The keys of each master that clients see."""
        self._table: SlotTable | None = None
        self._identity = ""
        self._known_masters: dict[int, str] = {}
        self._in_motion: dict[int, Edge] = {}
        # For each slot, the epochs at which its last backward moves were seen to be over, newest first.
        self._ended: dict[int, tuple[int, ...]] = {}
        # The epoch after which some slot had one backward move end, then the epoch after which some slot had two, and
        # so on.
        self._lately = [0] * MOST_COUNTED

    def take(self, table: SlotTable, identity: str) -> None:
        """A table is in force, under this identity of the proxy. To take the same table again changes nothing."""
        if table is self._table and identity == self._identity:
            return
        if self._table is None or identity != self._identity:
            self.known_since = table.epoch
            self._in_motion = {}
            self.begun += 1
        if table is not self._table:
            self.shown = ShownSlots(table)
        self._table = table
        self._identity = identity
        self.epoch = table.epoch
        self._follow_slots(table)
        self._follow_masters(table)

    def _follow_slots(self, table: SlotTable) -> None:
        before = self._in_motion
        now = {slot.id: edge for slot in table.acting if (edge := edge_of(slot)) is not None}
        self.switching = tuple(slot_id for slot_id in now if is_switching(table.slots[slot_id]))
        # This worker may have refused the same lock under an earlier table, and asked servers since.
        self.switches += bool(self.switching)
        for slot_id, edge in before.items():
            if now.get(slot_id) != edge and _has_left(table.slots[slot_id], edge) and is_backward(edge):
                self._note_end(slot_id)
        if any(before.get(slot_id) != edge for slot_id, edge in now.items()):
            self.begun += 1
        self._in_motion = now

    def _note_end(self, slot_id: int) -> None:
        ended = (self.epoch, *self._ended.get(slot_id, ()))[:MOST_COUNTED]
        self._ended[slot_id] = ended
        for index, epoch in enumerate(ended):
            self._lately[index] = max(self._lately[index], epoch)

    def _follow_masters(self, table: SlotTable) -> None:
        self.masters = table.used_masters
        for group_id, master in self.masters.items():
            if self._known_masters.setdefault(group_id, master) != master:
                self._known_masters[group_id] = master
                self.masters_changed = self.epoch
                self.begun += 1

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def edges(self) -> set[Edge]:
        """The ways of keys that move one by one now, as far as this worker can tell."""
        return {edge for slot_id, edge in self._in_motion.items() if slot_id not in self.switching}

    def backward_since(self, epoch: int) -> int:
        """The most backward moves of one slot since the table of ``epoch`` was put in force anywhere.

        A move under way counts. A move that was over by ``epoch`` does not: a worker got that table after the move's
        last key had arrived. Nothing is known about epochs before :attr:`known_since`.
        """
        most = sum(ended > epoch for ended in self._lately)
        for slot_id, edge in self._in_motion.items():
            if is_backward(edge):
                most = max(most, 1 + sum(ended > epoch for ended in self._ended.get(slot_id, ())))
        return min(most, MOST_COUNTED)


def is_backward(edge: Edge) -> bool:
    """Whether keys go to a group of a smaller id."""
    return edge[0] > edge[1]


def _has_left(slot: Slot, edge: Edge) -> bool:
    """Whether a slot that was on a way has moved; false if its action was rolled back, or has not begun."""
    if slot.group_id != edge[0]:
        return True
    return slot.action is not None and slot.action.state is SlotState.FINISHED


def follow(services: Services) -> Callable[[], Moves]:
    """One worker's view of moves: a function that brings it up to date and gives it, always the same object."""
    moves = Moves()

    def seen() -> Moves:
        table = services.table()
        if table is not None:
            moves.take(table, services.options.instance)
        return moves

    return seen
