"""What a run is asked to do, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from sizing.errors import SizingError
from sizing.options import ReadOptions


class JobError(SizingError):
    """The job cannot be done as asked. The message tells an operator what to do."""


class Status(IntEnum):
    """Exit status of a run; 2 is the shell's for wrong usage."""

    COMPLETE = 0
    FAILED = 1
    """Nothing was sized, or the results could not be written."""
    PARTIAL = 3
    """Some servers or files failed; the results are those of the others."""
    NOT_POSTED = 4
    """The results are written, but topom does not have them."""


@dataclass(frozen=True)
class JobRequest:
    """What to size, how, and where the results go.

    Attributes:
        output: the results' folder, a local path or an address that Spark can write.
        topom: address of topom's API; "" for none.
        token: topom's bearer token.
        servers: ``host:port`` of servers, separated by commas, instead of topom; "" for none.
        rdb: path of RDB files, with wildcards, instead of live servers; "" for none.
        source: more options of the data source, by its own names; none is a secret.
        fraction: share of the keys that is read, 0 < p <= 1.
        details: whether encodings and lengths of keys are read as well.
        separator, depth, prefixes: the separator of prefixes in keys' names; the most separators in a prefix; the most
            rows of each depth.
        biggest, biggest_per_slot: how many of the biggest keys are kept, of all and of each slot.
        parallel: how many servers or files are read at once.
        keep_keys: whether the keys that were read stay in the folder when the run is complete.
        fresh: whether to start again in a folder that has a run.
        post: whether topom is told.
    """

    output: str
    topom: str = ""
    token: str = field(default="", repr=False)
    servers: str = ""
    rdb: str = ""
    source: dict[str, str] = field(default_factory=dict)
    fraction: float = 1.0
    details: bool = False
    separator: str = ":"
    depth: int = 2
    prefixes: int = 1000
    biggest: int = 100
    biggest_per_slot: int = 10
    parallel: int = 8
    keep_keys: bool = False
    fresh: bool = False
    post: bool = True

    @property
    def of_keys(self) -> dict[str, Any]:
        """The parts that decide which keys are read and which columns: a run goes on only with the same."""
        return {
            "topom": self.topom,
            "servers": self.servers,
            "rdb": self.rdb,
            "sample_fraction": self.fraction,
            "details": self.details,
            **{name: value for name, value in sorted(self.source.items()) if name not in PACE},
        }

    @property
    def of_tables(self) -> dict[str, Any]:
        """The parts that decide the tables."""
        return {
            "separator": self.separator,
            "depth": self.depth,
            "prefixes": self.prefixes,
            "biggest": self.biggest,
            "biggest_per_slot": self.biggest_per_slot,
        }


PACE = frozenset(
    {
        *("scan_count", "milliseconds_per_call", "max_keys_per_second", "partitions_per_server"),
        *("connect_timeout_seconds", "timeout_seconds"),
    }
)
"""Options of the data source that change how fast keys are read, but not which: a run may go on with other values."""


def read_options(request: JobRequest) -> ReadOptions:
    """The data source's options for live servers.

    Raises:
        OptionError: one of them is unknown or cannot be used.
    """
    where = {"servers": request.servers} if request.servers else {"topom": request.topom}
    return ReadOptions.of({**request.source, **where, "sample_fraction": str(request.fraction)})


@dataclass(frozen=True)
class Failure:
    """A server or file that could not be read to its end: its name, and the reason in a sentence."""

    place: str
    reason: str


@dataclass(frozen=True)
class Total:
    """Keys and their bytes under one name; for a sample, with their standard errors."""

    name: str
    keys: int
    bytes: int
    keys_error: float = 0.0
    bytes_error: float = 0.0


@dataclass(frozen=True)
class BigKey:
    """One of the biggest keys. ``key`` is its name, as text; ``bytes`` its memory."""

    key: str
    server: str
    database: int
    slot: int
    type: str
    bytes: int


@dataclass(frozen=True)
class SlotBytes:
    """The bytes of one slot, and its group; None if no group is known."""

    slot: int
    group_id: int | None
    bytes: int
    keys: int


@dataclass(frozen=True)
class Summary:
    """A run's results on one page.

    Attributes:
        source: the servers or files that were sized, in words.
        product: name of the cluster; "" where topom was not asked.
        taken_at: when the oldest key was read, in seconds since 1970, UTC; for files, when they were written.
        seconds: how long it took to read it all.
        complete: whether all servers or files were read to their end.
        sampled: share of the keys that was read.
        number_of_slots: slots of the product.
        total: all keys.
        groups, types, prefixes: most bytes first, the first few.
        sizes, lives: the histograms, in ascending order.
        biggest: the first few.
        slots: all that have keys, ascending.
    """

    source: str
    product: str
    taken_at: float
    seconds: float
    complete: bool
    missing: tuple[Failure, ...]
    sampled: float
    number_of_slots: int
    total: Total
    groups: tuple[Total, ...]
    types: tuple[Total, ...]
    prefixes: tuple[Total, ...]
    sizes: tuple[Total, ...]
    lives: tuple[Total, ...]
    biggest: tuple[BigKey, ...]
    slots: tuple[SlotBytes, ...]
