"""Prints the costs of a plan as tables, for ``slotferry plan`` and for ``slotferry rebalance --dry-run``."""

from collections.abc import Mapping
from typing import Any

from slotferry.output import say, size, table
from slots.counting import counted

MOST_PAIRS = 20
"""The most pairs of groups in the table: those with the most bytes. The last row sums up the others."""


def show_costs(cost: Mapping[str, Any], took: float | None = None) -> None:
    """Print the groups before and after, the amounts between each pair, and how long it takes.

    Args:
        cost: as :meth:`topom.balance.planners.forecast.Forecast.to_wire` has it.
        took: the seconds that it took, if all has moved.
    """
    _show_groups(cost["groups"])
    if cost["pairs"]:
        say("")
        _show_pairs(cost["pairs"], "to move" if took is None else "moved")
        _show_ways(cost["pairs"])
    say("")
    say(_total(cost, took))


def _show_groups(groups: list[dict[str, Any]]) -> None:
    by_load = [group for group in groups if group["before"].get("load_percent_off") is not None]
    if by_load:
        _show_loads(by_load)
        say("")
    columns = ("group", "share", "slots", "bytes", "off", "slots after", "bytes after", "off after")
    rows = [
        (
            group["id"],
            size(group["share_bytes"]),
            group["before"]["slots"],
            size(group["before"]["bytes"]),
            _percent(group["before"]["percent_off"]),
            group["after"]["slots"],
            size(group["after"]["bytes"]),
            _percent(group["after"]["percent_off"]),
        )
        for group in groups
    ]
    table(columns, rows, title="groups")


def _show_loads(groups: list[dict[str, Any]]) -> None:
    rows = [
        (group["id"], *(_percent(group[part]["load_percent_off"]) for part in ("before", "after"))) for group in groups
    ]
    table(("group", "load off its share", "after"), rows, title="load")


def _show_pairs(pairs: list[dict[str, Any]], title: str) -> None:
    by_bytes = sorted(pairs, key=lambda pair: (-(pair["bytes"] or 0), -pair["slots"], pair["from"], pair["to"]))
    rows: list[tuple[object, ...]] = [
        (
            f"group {pair['from']}" if pair["from"] else "offline",
            f"group {pair['to']}",
            pair["slots"],
            size(pair["bytes"]),
            pair["keys"],
        )
        for pair in by_bytes[:MOST_PAIRS]
    ]
    others = by_bytes[MOST_PAIRS:]
    if others:
        rows.append(
            (
                f"{len(others)} more",
                "",
                sum(pair["slots"] for pair in others),
                size(_sum(pair["bytes"] for pair in others)),
                _sum(pair["keys"] for pair in others),
            )
        )
    table(("from", "to", "slots", "bytes", "keys"), rows, title=title)


def _show_ways(pairs: list[dict[str, Any]]) -> None:
    """How the slots of each pair would move, and what that costs."""
    known = sorted(
        (pair for pair in pairs if pair.get("way") is not None),
        key=lambda pair: (-(pair["way"]["bytes"] or 0), -pair["slots"], pair["from"], pair["to"]),
    )
    if not known:
        return
    rows = [
        (
            f"group {pair['from']}",
            f"group {pair['to']}",
            f"by {'the stream' if way['way'] == 'stream' else 'keys'}",
            _time(way["seconds"]),
            size(way["bytes"]),
            "-" if way["twice_bytes"] is None else f"{size(way['twice_bytes'])} for {_time(way['twice_seconds'])}",
            "-" if way["lock_seconds"] is None else f"{way['lock_seconds'] * 1000:.0f} ms",
            way["because"],
        )
        for pair in known[:MOST_PAIRS]
        for way in (pair["way"],)
    ]
    say("")
    table(
        ("from", "to", "way", "time", "bytes", "memory held twice", "lock", "because"),
        rows,
        title="how they would move",
    )
    if len(known) > MOST_PAIRS:
        say(f"and {len(known) - MOST_PAIRS} more pairs; --output json has them")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _total(cost: Mapping[str, Any], took: float | None = None) -> str:
    total = cost["total"]
    if not total["slots"]:
        return "nothing to move"
    parts = [counted(total["slots"], "slot")]
    if total["bytes"] is not None:
        parts.append(size(total["bytes"]))
    if total["keys"] is not None:
        parts.append(counted(total["keys"], "key"))
    if took is not None:
        return f"in all {', '.join(parts)}; it took {duration(took)}"
    seconds = cost["seconds"]
    time = (
        f"about {duration(seconds)}{_by_what(cost['pairs'])}"
        if seconds is not None
        else "no rate known to tell the time"
    )
    return f"in all {', '.join(parts)}; {time}"


def _by_what(pairs: list[dict[str, Any]]) -> str:
    return "" if any(pair.get("way") for pair in pairs) else " at the measured rate"


def duration(seconds: float) -> str:
    """A time as text for a person: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}%"


def _sum(values: Any) -> int | None:
    listed = list(values)
    return None if None in listed else sum(listed)
