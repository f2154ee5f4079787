"""Keeps the messages of a slot's channels in the order of publishing, even while the slot goes to another server.

A publisher that waits for each reply may publish its next message at the slot's new server while the message before is
still on its way from the old server. So from the slot's lock on, the first message from the new server is held. The old
server gets a request after that message came. When the request is answered, everything published at the old server has
arrived, and the message goes on (**in-order**). That ends only when the old server has answered such a request behind
the move, however fast the move was: much may be on its way from there.

**bounded**: at most :data:`MOST_BYTES` of messages are held; further ones are passed on at once.
"""

from collections.abc import Callable, Mapping
from functools import partial

from proxy.commands.pubsub.messages import Message
from slots.table import SlotTable

MOST_BYTES = 8 * 1024 * 1024


class MessageOrder:
    """The slots on their way, and the messages that are held.

    Args:
        slot_of: gives a channel's slot.
        sync: calls a function once a server has sent everything published there.
        deliver: passes a message on.
    """

    def __init__(
        self,
        slot_of: Callable[[bytes], int],
        sync: Callable[[str, Callable[[], None]], None],
        deliver: Callable[[Message], None],
    ) -> None:
        self._slot_of = slot_of
        self._sync = sync
        self._deliver = deliver
        self._ways: dict[int, tuple[str, str]] = {}
        # Ways whose slots have come to their targets, until their sources have sent everything.
        self._over: dict[int, tuple[str, str]] = {}
        self._held: dict[int, list[Message]] = {}
        self._held_bytes = 0

    def locked(self, ways: Mapping[int, tuple[str, str]]) -> None:
        """These slots are about to go to another server."""
        self._ways.update(ways)

    def table_applied(self, table: SlotTable) -> None:
        """Forget slots that have come to rest."""
        came: dict[str, dict[int, tuple[str, str]]] = {}
        for slot in [slot for slot in self._ways if table.slots[slot].action is None and slot not in self._held]:
            way = self._ways[slot]
            if table.master_of(table.slots[slot].group_id) != way[1]:
                del self._ways[slot]
            elif self._over.get(slot) is not way:
                came.setdefault(way[0], {})[slot] = self._over[slot] = way
        for source, ways in came.items():
            self._sync(source, partial(self._forget, ways))

    def _forget(self, ways: Mapping[int, tuple[str, str]]) -> None:
        for slot, way in ways.items():
            if self._over.get(slot) is way:
                del self._over[slot]
            # It may be on its way again.
            if self._ways.get(slot) is way and slot not in self._held:
                del self._ways[slot]

    def pass_on(self, address: str, message: Message) -> None:
        """Deliver a message from a server, now or when its turn comes."""
        if not self._ways:
            self._deliver(message)
            return
        slot = self._slot_of(message.channel)
        source, target = self._ways.get(slot, ("", ""))
        if address != target:
            self._deliver(message)
            return
        first = slot not in self._held
        self._held.setdefault(slot, []).append(message)
        self._held_bytes += len(message.resp3)
        if self._held_bytes > MOST_BYTES:
            for held in list(self._held):
                self._release(held)
        elif first:
            self._sync(source, partial(self._release, slot))

    def _release(self, slot: int) -> None:
        messages = self._held.pop(slot, None)
        if messages is None:
            return
        # Later messages need not wait: the target owns the slot, so nothing is published at the source any more.
        self._ways.pop(slot, None)
        for message in messages:
            self._held_bytes -= len(message.resp3)
            self._deliver(message)
