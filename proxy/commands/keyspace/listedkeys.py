"""Decides which keys of a server's list clients see: keys of slots that the server owns, and none of Slotferry's own.

**owned**: a server may have keys of slots that are not its own, for a while, because it was started with data from
before those slots left. No client can read them there, so no client should see them. While the keys of a slot move,
they may be at the source or at the target. That counts from the lock on: other processes may move keys when this worker
hears of it.

**hidden**: a slot whose keys are copied is at its source, and then at its target. Nobody asks while it is locked for
that, and an answer from before the lock that comes after it is not used.

The table is read before the servers are asked. If a slot comes to a server meanwhile, no key of it arrives before this
worker has seen the slot locked. If a slot has left a server, the server has none of its keys.
"""

import asyncio
import re
from collections.abc import Iterable
from functools import cached_property

from proxy.commands import replies
from proxy.engine.keylist import HERE, HERE_OR_THERE, HIDDEN, KeyList
from proxy.engine.router import Router
from slots.reserved import RESERVED
from slots.slot import OFFLINE, Slot
from slots.states import SlotState
from slots.table import SlotTable

SLICE_KEYS = 5_000
"""Keys that are looked at without a pause: half a millisecond."""
PAGE = re.compile(rb"\*2\r\n\$[0-9]+\r\n([0-9]+)\r\n")
"""The beginning of a server's page of SCAN."""
NO_LIST = "ERR a server answered with something else than a list of keys"

IN_MOTION = (SlotState.PREPARED, SlotState.MIGRATING)

Edge = tuple[int, int]
"""Ids of the groups that a slot's keys come from and go to."""


def edge_of(slot: Slot) -> Edge | None:
    """The way of a slot's keys. It counts from the lock on: a worker that hears late is not told of the beginning."""
    if slot.action is None or slot.action.state not in IN_MOTION or slot.group_id == OFFLINE:
        return None
    return slot.group_id, slot.action.target_id


def is_switching(slot: Slot) -> bool:
    """Whether a slot is locked whose keys were copied (**hidden**). Its owner is the source, and at any moment the
    target, which a worker hears of late."""
    return slot.action is not None and bool(slot.action.copy) and slot.action.state is SlotState.PREPARED


class ShownSlots:
    """The slots whose keys are shown, by one table; None is a table without slots."""

    def __init__(self, table: SlotTable | None) -> None:
        self._table = table

    def at(self, address: str) -> bytes:
        """A byte for each slot: how its keys at this master are shown (:mod:`proxy.engine.keylist`)."""
        return bytes(self._by_master.get(address) or self._nothing)

    @property
    def _nothing(self) -> bytes:
        return bytes([HIDDEN]) * (len(self._table.slots) if self._table is not None else 0)

    @cached_property
    def _by_master(self) -> dict[str, bytearray]:
        # Made when first needed: during most tables, no client lists keys.
        found: dict[str, bytearray] = {}
        if self._table is None:
            return found
        masters = {group.id: group.master for group in self._table.groups.values()}
        marks = {master: bytearray(self._nothing) for master in masters.values() if master is not None}
        for slot in self._table.slots:
            edge = None if is_switching(slot) else edge_of(slot)
            for group_id in (slot.owner_id,) if edge is None else edge:
                master = masters.get(group_id)
                if master is not None:
                    marks[master][slot.id] = HERE if edge is None else HERE_OR_THERE
        return marks

    def has(self, address: str, slot: int) -> bool:
        """Whether keys of a slot at this master are shown."""
        marks = self._by_master.get(address)
        return marks is not None and marks[slot] != HIDDEN

    def knows(self, address: str) -> bool:
        """Whether this is a master."""
        return address in self._by_master


async def joined(router: Router, database: int, lists: Iterable[tuple[bytes, bytes]], within: bytes = b"") -> bytes:
    """One array of the shown keys of several servers, each once.

    **bounded**: the worker serves others in between, every :data:`SLICE_KEYS` keys.

    Args:
        database: which one the keys are in.
        lists: each server's array, with the bytes of its slots.
        within: the prefix of the keys that are shown, which is taken off.
    """
    count, parts = 0, list[bytes]()
    uncertain: dict[bytes, None] = {}
    try:
        for array, shown in lists:
            keys = KeyList(router, database, array, shown, RESERVED, within=within)
            while keys.read(SLICE_KEYS):
                await asyncio.sleep(0)
            count += keys.kept
            parts += keys.parts
            uncertain.update(dict.fromkeys(keys.uncertain))
    except ValueError:
        return replies.error(NO_LIST)
    parts += [replies.bulk(key) for key in uncertain]
    return b"*%d\r\n%b" % (count + len(uncertain), b"".join(parts))


def keys_of(array: bytes) -> list[bytes]:
    """The keys of an array of :func:`joined`; none of an error."""
    found: list[bytes] = []
    place = array.index(b"\r\n") + 2
    while array.startswith(b"*") and place < len(array):
        end = array.index(b"\r\n", place)
        size = int(array[place + 1 : end])
        found.append(array[end + 2 : end + 2 + size])
        place = end + 2 + size + 2
    return found


def only_key(reply: bytes) -> bytes | None:
    """The key in a reply; None for another reply, and for one of Slotferry's own keys."""
    if not reply.startswith(b"$") or reply.startswith(b"$-"):
        return None
    key = reply.partition(b"\r\n")[2][:-2]
    return None if key.startswith(RESERVED) else key
