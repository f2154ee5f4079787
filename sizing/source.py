"""The Spark data source ``slotferry``: the keys of live servers.

>>> spark.dataSource.register(SlotferryDataSource)
>>> spark.read.format("slotferry").option("topom", "http://127.0.0.1:8380").load()

Options are :class:`sizing.options.ReadOptions`, columns :data:`sizing.schema.SERVER_COLUMNS`.

Spark does not tell a Python data source which columns a query uses. So the user names them: by the option ``columns``,
or by a schema (``.schema("slot int, bytes bigint")``). Other columns are not read.

Filters on ``type``, ``slot`` and ``database`` are taken over when the session has
``spark.sql.python.filterPushdown.enabled``, in Spark 4.1 and newer. The options ``types``, ``slots`` and ``databases``
do the same without.

The driver asks topom and the servers about keys and databases; executors connect to the servers. Both have credentials
from their own environment (:mod:`sizing.access`), so no plan or log contains them.

Spark starts a Python process for each step of a plan, so each step imports only the modules that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType

from sizing.errors import OptionError
from sizing.options import ReadOptions
from sizing.schema import ERROR_COLUMN, SERVER_COLUMNS
from sizing.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

    from sizing.partitions import ScanPartition

_KINDS: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
}
_COLUMNS = {column.name: column for column in (*SERVER_COLUMNS, ERROR_COLUMN)}


class SlotferryDataSource(DataSource):
    """``format("slotferry")``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "slotferry"

    def schema(self) -> StructType:
        """The columns, each with its meaning as a comment. Raises :class:`sizing.errors.OptionError`."""
        named = ReadOptions.of(self.options).columns or tuple(column.name for column in SERVER_COLUMNS)
        schema = StructType()
        for name in named:
            if name not in _COLUMNS:
                raise OptionError(f"there is no column {name}; there are {', '.join(_COLUMNS)}")
            schema.add(name, _KINDS[_COLUMNS[name].kind], True, {"comment": _COLUMNS[name].comment})
        return schema

    def reader(self, schema: StructType) -> SlotferryReader:
        """Reads the columns of ``schema``. Raises :class:`sizing.errors.OptionError`."""
        for field in schema.fields:
            column = _COLUMNS.get(field.name)
            if column is None:
                raise OptionError(f"there is no column {field.name}; there are {', '.join(_COLUMNS)}")
            if field.dataType != _KINDS[column.kind]:
                raise OptionError(
                    f"the column {field.name} is {column.kind}, and cannot be read as {field.dataType.simpleString()}"
                )
        options = ReadOptions.of(self.options)
        return SlotferryReader(
            options,
            Selection(
                tuple((field.name, field.nullable) for field in schema.fields),
                options.types,
                options.slots,
                options.sample_fraction,
            ),
        )


@dataclass
class ServerPartition(InputPartition):
    """A partition in Spark's form."""

    scan: ScanPartition


class SlotferryReader(DataSourceReader):
    """Reads the columns and keys that a query needs."""

    def __init__(self, options: ReadOptions, selection: Selection) -> None:
        self._options = options
        self._selection = selection
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def take_over(self, filters: Sequence[Any]) -> Iterator[Any]:
        """Narrow the selection by the filters that save servers work; give the others back to Spark."""
        for each in filters:
            values = _values(each)
            if values is None or not self._narrow(each.attribute, values):
                yield each

    def _narrow(self, attribute: tuple[str, ...], values: frozenset[Any]) -> bool:
        chosen = self._selection
        if attribute == ("type",):
            types = tuple(sorted(values if not chosen.types else values.intersection(chosen.types)))
            # No type is left. An empty list means all types, so Spark itself has to apply this filter.
            if not types:
                return False
            self._selection = replace(chosen, types=types)
        elif attribute == ("slot",):
            self._selection = replace(chosen, slots=values if chosen.slots is None else values & chosen.slots)
        elif attribute == ("database",):
            before = self._options.databases
            self._options = replace(self._options, databases=values if before is None else values & before)
        else:
            return False
        return True

    def partitions(self) -> list[ServerPartition]:
        """One for each range of a server's cursors.

        Raises:
            sizing.errors.SizingError: topom or, in mode FAILFAST, a server cannot be asked.
        """
        from sizing.cluster import Cluster
        from sizing.partitions import plan_partitions

        return [ServerPartition(partition) for partition in plan_partitions(Cluster.of(self._options), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The keys of one partition."""
        # Spark makes a partition of its own if there is none.
        if isinstance(partition, ServerPartition):
            from sizing.scan import read_partition

            yield from read_partition(partition.scan, self._options, self._selection)


class _PushFilters:
    """Spark's pushFilters. In a session without push-down, Spark refuses a reader that has its own method; it
    recognises that by the method's function. With this function it goes on, and filters itself."""

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", len))

    def __init__(self, reader: SlotferryReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return list(self._reader.take_over(filters))


def _values(filter_: Any) -> frozenset[Any] | None:
    """The values that an equality or a list allows; None for any other filter."""
    # Compared by name, because Spark 4.0 has no filters.
    kind = type(filter_).__name__
    if kind not in ("EqualTo", "In"):
        return None
    values = frozenset([filter_.value] if kind == "EqualTo" else filter_.value)
    return None if None in values else values
