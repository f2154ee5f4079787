"""Cuts the reading of servers into partitions, a task of Spark each.

A partition is a list of ranges of cursors in databases of one server. A server has at most ``partitions_per_server`` of
them, with any number of databases. So the limits for a server are divided by their number, and hold even if all run at
once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sizing.cluster import Cluster, Server
from sizing.cursors import CursorRange
from sizing.options import ReadOptions
from slots.rules import SlotRule

KEYS_PER_RANGE = 10_000
"""A database is only split into ranges of at least so many keys. Smaller ranges are not worth it. Tables then also have
many more buckets than there are ranges (see :mod:`sizing.cursors`)."""


@dataclass(frozen=True, slots=True)
class ScanRange:
    """One range of cursors of one database."""

    database: int
    cursors: CursorRange
    keys: int
    """How many keys it has, approximately."""


@dataclass(frozen=True, slots=True)
class ScanPartition:
    """The reading of one task. It contains no secret, because Spark sends it around.

    Attributes:
        product, function, number_of_slots, rules: as in :class:`sizing.cluster.Cluster`.
        server, group_id, in_cluster_mode: of the server.
        ranges: the ranges to read there, one after the other.
        of: how many partitions the server has.
        failed: why the server cannot be read at all; "" if it can.
    """

    product: str | None
    function: str
    number_of_slots: int
    server: str
    group_id: int | None
    in_cluster_mode: bool
    ranges: tuple[ScanRange, ...]
    of: int
    failed: str = ""
    rules: tuple[SlotRule, ...] = ()

    @property
    def keys(self) -> int:
        """How many keys it has, approximately, before any filter."""
        return sum(each.keys for each in self.ranges)


def plan_partitions(
    cluster: Cluster, options: ReadOptions, databases: Collection[int] | None = None
) -> list[ScanPartition]:
    """The partitions of a read. ``databases`` are the databases to read among those that the options allow; None for
    all of them.

    Partitions of one server are far apart in the list, so that tasks that run at the same time have different servers.
    """
    found = []
    for server in cluster.servers:
        of, parts = _share(server, options, databases)
        for place, ranges in enumerate(parts):
            # A server has fewer partitions than allowed if its databases are small.
            partition = ScanPartition(
                cluster.product,
                cluster.function,
                cluster.number_of_slots,
                server.address,
                server.group_id,
                server.in_cluster_mode,
                tuple(ranges),
                of,
                rules=cluster.rules,
            )
            found.append((place, partition))
    found.sort(key=lambda pair: pair[0])
    failed = [
        ScanPartition(
            cluster.product, cluster.function, cluster.number_of_slots, each.address, each.group_id, False, (), 1,
            each.reason,
        )
        for each in cluster.unreadable
    ]  # fmt: skip
    return [partition for _, partition in found] + failed


def _share(
    server: Server, options: ReadOptions, databases: Collection[int] | None
) -> tuple[int, list[list[ScanRange]]]:
    """How many partitions a server has, and the ranges of each."""
    wanted = {
        database: keys
        for database, keys in server.keys.items()
        if keys
        and (options.databases is None or database in options.databases)
        and (databases is None or database in databases)
    }
    most = options.partitions_per_server if server.counts_by_position else 1
    parts: list[list[ScanRange]] = [[] for _ in range(most)]
    # The big ranges first; each goes to the partition that has least to do.
    for database, keys in sorted(wanted.items(), key=lambda item: (-item[1], item[0])):
        of = most
        while of > 1 and keys < of * KEYS_PER_RANGE:
            of //= 2
        for index in range(of):
            least = min(parts, key=lambda part: sum(each.keys for each in part))
            least.append(ScanRange(database, CursorRange(index, of), keys // of + (index < keys % of)))
    used = [part for part in parts if part]
    return len(used), used
