"""Makes the summary of a run from its tables and keys, and converts it to and from its stored form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sizing import aggregation
from sizing.buckets import SIZE, TTL
from sizing.outcome import BigKey, Failure, SlotBytes, Summary, Total
from slots.keynames import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from sizing.tables import Results

FIRST = 12
"""How many servers, prefixes and keys fit on a page."""
MOST_GROUPS = 1000


def summarize(
    results: Results,
    keys: DataFrame,
    *,
    fraction: float,
    number_of_slots: int,
    product: str,
    source: str,
    taken_at: float,
    seconds: float,
    missing: Sequence[Failure],
) -> Summary:
    """The content of the page. ``results`` already has its tables; ``attributes`` are those of the summary."""
    from pyspark.sql import functions as f

    slots = tuple(
        SlotBytes(row["slot"], row["group_id"], row["bytes"], row["keys"])
        for row in results.table("slots").orderBy("slot").collect()
    )
    groups = _totals(aggregation.groups(keys, fraction).limit(MOST_GROUPS).collect(), _group)
    prefixes = results.table("prefixes").where("depth <= 1").orderBy(f.desc("bytes"), "prefix").limit(FIRST).collect()
    histograms = results.table("histograms").orderBy("histogram", "bucket").collect()
    return Summary(
        source=source,
        product=product,
        taken_at=taken_at,
        seconds=seconds,
        complete=not missing,
        missing=tuple(missing),
        sampled=fraction,
        number_of_slots=number_of_slots,
        total=_sum(groups),
        groups=tuple(sorted(groups, key=lambda group: (-group.bytes, group.name))),
        types=_totals(aggregation.types(keys, fraction).collect(), lambda row: str(row["type"])),
        prefixes=_totals(prefixes, lambda row: readable(bytes(row["prefix"])) or "(no separator)"),
        sizes=_totals([row for row in histograms if row["histogram"] == SIZE], lambda row: str(row["label"])),
        lives=_totals([row for row in histograms if row["histogram"] == TTL], lambda row: str(row["label"])),
        biggest=tuple(
            BigKey(readable(bytes(row["key"])), row["server"], row["database"], row["slot"], row["type"], row["bytes"])
            for row in results.table("biggest").where("rank is not null").orderBy("rank").limit(FIRST).collect()
        ),
        slots=slots,
    )


def to_json(summary: Summary) -> dict[str, Any]:
    """The stored form, in JSON. The slots have a table of their own, and are left out."""
    found = asdict(summary)
    del found["slots"]
    return found


def from_json(found: dict[str, Any], slots: Iterable[SlotBytes]) -> Summary:
    """The reverse of :func:`to_json`; the slots are added."""
    totals = {
        name: tuple(Total(**entry) for entry in found[name])
        for name in ("groups", "types", "prefixes", "sizes", "lives")
    }
    parts = {
        "total": Total(**found["total"]),
        "missing": tuple(Failure(**entry) for entry in found["missing"]),
        "biggest": tuple(BigKey(**entry) for entry in found["biggest"]),
        "slots": tuple(slots),
    }
    return Summary(**{**found, **totals, **parts})


def _group(row: Row) -> str:
    return str(row["server"]) if row["group_id"] is None else f"group {row['group_id']}"


def _totals(rows: Iterable[Row], named: Any) -> tuple[Total, ...]:
    """Rows by name. Rows of one name are added up, for example of a group whose server was changed."""
    found: dict[str, list[Total]] = {}
    for row in rows:
        total = Total(named(row), row["keys"], row["bytes"], row["keys_error"], row["bytes_error"])
        found.setdefault(total.name, []).append(total)
    return tuple(_sum(totals, name) for name, totals in found.items())


def _sum(totals: Sequence[Total], name: str = "all") -> Total:
    """The sum of all. They are of different keys, so their errors are independent, and their variances add up."""
    return Total(
        name,
        sum(total.keys for total in totals),
        sum(total.bytes for total in totals),
        math.hypot(*(total.keys_error for total in totals)),
        math.hypot(*(total.bytes_error for total in totals)),
    )
