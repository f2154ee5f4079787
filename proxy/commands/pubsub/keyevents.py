"""Keyspace events of clients' keys come from the servers that own them (**hidden**, **owned**), all others are dropped.

A server also sends events about keys that it does not own: of a copy that is being made there, and of what a sweep
deletes. Servers that share the keys of a moving slot both send events that clients have caused. While a slot is locked
whose keys were copied, so do its source and its target, for all that a worker knows, which hears late of the switch.

A source's last events may come after the table by which it is no owner any more. They are passed on until the server
has sent all that it had to send then.

Events of Slotferry's own keys are dropped, too.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from proxy.commands.keyspace.listedkeys import ShownSlots, is_switching
from proxy.commands.pubsub.messages import Message
from slots.reserved import RESERVED
from slots.table import SlotTable


class KeyEvents:
    """Decides about the events that come to one worker.

    Args:
        slot_of: gives the slot of a key in a database.
        sync: calls a function once a server has sent everything published there.
        heard: whether any client of the worker is subscribed to anything.
    """

    def __init__(
        self,
        slot_of: Callable[[int, bytes], int],
        sync: Callable[[str, Callable[[], None]], None],
        heard: Callable[[], bool],
    ) -> None:
        self._slot_of = slot_of
        self._sync = sync
        self._heard = heard
        self._table: SlotTable | None = None
        self._shown = ShownSlots(None)
        # Slots whose events are passed on from servers that do not own them, as far as the table says.
        self._coming: dict[str, frozenset[int]] = {}
        self._left: defaultdict[str, list[frozenset[int]]] = defaultdict(list)

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force, and the worker is subscribed at its masters, or about to be."""
        before, shown = self._table, self._shown
        if table is before:
            return
        self._table, self._shown = table, ShownSlots(table)
        coming: defaultdict[str, set[int]] = defaultdict(set)
        for slot in table.acting:
            if slot.action is not None and is_switching(slot):
                coming[table.master_of(slot.action.target_id) or ""].add(slot.id)
        self._coming = {address: frozenset(slots) for address, slots in coming.items()}
        if before is not None and self._heard():
            self._let_come_in(before, shown, table)

    def _let_come_in(self, before: SlotTable, shown: ShownSlots, table: SlotTable) -> None:
        left: defaultdict[str, set[int]] = defaultdict(set)
        for old, new in zip(before.slots, table.slots, strict=True):
            source = before.master_of(old.group_id) if old is not new else None
            if source is not None and shown.has(source, old.id) and not self._shown.has(source, old.id):
                left[source].add(old.id)
        for source, slots in left.items():
            some = frozenset(slots)
            self._left[source].append(some)
            self._sync(source, partial(self._left[source].remove, some))

    def passes(self, address: str, message: Message) -> bool:
        """Whether a message from a server is for clients."""
        event = message.event
        if event is None:
            return True
        database, key = event
        if key.startswith(RESERVED):
            return False
        if not self._shown.knows(address):
            return True  # a former master's last ones
        slot = self._slot_of(database, key)
        return (
            self._shown.has(address, slot)
            or slot in self._coming.get(address, ())
            or any(slot in some for some in self._left.get(address, ()))
        )
