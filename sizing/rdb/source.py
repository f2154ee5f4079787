"""``spark.read.format("slotferry-rdb").load("path/*.rdb")``: every key of RDB files, without load on any server.

One file is one partition. The beginning of a key is known only after everything before it was read, so a file cannot be
split. More than one core only helps with more than one file.

Some files cannot be read to their end. In the mode PERMISSIVE, such a file gives the keys before the fault and then one
row with only ``file`` and ``error``. In the mode FAILFAST it fails the job. A row with an error means that its file is
not whole: a user who needs whole files drops the files with such a row. Other files are not affected.

Options, beside ``path``: ``mode``; ``checksum`` (true: the file's CRC64 is verified where it has one); ``function`` and
``number_of_slots`` (crc32, 1024); ``rules`` (a JSON list of slot rules); ``allocator`` (jemalloc, jemalloc16 or glibc;
:mod:`rdb.layout`); ``pathGlobFilter`` and ``recursiveFileLookup`` as Spark's own readers have them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

import slots.functions
from rdb.errors import RdbError, UnreadableRdb
from sizing.options import read_rules
from sizing.rdb.arrow import error_row, record_batch
from sizing.rdb.files import RdbFile, find, split
from sizing.rdb.scanner import ALLOCATORS, Scanner
from sizing.schema import RDB_COLUMNS
from slots.rules import SlotRule

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MODES = ("PERMISSIVE", "FAILFAST")
KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
}
"""Spark parses names of types in the JVM, and there is no JVM where a schema is asked for."""


class RdbOptionError(ValueError):
    """An option has a value that is not allowed."""


@dataclass(frozen=True, slots=True)
class RdbOptions:
    """The options of a reader; :func:`read_options` makes it."""

    paths: list[str]
    fail_fast: bool
    checksum: bool
    function: str
    number_of_slots: int
    rules: tuple[SlotRule, ...]
    allocator: str
    name_filter: str | None
    recursive: bool


def _truth(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name, default).strip().lower()
    if text not in ("true", "false"):
        raise RdbOptionError(f"{name} is {text!r}; it has to be true or false")
    return text == "true"


def read_options(options: Mapping[str, str]) -> RdbOptions:
    """Options in the form in which Spark gives them; upper and lower case are the same in names.

    Raises:
        RdbOptionError: the message says which values are allowed.
    """
    options = {name.lower(): value for name, value in options.items()}
    known = {"path", "paths", "mode", "checksum", "function", "number_of_slots", "rules", "allocator"}
    unknown = sorted(set(options) - known - {"pathglobfilter", "recursivefilelookup"})
    if unknown:
        raise RdbOptionError(f"there is no option {unknown[0]!r}; there are {', '.join(sorted(known - {'paths'}))}")
    # Several paths come as a JSON list.
    paths = [str(path) for path in json.loads(options["paths"])] if "paths" in options else []
    paths += split(options.get("path", ""))
    if not paths:
        raise RdbOptionError('no file is named: give a path, as in load("/backup/*.rdb")')
    mode = options.get("mode", MODES[0]).strip().upper()
    if mode not in MODES:
        raise RdbOptionError(f"mode is {mode!r}; it has to be {' or '.join(MODES)}")
    allocator = options.get("allocator", ALLOCATORS[0]).strip().lower()
    if allocator not in ALLOCATORS:
        raise RdbOptionError(f"allocator is {allocator!r}; it has to be one of {', '.join(ALLOCATORS)}")
    function = options.get("function", slots.functions.names()[0]).strip()
    try:
        number_of_slots = int(options.get("number_of_slots", "1024"))
        slots.functions.slot(function, b"", number_of_slots)
    except ValueError as error:
        raise RdbOptionError(f"function or number_of_slots: {error}") from error
    try:
        rules = read_rules(options.get("rules", "[]"))
    except ValueError as error:
        raise RdbOptionError(f"rules: it has to be {error}") from error
    return RdbOptions(
        paths=paths,
        fail_fast=mode == "FAILFAST",
        checksum=_truth(options, "checksum", "true"),
        function=function,
        number_of_slots=number_of_slots,
        rules=rules,
        allocator=allocator,
        name_filter=options.get("pathglobfilter"),
        recursive=_truth(options, "recursivefilelookup", "false"),
    )


class RdbPartition(InputPartition):
    """One file."""

    def __init__(self, file: RdbFile) -> None:
        super().__init__(file.shown)
        self.file = file


class RdbDataSource(DataSource):
    """The format ``slotferry-rdb``. Register it with ``spark.dataSource.register(RdbDataSource)``."""

    @classmethod
    def name(cls) -> str:
        return "slotferry-rdb"

    def schema(self) -> StructType:
        return StructType(
            [StructField(column.name, KINDS[column.kind], True, {"comment": column.comment}) for column in RDB_COLUMNS]
        )

    def reader(self, schema: StructType) -> RdbReader:
        return RdbReader(read_options(self.options))


class RdbReader(DataSourceReader):
    """Reads files, a partition each."""

    def __init__(self, options: RdbOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        """One for each file. Raises :class:`~sizing.rdb.files.RdbPathError`."""
        files = find(self.options.paths, self.options.name_filter, self.options.recursive)
        return [RdbPartition(file) for file in files]

    def read(self, partition: Any) -> Iterator[RecordBatch]:
        """The keys of one file, and in the mode PERMISSIVE its error. Raises :class:`RdbError` in the mode FAILFAST."""
        error = yield from read_file(partition.file, self.options)
        if error is not None:
            if self.options.fail_fast:
                raise error
            yield error_row(partition.file.shown, str(error))


def read_file(file: RdbFile, options: RdbOptions) -> Generator[RecordBatch, None, RdbError | None]:
    """The keys of one file; returns the error that ended the reading early, or None."""
    try:
        stream, size = file.open()
    except OSError as error:
        return UnreadableRdb(file.shown, 0, f"it cannot be opened: {error}")
    with closing(stream):
        scanner = Scanner(
            stream,
            file.shown,
            size,
            options.checksum,
            options.function,
            options.number_of_slots,
            options.allocator,
            rules=options.rules,
        )
        while batch := scanner.batch():
            yield record_batch(file.shown, batch, scanner.types)
        return scanner.error
