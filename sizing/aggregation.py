"""Makes four tables of the keys, each with a bounded number of rows for any number of keys.

For a sample, numbers of keys and bytes are estimates. Each key is in the sample with the same probability p,
independent of the others (Bernoulli sampling). So the sum over the sample, divided by p, is an unbiased estimate of the
sum over all keys (Horvitz and Thompson, 1952). Its variance is estimated without bias by (1 - p) / p² times the sum of
the squares over the sample; the columns that end in ``_error`` are its square root, the standard error. For numbers of
keys each key counts 1. Means, shares and percentiles are the sample's own. At p = 1 errors are 0.

Two things limit this. A sample knows nothing about a few very big keys that it does not have, so errors are too small
if most bytes are in few keys. And keys of one name in several databases are in the sample together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sizing.buckets import SIZE, TTL, TTL_RANGES, size_label

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY_COLUMNS = {
    "group_id": "int",
    "server": "string",
    "database": "int",
    "slot": "int",
    "key": "binary",
    "type": "string",
    "bytes": "bigint",
    "ttl_ms": "bigint",
}
"""The columns that are kept of each key: names of the data sources' columns, and their types in Spark's SQL."""
DETAIL_COLUMNS = {"encoding": "string", "elements": "bigint"}
"""Further columns, kept on request."""
PERCENTILE_ACCURACY = 1000
"""The accuracy: ranks of p50 and p99 are off by at most one in so many keys."""


def key_columns(details: bool) -> dict[str, str]:
    """The columns that are kept of each key, with or without :data:`DETAIL_COLUMNS`."""
    return {**KEY_COLUMNS, **(DETAIL_COLUMNS if details else {})}


def ddl(columns: Mapping[str, str]) -> str:
    """Columns in the form of a Spark schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def slots(keys: DataFrame, fraction: float) -> DataFrame:
    """A row for each slot that has keys, by ascending slot.

    ``group_id`` is the group that has most of the slot's bytes. ``groups`` is 2 if a moving slot was found at both
    groups. ``biggest_key`` is the one of most bytes; of several, the last by its name.

    Args:
        keys: a row a key, with :data:`KEY_COLUMNS`.
        fraction: probability of a key to be among them, 0 < p <= 1.
    """
    from pyspark.sql import functions as f

    # Grouped twice: percentiles need all keys of a slot together, and the slot's group is the one with most bytes.
    owners = (
        keys.groupBy("slot", "group_id")
        .agg(f.sum("bytes").alias("held"))
        .groupBy("slot")
        .agg(
            f.max(f.struct("held", "group_id"))["group_id"].alias("group_id"),
            f.count_distinct("group_id").alias("groups"),
        )
    )
    percentiles = f.percentile_approx("bytes", [0.5, 0.99], PERCENTILE_ACCURACY)
    found = keys.groupBy("slot").agg(
        *_totals(fraction),
        f.avg("bytes").alias("mean_bytes"),
        percentiles.alias("percentiles"),
        f.max("bytes").alias("max_bytes"),
        f.max(f.struct("bytes", "key"))["key"].alias("biggest_key"),
        _no_ttl_share(),
    )
    return (
        found.join(owners, "slot")
        .select(
            *("slot", "group_id", "groups", "keys", "bytes", "mean_bytes"),
            f.col("percentiles")[0].alias("p50_bytes"),
            f.col("percentiles")[1].alias("p99_bytes"),
            *("max_bytes", "biggest_key", "no_ttl_share", "keys_error", "bytes_error"),
        )
        .orderBy("slot")
    )


def groups(keys: DataFrame, fraction: float) -> DataFrame:
    """A row for each group and server that has keys: ``group_id, server, keys, bytes`` and their errors."""
    return keys.groupBy("group_id", "server").agg(*_totals(fraction)).orderBy("group_id", "server")


def types(keys: DataFrame, fraction: float) -> DataFrame:
    """A row for each type of key: ``type, keys, bytes`` and their errors, most bytes first."""
    from pyspark.sql import functions as f

    return keys.groupBy("type").agg(*_totals(fraction)).orderBy(f.desc("bytes"), "type")


def prefixes(keys: DataFrame, fraction: float, separator: str, depth: int, most: int) -> DataFrame:
    """The prefixes of most bytes: at most ``most`` of each depth, those of most bytes first.

    A key's prefix of depth d is its name up to and with its d-th separator; a name with fewer has none. Depth 0 is all
    keys whose name has no separator, under the empty prefix. Names are bytes, and so are prefixes.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Spark's strings are unchecked bytes, so a name that is not UTF-8 comes out unchanged.
    name = f.col("key").cast("string")
    parts = [
        f.when(
            f.octet_length(f.substring_index(name, separator, level)) < f.octet_length(name),
            f.struct(
                f.lit(level).alias("depth"),
                f.concat(f.substring_index(name, separator, level), f.lit(separator)).cast("binary").alias("prefix"),
            ),
        )
        for level in range(1, depth + 1)
    ]
    bare = f.when(
        f.substring_index(name, separator, 1) == name,
        f.struct(f.lit(0).alias("depth"), f.lit("").cast("binary").alias("prefix")),
    )
    found = (
        keys.withColumn("part", f.explode(f.filter(f.array(bare, *parts), lambda part: part.isNotNull())))
        .groupBy("part.depth", "part.prefix")
        .agg(*_totals(fraction), f.max("bytes").alias("max_bytes"), _no_ttl_share())
    )
    order = Window.partitionBy("depth").orderBy(f.desc("bytes"), "prefix")
    return (
        found.withColumn("rank", f.row_number().over(order))
        .where(f.col("rank") <= most)
        .select("depth", "rank", "prefix", "keys", "bytes", "max_bytes", "no_ttl_share", "keys_error", "bytes_error")
        .orderBy("depth", "rank")
    )


def biggest(keys: DataFrame, most: int, most_per_slot: int) -> DataFrame:
    """The biggest keys: the ``most`` biggest of all, and of each slot its ``most_per_slot`` biggest.

    ``rank`` counts from 1 over all keys, null for one that is only among its slot's; ``rank_in_slot`` likewise.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    places = (f.desc("bytes"), "key", "database", "server")
    first = keys.orderBy(*places).limit(most)
    first = first.withColumn("rank", f.row_number().over(Window.partitionBy(f.lit(0)).orderBy(*places)))
    within = Window.partitionBy("slot").orderBy(*places)
    of_slots = keys.withColumn("rank_in_slot", f.row_number().over(within)).where(
        f.col("rank_in_slot") <= most_per_slot
    )
    # A key is at most one row of each; several servers may have a key of the same name.
    same = [f.col(f"a.{name}").eqNullSafe(f.col(f"b.{name}")) for name in ("server", "database", "slot", "key")]
    return (
        first.alias("a")
        .join(of_slots.alias("b"), same, "full")
        .select("rank", "rank_in_slot", *(f.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in keys.columns))
        .orderBy(f.asc_nulls_last("rank"), "slot", "rank_in_slot")
    )


def histograms(keys: DataFrame, fraction: float) -> DataFrame:
    """Keys and bytes by size, in powers of two, and by time to live, in ranges.

    ``histogram`` is ``bytes`` or ``ttl_ms``; a row counts the keys with ``low <= value < high``, where null for
    ``high`` means without end, and for ``low`` that a key never expires. Rows without keys are left out.
    """
    from pyspark.sql import functions as f

    # By the number of binary digits, because a logarithm is not exact.
    exponent = f.length(f.bin(f.greatest(f.col("bytes"), f.lit(1)))) - 1
    sizes = keys.groupBy(exponent.alias("bucket")).agg(*_totals(fraction))
    by_size = sizes.select(
        f.lit(SIZE).alias("histogram"),
        "bucket",
        f.pow(f.lit(2.0), "bucket").cast("bigint").alias("low"),
        f.pow(f.lit(2.0), f.col("bucket") + 1).cast("bigint").alias("high"),
        f.element_at(f.array(*(f.lit(size_label(n)) for n in range(63))), f.col("bucket") + 1).alias("label"),
        *("keys", "bytes", "keys_error", "bytes_error"),
    )
    bucket: Column = f.lit(len(TTL_RANGES) - 1)
    for number, entry in reversed(list(enumerate(TTL_RANGES))):
        if entry.high is not None:
            bucket = f.when(f.col("ttl_ms") < entry.high, number).otherwise(bucket)
    never = next(number for number, entry in enumerate(TTL_RANGES) if entry.low is None)
    lives = keys.groupBy(f.when(f.col("ttl_ms").isNull(), never).otherwise(bucket).alias("bucket"))
    ranges = keys.sparkSession.createDataFrame(
        [(number, entry.low, entry.high, entry.label) for number, entry in enumerate(TTL_RANGES)],
        "bucket int, low bigint, high bigint, label string",
    )
    by_life = (
        lives.agg(*_totals(fraction))
        .join(f.broadcast(ranges), "bucket")
        .select(
            f.lit(TTL).alias("histogram"),
            *("bucket", "low", "high", "label"),
            "keys",
            "bytes",
            "keys_error",
            "bytes_error",
        )
    )
    return by_size.unionByName(by_life).orderBy("histogram", "bucket")


def _totals(fraction: float) -> list[Column]:
    """Keys and bytes, scaled up, with their standard errors (see the module's docstring)."""
    from pyspark.sql import functions as f

    spread = (1 - fraction) / fraction**2
    squares = f.sum(f.col("bytes").cast("double") * f.col("bytes"))
    return [
        f.round(f.count("*") / fraction).cast("bigint").alias("keys"),
        # Whole numbers stay whole: a sum of doubles would not be exact.
        (f.sum("bytes") if fraction == 1 else f.round(f.sum("bytes") / fraction).cast("bigint")).alias("bytes"),
        f.sqrt(f.count("*") * spread).alias("keys_error"),
        f.sqrt(squares * spread).alias("bytes_error"),
    ]


def _no_ttl_share() -> Column:
    from pyspark.sql import functions as f

    return f.avg(f.col("ttl_ms").isNull().cast("double")).alias("no_ttl_share")
