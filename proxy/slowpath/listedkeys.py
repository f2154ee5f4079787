"""Which of the keys that a server lists are shown to clients: those of slots that it owns, and none of Slotferry's own.

**owned**: a server may have keys of slots that are not its, for a while: it was started with data of before they left.
Nobody reads them there, so nobody is to see them. While the keys of a slot move, they may be at the source or at the
target. That is counted from the lock on: others may move keys by the time that this worker hears of it.

What a table says is asked for before the servers are. A slot that comes to a server meanwhile brings no key there
before this worker has seen it locked; one that has left it is empty there.
"""

import asyncio
from collections.abc import Iterable
from functools import cached_property

from proxy.engine.keylist import HERE, HERE_OR_THERE, HIDDEN, KeyList
from proxy.engine.router import Router
from proxy.slowpath import replies
from slots.moving import RESERVED
from slots.states import SlotState
from slots.table import OFFLINE, Slot, SlotTable

SLICE_KEYS = 5_000
"""Keys that are looked at without a pause: half a millisecond."""
NO_LIST = "ERR a server answered with something else than a list of keys"

IN_MOTION = (SlotState.PREPARED, SlotState.MIGRATING)

Edge = tuple[int, int]
"""Ids of the groups that a slot's keys come from and go to."""


def edge_of(slot: Slot) -> Edge | None:
    """The way that a slot's keys may be on. It counts from the lock on: who hears late is not told of a beginning."""
    if slot.action is None or slot.action.state not in IN_MOTION or slot.group_id == OFFLINE:
        return None
    return slot.group_id, slot.action.target_id


class ShownSlots:
    """Whose keys are shown, as of one table; None is a table without slots."""

    def __init__(self, table: SlotTable | None) -> None:
        self._table = table

    def at(self, address: str) -> bytes:
        """A byte for each slot: what its keys are at this master (:mod:`proxy.engine.keylist`)."""
        return bytes(self._by_master.get(address) or self._nothing)

    @property
    def _nothing(self) -> bytes:
        return bytes([HIDDEN]) * (len(self._table.slots) if self._table is not None else 0)

    @cached_property
    def _by_master(self) -> dict[str, bytearray]:
        # Made when it is first asked for: most tables come and go without anybody listing keys.
        found: dict[str, bytearray] = {}
        if self._table is None:
            return found
        masters = {group.id: group.master for group in self._table.groups.values()}
        marks = {master: bytearray(self._nothing) for master in masters.values() if master is not None}
        for slot in self._table.slots:
            edge = edge_of(slot)
            for group_id in (slot.owner_id,) if edge is None else edge:
                master = masters.get(group_id)
                if master is not None:
                    marks[master][slot.id] = HERE if edge is None else HERE_OR_THERE
        return marks

    def has(self, address: str, slot: int) -> bool:
        """Whether keys of a slot are shown of this master."""
        return self.at(address)[slot] != HIDDEN


async def joined(router: Router, lists: Iterable[tuple[bytes, bytes]]) -> bytes:
    """One array of the keys of several servers that are shown, each once.

    **bounded**: the worker does something else in between, every :data:`SLICE_KEYS` keys.

    Args:
        lists: each server's array, and what the slots are there.
    """
    count, parts = 0, list[bytes]()
    uncertain: dict[bytes, None] = {}
    try:
        for array, shown in lists:
            keys = KeyList(router, array, shown, RESERVED)
            while keys.read(SLICE_KEYS):
                await asyncio.sleep(0)
            count += keys.kept
            parts += keys.parts
            uncertain.update(dict.fromkeys(keys.uncertain))
    except ValueError:
        return replies.error(NO_LIST)
    parts += [replies.bulk(key) for key in uncertain]
    return b"*%d\r\n%b" % (count + len(uncertain), b"".join(parts))


def only_key(reply: bytes) -> bytes | None:
    """The key that a reply is; None for another reply, and for one of Slotferry's own keys."""
    if not reply.startswith(b"$") or reply.startswith(b"$-"):
        return None
    key = reply.partition(b"\r\n")[2][:-2]
    return None if key.startswith(RESERVED) else key
