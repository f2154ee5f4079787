"""Makes Arrow batches of the keys that were found, column by column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sizing.look import NAMES, Found
from sizing.schema import ERROR_COLUMN, SERVER_COLUMNS

ROWS = 8192
"""Keys of one batch, or one call's keys more: an executor holds so many in memory at a time."""
KINDS = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
COLUMNS = {column.name: column for column in (*SERVER_COLUMNS, ERROR_COLUMN)}


class Batches:
    """Gathers rows of one partition until they make a batch.

    Args:
        fields: names of the columns, in order, and whether each may be null.
        constants: columns with one value in all rows: product, group_id, server.
    """

    def __init__(self, fields: list[tuple[str, bool]], constants: dict[str, Any]) -> None:
        self._schema = pa.schema(
            [pa.field(name, KINDS[COLUMNS[name].kind], nullable=nullable) for name, nullable in fields]
        )
        self._constants = constants
        # For each column, the list of names; a value is a place in this list. A batch may need more names than these.
        self._names = {column: list(names) for column, names in NAMES.items()}
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names if name not in self._constants}

    @property
    def is_full(self) -> bool:
        """Whether it is time to :meth:`take` it."""
        return self._rows >= ROWS

    def add(self, found: Found, database: int, slots: list[int] | None) -> None:
        """Add keys of a database; ``slots`` are theirs, if the column is wanted."""
        count = len(found.keys)
        self._rows += count
        for name, values in self._columns.items():
            if name == "key":
                values.extend(found.keys)
            elif name == "slot":
                values.extend(slots or ())
            elif name == "database":
                values.extend([database] * count)
            elif name == "error":
                values.extend([None] * count)
            elif name in found.more:
                values.extend(self._placed(name, found.columns[name], found.more[name]))
            else:
                values.extend(found.columns[name])

    def _placed(self, column: str, values: list[int | None], more: list[str]) -> list[int | None]:
        """Places in the names of this batch, for places in the names of one call."""
        known, names = len(NAMES[column]), self._names[column]
        names.extend(name for name in more if name not in names)
        moved = [*range(known), *(names.index(name) for name in more)]
        return [None if value is None else moved[value] for value in values]

    def take(self) -> pa.RecordBatch:
        """Give the batch, and begin another."""
        batch = pa.RecordBatch.from_arrays([self._array(name) for name in self._schema.names], schema=self._schema)
        self._clear()
        return batch

    def failure(self, error: str) -> pa.RecordBatch:
        """A batch of one row that says why the rest is missing: all columns are null except ``error`` and the place."""
        row = {**self._constants, "error": error}
        arrays = [pa.array([row.get(name)], type=self._schema.field(name).type) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str) -> pa.Array:
        kind = self._schema.field(name).type
        if name in self._constants:
            value = self._constants[name]
            return pa.nulls(self._rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), self._rows)
        values = self._columns[name]
        if name in NAMES:
            places = pa.array(values, pa.int32())
            return pa.DictionaryArray.from_arrays(places, pa.array(self._names[name], pa.string())).cast(kind)
        array = pa.array(values, kind)
        if name == "ttl_ms":
            # -1: it never expires.
            import pyarrow.compute as pc  # Imported here, because it takes a while to load.

            return pc.if_else(pc.greater_equal(array, 0), array, pa.scalar(None, kind))
        return array
