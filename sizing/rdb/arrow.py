"""Turns the scanner's batches into Arrow batches: the numbers are used in place, without a copy of each value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rdb.records import NONE
from rdb.values import ENCODINGS
from sizing.schema import RDB_COLUMNS

KINDS = {"string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "bigint": pa.int64()}

SCHEMA = pa.schema([pa.field(column.name, KINDS[column.kind]) for column in RDB_COLUMNS])


def _numbers(kind: pa.DataType, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, len(data) * 8 // kind.bit_width, [None, pa.py_buffer(data)])


def _or_null(numbers: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(numbers, NONE), pa.scalar(None, pa.int64()), numbers)


def record_batch(file: str, batch: dict[str, bytes], types: list[str]) -> pa.RecordBatch:
    """The rows of one batch of a :class:`~sizing.rdb.scanner.Scanner`, which reads ``file`` and has these ``types``."""
    rows = len(batch["slot"]) // 4
    key = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(batch["ends"]), pa.py_buffer(batch["keys"])])
    columns = {
        "file": pa.repeat(pa.scalar(file), rows),
        "database": _numbers(pa.int32(), batch["database"]),
        "slot": _numbers(pa.int32(), batch["slot"]),
        "key": key,
        "type": pa.array(types).take(_numbers(pa.int32(), batch["type"])),
        "encoding": pa.array(ENCODINGS).take(_numbers(pa.int32(), batch["encoding"])),
        "serialized_bytes": _numbers(pa.int64(), batch["serialized_bytes"]),
        "bytes": _numbers(pa.int64(), batch["bytes"]),
        "elements": _or_null(_numbers(pa.int64(), batch["elements"])),
        "ttl_ms": _or_null(_numbers(pa.int64(), batch["ttl_ms"])),
        "error": pa.nulls(rows, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def error_row(file: str, error: str) -> pa.RecordBatch:
    """A row that only says why ``file`` was not read to its end."""
    return pa.RecordBatch.from_pylist([{"file": file, "error": error}], schema=SCHEMA)
