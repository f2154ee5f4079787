"""Reads RDB files without Spark: every key of one file, from its first byte to its last, in bounded memory.

The parser is our own. The Python registry has two others. ``rdbtools`` (0.1.15, of 2020) does not know listpacks, so it
reads no files of Redis 7.0 and newer. ``rdb-py`` (a binding of a Rust crate) knows Redis up to 8.6, but no Valkey 9. It
skips streams and modules, and gives values. This module needs other facts: how many bytes a key takes in the file, how
the server keeps it, how large it is without building it, and at which offset a fault is.

It reads RDB versions 1 to 14 and those of Valkey from 80 on, with the types that :mod:`rdb.values` names. A file
of a newer version is read if it has nothing new. A snapshot at the head of an append-only file is read, but not the
commands after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from rdb.records import NONE
from rdb.values import ENCODINGS
from sizing.rdb.scanner import Scanner


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file; the fields are the columns of :data:`sizing.schema.RDB_COLUMNS`."""

    database: int
    slot: int
    key: bytes
    type: str
    encoding: str
    serialized_bytes: int
    bytes: int
    elements: int | None
    ttl_ms: int | None


def rows(batch: dict[str, bytes], types: list[str]) -> Iterator[Key]:
    """The rows of one batch of a :class:`~sizing.rdb.scanner.Scanner`, which has these ``types``."""
    databases, slots, kinds, encodings, ends = (
        memoryview(batch[name]).cast("i") for name in ("database", "slot", "type", "encoding", "ends")
    )
    serialized, memory, elements, deadlines = (
        memoryview(batch[name]).cast("q") for name in ("serialized_bytes", "bytes", "elements", "ttl_ms")
    )
    for row in range(len(slots)):
        yield Key(
            database=databases[row],
            slot=slots[row],
            key=batch["keys"][ends[row] : ends[row + 1]],
            type=types[kinds[row]],
            encoding=ENCODINGS[encodings[row]],
            serialized_bytes=serialized[row],
            bytes=memory[row],
            elements=None if elements[row] == NONE else elements[row],
            ttl_ms=None if deadlines[row] == NONE else deadlines[row],
        )


def read_keys(
    path: str | os.PathLike[str],
    *,
    function: str = "crc32",
    number_of_slots: int = 1024,
    allocator: str = "jemalloc",
    checksum: bool = True,
) -> Iterator[Key]:
    """Every key of a file on a local disk, in the file's order.

    Raises:
        RdbError: after the keys before the fault, which stand; with the file and the offset.
        OSError: when the file cannot be opened.
        ValueError: for an unknown slot function or allocator, or an invalid number of slots.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        scanner = Scanner(file, os.fspath(path), size, checksum, function, number_of_slots, allocator)
        while batch := scanner.batch():
            yield from rows(batch, scanner.types)
    if scanner.error is not None:
        raise scanner.error
