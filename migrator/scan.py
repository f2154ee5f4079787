"""Finds the keys of the wanted slots at a source, page by page.

Stock Redis keeps no index by slot, so every key of a database has to be looked at, and that costs the same for one slot
as for a hundred. SCAN promises to give every key that is there from its first call to its last. **complete** rests on
that. SCAN may give a key twice, which does no harm.

**bounded**: a scanner holds one page of :data:`PAGE_KEYS` wanted keys, plus the keys of one SCAN.
"""

from __future__ import annotations

from migrator.connection import Connection
from migrator.pace import Throttle
from migrator.progress import Progress
from slots.keyslots import KeySlots
from slots.reserved import RESERVED

SCAN_COUNT = 500
"""Keys to look at in one SCAN: about half a millisecond of the source's time."""

PAGE_KEYS = 500
"""Wanted keys in a page. So a slot with few keys among many still goes in full batches."""


async def occupied_databases(connection: Connection) -> dict[int, int]:
    """The databases of a server that hold keys, with their numbers of keys; from INFO keyspace."""
    info = await connection.info("keyspace")
    with connection.understood("INFO"):
        return info.keys_of_databases


class Scanner:
    """One scan of one database.

    Args:
        connection: to the source, with the database selected.
        key_slots: the product's.
        database: its number.
        wanted: a byte for each slot, other than 0 if its keys are wanted.
    """

    def __init__(
        self,
        connection: Connection,
        key_slots: KeySlots,
        database: int,
        wanted: bytes,
        pace: Throttle,
        progress: Progress,
    ) -> None:
        self._connection = connection
        self._key_slots = key_slots
        self._database = database
        self._wanted = wanted
        self._pace = pace
        self._progress = progress
        self._cursor: bytes | None = None  # None before the first call
        self.found = 0
        """Wanted keys seen so far."""

    async def next_page(self) -> list[bytes] | None:
        """The next wanted keys; None at the end of the database."""
        keys: list[bytes] = []
        while len(keys) < PAGE_KEYS and self._cursor != b"0":
            await self._pace.ready()
            cursor, seen = await self._connection.scan(self._cursor or b"0", SCAN_COUNT)
            self._cursor = cursor
            wanted = self._key_slots.select(self._database, seen, self._wanted)
            if any(key.startswith(RESERVED) for key in wanted):
                wanted = [key for key in wanted if not key.startswith(RESERVED)]
            self._progress.scanned(len(seen), len(wanted))
            keys += wanted
        self.found += len(keys)
        return keys or None
