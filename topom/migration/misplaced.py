"""Counts the keys of masters that a change of the slot rules would strand: the groups that own them by the old rules
and by the new ones are not the same.

**bounded**: one page of SCAN a server is held, and the names of a few keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.connection import Connection, Timeouts
from migrator.errors import Refused, ServerUnavailable
from migrator.scan import SCAN_COUNT, occupied_databases
from slots.access import ServerAccess
from slots.keynames import readable
from slots.keyslots import KeySlots
from slots.reserved import RESERVED
from slots.table import SlotTable

AT_ONCE = 16
"""How many masters are looked at side by side."""
NAMED = 3
"""How many keys are named."""


@dataclass(slots=True)
class Tally:
    """How many keys were looked at, how many are misplaced, and the names of the first of them."""

    keys: int = 0
    misplaced: int = 0
    named: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placing:
    """By which rules keys are, and by which they would be."""

    old: KeySlots
    new: KeySlots
    here: Mapping[str, bytes]
    """For each master that owns slots, a byte for each slot: 1 if its group owns it."""

    @classmethod
    def of(cls, table: SlotTable, old: KeySlots, new: KeySlots) -> Placing:
        """The placing of a table in which no slot has an action."""
        here = {}
        for group_id, owned in table.by_group.items():
            master = table.master_of(group_id)
            if owned and master is not None:
                marks = bytearray(len(table.slots))
                for slot in owned:
                    marks[slot] = 1
                here[master] = bytes(marks)
        return cls(old, new, here)


async def count(placing: Placing, tally: Tally, *, access: ServerAccess, instance: str) -> None:
    """Count the misplaced keys of all masters into ``tally``.

    A key counts that clients would not find any more, and one that they would find which was hidden so far.

    Raises :class:`~migrator.errors.MigrationError` if a master does not answer, or refuses.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(address: str) -> None:
        async with turns:
            await _count(address, placing, tally, access, instance)

    tasks = [asyncio.create_task(one(address)) for address in placing.here]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _count(address: str, placing: Placing, tally: Tally, access: ServerAccess, instance: str) -> None:
    connection = await Connection.open(
        address,
        name=f"slotferry-rules.{instance}",
        access=access,
        unavailable=ServerUnavailable,
        refused=Refused,
        timeouts=Timeouts(),
    )
    try:
        for database in sorted(await occupied_databases(connection)):
            await connection.select(database)
            cursor = b""
            while cursor != b"0":
                cursor, seen = await connection.scan(cursor or b"0", SCAN_COUNT)
                keys = [key for key in seen if not key.startswith(RESERVED)]
                found = placing.old.misplaced(database, keys, placing.new, placing.here[address])
                tally.keys += len(keys)
                tally.misplaced += len(found)
                tally.named += [readable(key) for key in found[: NAMED - len(tally.named)]]
    finally:
        connection.close()
