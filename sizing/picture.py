"""One page as PNG: bytes by group and by slot, the biggest prefixes, and the histograms."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sizing.buckets import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sizing.outcome import Summary, Total

WIDTH, HEIGHT, DPI = 13.0, 9.5, 100
"""In inches, and dots an inch."""
MOST_BARS = 12
_COLOURS = (
    "#3b6ea5",
    "#e08b3e",
    "#5a9a68",
    "#b5555a",
    "#7d6bab",
    "#8a6d57",
    "#cf86b0",
    "#6f7b85",
    "#a9a53c",
    "#46a3b0",
)
_MUTED = "#9aa3ab"
_INK = "#22282e"


def draw(summary: Summary) -> bytes:
    """The page, as a PNG file."""
    # A canvas of its own, without pyplot: so nothing depends on a display, or on earlier drawings of the process.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        3, 2, left=0.125, right=0.975, top=0.875, bottom=0.085, hspace=0.42, wspace=0.36, height_ratios=(1.0, 1.05, 1.0)
    )
    _head(figure, summary)
    groups = [group.name for group in sorted(summary.groups, key=lambda group: group.name)]
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(groups)}
    _bars(figure.add_subplot(grid[0, 0]), "Bytes by group", summary.groups, summary.total, colours)
    _bars(figure.add_subplot(grid[0, 1]), "Biggest prefixes", summary.prefixes, summary.total, {})
    _slots(figure.add_subplot(grid[1, :]), summary, colours)
    _shares(figure.add_subplot(grid[2, 0]), "Keys and bytes by size of key", summary.sizes)
    _shares(figure.add_subplot(grid[2, 1]), "Keys and bytes by time to live", summary.lives)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _head(figure: Any, summary: Summary) -> None:
    total = summary.total
    title = f"{size(total.bytes)} in {total.keys:,} keys"
    if summary.sampled < 1:
        title = f"{size(total.bytes)} ± {size(total.bytes_error)} in {total.keys:,} ± {total.keys_error:,.0f} keys"
    figure.text(0.02, 0.965, title, fontsize=19, weight="bold", color=_INK, va="center")
    moment = datetime.fromtimestamp(summary.taken_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [part for part in (summary.product, summary.source, moment) if part]
    if summary.sampled < 1:
        parts.append(f"a sample of {summary.sampled:.2%} of the keys; ± is one standard error")
    figure.text(0.02, 0.93, " · ".join(parts).replace("$", r"\$"), fontsize=10.5, color="#555f68", va="center")
    if not summary.complete:
        places = ", ".join(failure.place for failure in summary.missing[:4])
        more = f" and {len(summary.missing) - 4} more" if len(summary.missing) > 4 else ""
        text = f"PARTIAL: not read: {places}{more}"
        figure.text(0.98, 0.965, text, fontsize=11, weight="bold", color="#b03030", ha="right", va="center")


def _bars(axes: Axes, title: str, totals: Sequence[Total], whole: Total, colours: dict[str, str]) -> None:
    """Horizontal bars, most bytes on top, each with its share of all."""
    _plain(axes, title)
    shown = list(totals[:MOST_BARS])
    if len(totals) > MOST_BARS:
        axes.set_title(f"{title} (the first {MOST_BARS} of {len(totals)})", loc="left", fontsize=12, weight="bold")
    if not shown:
        _nothing(axes)
        return
    places = range(len(shown))
    divisor, unit = _unit(max(total.bytes for total in shown))
    errors = [total.bytes_error / divisor for total in shown]
    axes.barh(
        places,
        [total.bytes / divisor for total in shown],
        height=0.68,
        color=[colours.get(total.name, _COLOURS[0]) for total in shown],
        xerr=errors if any(errors) else None,
        error_kw={"ecolor": _INK, "capsize": 3, "lw": 1.2},
    )
    axes.set_yticks(places, [_short(total.name) for total in shown], fontsize=9.5)
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    axes.set_xlabel(unit, fontsize=9.5)
    widest = max(total.bytes + total.bytes_error for total in shown) / divisor
    axes.set_xlim(0, (widest or 1) * 1.27)
    for place, total in enumerate(shown):
        end = (total.bytes + total.bytes_error) / divisor
        text = f"{size(total.bytes)}  {total.bytes / max(whole.bytes, 1):.0%}"
        axes.text(end + (widest or 1) * 0.015, place, text, va="center", fontsize=9, color=_INK)
    axes.grid(axis="x", color="#e6e9ec")


def _slots(axes: Axes, summary: Summary, colours: dict[str, str]) -> None:
    """A vertical line for each slot, in its group's colour; the biggest is named."""
    _plain(axes, "Bytes by slot")
    axes.set_xlim(-0.5, summary.number_of_slots - 0.5)
    axes.set_xlabel("slot", fontsize=9.5)
    if not summary.slots:
        _nothing(axes)
        return
    divisor, unit = _unit(max(slot.bytes for slot in summary.slots))
    axes.set_ylabel(unit, fontsize=9.5)
    named: dict[str, list[Any]] = {}
    for slot in summary.slots:
        named.setdefault("" if slot.group_id is None else f"group {slot.group_id}", []).append(slot)
    # At least a dot wide, so that one slot is visible among many.
    width = max(1.0, summary.number_of_slots / (WIDTH * DPI * 0.8))
    for name, found in sorted(named.items()):
        heights = [slot.bytes / divisor for slot in found]
        colour = colours.get(name, _COLOURS[0])
        axes.bar([slot.slot for slot in found], heights, width=width, color=colour, linewidth=0, label=name)
    biggest = max(summary.slots, key=lambda slot: slot.bytes)
    peak = biggest.bytes / divisor
    axes.set_ylim(0, peak * 1.18 or 1)
    right = biggest.slot > summary.number_of_slots * 0.8
    axes.annotate(
        f"slot {biggest.slot}: {size(biggest.bytes)}",
        (biggest.slot, peak),
        xytext=(-8 if right else 8, 5),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=9,
        color=_INK,
    )
    mean = sum(slot.bytes for slot in summary.slots) / summary.number_of_slots / divisor
    axes.axhline(mean, color=_INK, lw=1, ls=(0, (4, 3)), label=f"mean, {size(mean * divisor)}")
    if len(named) <= len(_COLOURS):
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1.0),
            ncols=len(named) + 1,
            fontsize=9,
            frameon=False,
            borderaxespad=0.2,
        )
    axes.grid(axis="y", color="#e6e9ec")


def _shares(axes: Axes, title: str, totals: Sequence[Total]) -> None:
    """Two bars for each range: its share of the keys and of the bytes."""
    _plain(axes, title)
    if not totals:
        _nothing(axes)
        return
    keys, held = sum(total.keys for total in totals) or 1, sum(total.bytes for total in totals) or 1
    places = range(len(totals))
    axes.bar(
        [place - 0.2 for place in places],
        [total.keys / keys * 100 for total in totals],
        0.4,
        color=_MUTED,
        label="keys",
    )
    axes.bar(
        [place + 0.2 for place in places],
        [total.bytes / held * 100 for total in totals],
        0.4,
        color=_COLOURS[0],
        label="bytes",
    )
    # With many ranges, each label says where its range begins; with very many, every second label.
    labels = [_begin(total.name) if total.name[-1] == "B" and len(totals) > 4 else total.name for total in totals]
    step = 1 + (len(labels) - 1) // 16
    crowded = len(labels) > 6
    axes.set_xticks(
        list(places)[::step],
        labels[::step],
        fontsize=9,
        rotation=30 if crowded else 0,
        ha="right" if crowded else "center",
    )
    axes.set_ylabel("% of all", fontsize=9.5)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2, fontsize=9, frameon=False, borderaxespad=0.2)
    axes.grid(axis="y", color="#e6e9ec")


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, weight="bold", color=_INK)
    axes.set_axisbelow(True)
    axes.tick_params(colors="#4a535b", labelsize=9, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c5cbd0")


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no keys", transform=axes.transAxes, ha="center", va="center", color=_MUTED, fontsize=12)
    axes.set_xticks([])
    axes.set_yticks([])


def _begin(label: str) -> str:
    """The beginning of a range of sizes, with its unit: ``64 B`` for ``64 - 128 B``."""
    low, dash, high = label.partition(" - ")
    if not dash:
        return label
    return low if " " in low else f"{low} {high.rpartition(' ')[2]}"


def _short(name: str, most: int = 24) -> str:
    # matplotlib takes text between two dollars for mathematics.
    return (name if len(name) <= most else f"{name[: most - 1]}…").replace("$", r"\$")


def _unit(biggest: float) -> tuple[float, str]:
    """A divisor for bytes, and the unit's name, for an axis up to this value."""
    divisor = 1.0
    for unit in ("B", "KiB", "MiB", "GiB"):
        if biggest < divisor * 1024:
            return divisor, unit
        divisor *= 1024
    return divisor, "TiB"
