"""The columns of both data sources, each with its unit. A key without a deadline has null there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in Spark's SQL, and its meaning."""

    name: str
    kind: str
    comment: str


SERVER_COLUMNS = (
    Column("product", "string", "name of the cluster; null without topom"),
    Column("group_id", "int", "group that owns the slot's server; null without topom"),
    Column("server", "string", "host:port that the key was read at"),
    Column("database", "int", "number of the database"),
    Column("slot", "int", "slot of the key, by the product's slot function"),
    Column("key", "binary", "name of the key"),
    Column("type", "string", "string, list, set, zset, hash, stream, or a module's own"),
    Column("encoding", "string", "how the server keeps it, as OBJECT ENCODING says"),
    Column("bytes", "bigint", "memory in bytes, as MEMORY USAGE says"),
    Column("elements", "bigint", "length in elements; of a string in bytes; null for a module's type"),
    Column("ttl_ms", "bigint", "milliseconds until it expires; null for never"),
    Column("idle_s", "bigint", "seconds since it was last used, as OBJECT IDLETIME says; null where that is not kept"),
)
"""The columns of ``slotferry``: keys of live servers."""

ERROR_COLUMN = Column(
    "error", "string", "why the rest of a partition is missing: in a row of its own, whose key is null; else null"
)
"""A further column of ``slotferry`` in mode PERMISSIVE, if it is named."""

RDB_COLUMNS = (
    Column("file", "string", "path of the RDB file"),
    Column("database", "int", "number of the database"),
    Column("slot", "int", "slot of the key, by the product's slot function"),
    Column("key", "binary", "name of the key"),
    Column("type", "string", "string, list, set, zset, hash, stream, or a module's own"),
    Column("encoding", "string", "how the server kept it when it wrote the file, as far as that tells"),
    Column("serialized_bytes", "bigint", "bytes of the key and its value in the file"),
    Column("bytes", "bigint", "memory in bytes, an estimate of what MEMORY USAGE would say"),
    Column("elements", "bigint", "length in elements; of a string in bytes; null for a module's type"),
    Column("ttl_ms", "bigint", "milliseconds from the file's creation until it expires; null for never"),
    Column(
        "error", "string", "why the file was not read to its end; in a row of its own with the file alone, else null"
    ),
)
"""The columns of ``slotferry-rdb``: keys of RDB files."""
