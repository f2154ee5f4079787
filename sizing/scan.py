"""Reads one partition: scans its ranges, looks at the keys, and gives them as Arrow batches. Usable without Spark.

**Each key once** if no key changes meanwhile, and no lasting key is missed: see :mod:`sizing.cursors`. Slotferry's own
keys are left out.

The next call is on its way while the last call's keys are put into columns. Memory holds a batch and a call's reply,
for any number of keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sizing import events
from sizing.access import server_access
from sizing.batches import Batches
from sizing.connection import Connection
from sizing.cursors import CursorRange, reached
from sizing.errors import CommandRefused, ServerFailed
from sizing.look import ASKED, Found, Look, PipelineLook, ScanLook, ScriptLook, ScriptsRefused, refused, scan_options
from sizing.options import ReadOptions
from sizing.pace import Pace
from sizing.partitions import ScanPartition
from sizing.sampling import sampled
from sizing.selection import Selection
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from slots.reserved import RESERVED

SECOND_LOOKS = (10, 3, 1)
"""Keys in the first call of a look beyond a range's end; more in the next if the first did not show the width of
buckets."""
PINGS = 3
"""How many times the round trip to a server is measured."""


def read_partition(
    partition: ScanPartition, options: ReadOptions, selection: Selection, access: ServerAccess | None = None
) -> Iterator[pa.RecordBatch]:
    """The keys of a partition, in batches of about :data:`sizing.batches.ROWS`.

    In mode PERMISSIVE a failure ends it early, with one row that has the reason if the column ``error`` is selected.

    Raises:
        ServerFailed: in mode FAILFAST, the server cannot be read.
    """
    batches = Batches(
        list(selection.columns),
        {
            name: value
            for name, value in (
                ("product", partition.product), ("group_id", partition.group_id), ("server", partition.server),
            )
            if name in selection.names
        },
    )  # fmt: skip
    try:
        if partition.failed:
            raise ServerFailed(partition.server, partition.failed)
        yield from _read(partition, options, selection, access or server_access(), batches)
    except ServerFailed as error:
        if options.mode == "FAILFAST":
            raise
        events.error("partition_left", server=partition.server, group_id=partition.group_id, reason=error.reason)
        if "error" in selection.names:
            yield batches.take()
            yield batches.failure(str(error))


def _read(
    partition: ScanPartition, options: ReadOptions, selection: Selection, access: ServerAccess, batches: Batches
) -> Iterator[pa.RecordBatch]:
    with Connection(partition.server, access, options.connect_timeout_seconds, options.timeout_seconds) as connection:
        reader = RangeReader(connection, partition, options, selection)
        for each in partition.ranges:
            try:
                connection.call("SELECT", each.database)
            except CommandRefused as error:
                raise refused(connection, f"SELECT {each.database}", error) from None
            for found, slots in reader.read(each.database, each.cursors):
                batches.add(found, each.database, slots)
                if batches.is_full:
                    yield batches.take()
    yield batches.take()


class RangeReader:
    """Reads ranges of cursors over one connection, at one pace."""

    def __init__(
        self, connection: Connection, partition: ScanPartition, options: ReadOptions, selection: Selection
    ) -> None:
        self._connection = connection
        self._selection = selection
        self._samples = options.samples
        self._database = 0
        self._key_slots = KeySlots(partition.function, partition.number_of_slots, partition.rules)
        self._columns = [column for column in ASKED if column in selection.names]
        self._look = self._a_look(scripts=not partition.in_cluster_mode)
        self._scan = ScanLook(connection, selection.types)
        self._pace = Pace(
            options.scan_count,
            options.milliseconds_per_call / 1000 / partition.of,
            options.max_keys_per_second / partition.of,
        )
        for _ in range(PINGS):
            began = time.perf_counter()
            connection.call("ECHO", "")
            self._pace.knows_way(time.perf_counter() - began)

    def _a_look(self, scripts: bool) -> Look:
        types = self._selection.types
        if not self._columns and (not types or scan_options(types)):
            return ScanLook(self._connection, types)
        kind = ScriptLook if scripts else PipelineLook
        return kind(self._connection, self._columns, types, self._samples)

    def read(self, database: int, cursors: CursorRange) -> Iterator[tuple[Found, list[int] | None]]:
        """The keys of each call, with their slots if they are wanted. The connection is in that database."""
        self._database = database
        scan = self._scan_first if self._selection.is_by_name else self._scan_and_look
        for found in scan(cursors):
            # One look for all names is much cheaper than one for each.
            if RESERVED in b"".join(found.keys):
                found.without({key for key in found.keys if key.startswith(RESERVED)})
            yield (
                found,
                self._key_slots.slots_of(self._database, found.keys) if "slot" in self._selection.names else None,
            )

    def _scan_and_look(self, cursors: CursorRange) -> Iterator[Found]:
        """Both in one call."""
        cursor = cursors.first
        ends = False
        asked = self._ask(self._look, cursor)
        while not ends:
            try:
                found = self._look.receive()
            except ScriptsRefused as error:
                self._fall_back(error)
                asked = self._ask(self._look, cursor)
                continue
            self._pace.took(time.perf_counter() - asked)
            self._pace.wait(len(found.keys))
            cursor = found.cursor
            ends = cursors.ends_at(cursor)
            if ends:
                self._drop_beyond(cursors, found)
            else:
                asked = self._ask(self._look, cursor)
            yield found

    def _scan_first(self, cursors: CursorRange) -> Iterator[Found]:
        """First the names, then a look at the wanted keys."""
        cursor = cursors.first
        ends = False
        while not ends:
            asked = self._ask(self._scan, cursor)
            found = self._scan.receive()
            cursor = found.cursor
            scanned = len(found.keys)
            ends = cursors.ends_at(cursor)
            if ends:
                self._drop_beyond(cursors, found)
            self._choose(found)
            if found.keys and not isinstance(self._look, ScanLook):
                try:
                    found = self._look.at(found.keys)
                except ScriptsRefused as error:
                    self._fall_back(error)
                    found = self._look.at(found.keys)
            self._pace.took(time.perf_counter() - asked)
            self._pace.wait(scanned)
            if found.keys:
                yield found

    def _ask(self, look: Look, cursor: int) -> float:
        look.ask(cursor, self._pace.count)
        return time.perf_counter()

    def _choose(self, found: Found) -> None:
        """Keep the keys that are wanted, by their names."""
        if self._selection.fraction < 1:
            found.keep(sampled(found.keys, self._selection.fraction))
        wanted = self._selection.slots
        if wanted is not None:
            slots = self._key_slots.slots_of(self._database, found.keys)
            found.keep([place for place, slot in enumerate(slots) if slot in wanted])

    def _fall_back(self, error: ScriptsRefused) -> None:
        events.warning(
            "scripts_refused",
            server=self._connection.server,
            reason=error.reason,
            goes_on_with="pipelines of plain commands, which are slower",
        )
        self._look = self._a_look(scripts=False)

    def _drop_beyond(self, cursors: CursorRange, found: Found) -> None:
        """Leave out keys beyond a range's end, if they can be told: :mod:`sizing.cursors` says how."""
        if not cursors.goes_over(found.cursor):
            return
        for count in SECOND_LOOKS:
            cursor, keys = self._names(cursors.end, count)
            if not cursors.shows_narrow_buckets(cursor):
                continue
            beyond = set(keys)
            while reached(cursor) < reached(found.cursor):
                cursor, keys = self._names(cursor, self._pace.count)
                beyond.update(keys)
            found.without(beyond)
            return

    def _names(self, cursor: int, count: int) -> tuple[int, Sequence[bytes]]:
        try:
            said, keys = self._connection.call("SCAN", cursor, "COUNT", count)
        except CommandRefused as error:
            raise refused(self._connection, "SCAN", error) from None
        return int(said), keys
