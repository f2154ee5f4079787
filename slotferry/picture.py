"""Draws a rebalance under load as an SVG, from a series, readable on light and on dark pages.

Three panels over one time axis: requests a second, latency (logarithmic), slots and keys moved. Below them a row for
each pair of groups says when its slots moved, and which way. The time while slots moved is shaded. Colours are CSS, so
the reader's own theme chooses between the two sets.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from slotferry.series import Series

WIDTH = 860
LEFT, RIGHT = 76, 24
TOP = 78
PANEL, GAP, ROW = 118, 40, 18
_STYLE = """
  :root { color-scheme: light dark }
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e } .grid { stroke: #d1d9e0 }
  .band { fill: #0969da; fill-opacity: .08 }
  .a { stroke: #0969da } .b { stroke: #bc4c00 } .c { stroke: #1a7f37 }
  .fa { fill: #0969da } .fb { fill: #bc4c00 } .fc { fill: #1a7f37 }
  .bad { fill: #d1242f }
  text { font: 12px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 17px; font-weight: 600 } .name { font-weight: 600 }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
  .area { fill-opacity: .13; stroke: none }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 } .grid { stroke: #30363d }
    .band { fill: #4493f8; fill-opacity: .12 }
    .a { stroke: #4493f8 } .b { stroke: #f0883e } .c { stroke: #3fb950 }
    .fa { fill: #4493f8 } .fb { fill: #f0883e } .fc { fill: #3fb950 } .bad { fill: #f85149 }
  }
"""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One curve of a panel."""

    name: str
    colour: str
    """One of the style's colour classes: a, b, c."""
    points: Sequence[Point]
    """Seconds and values, ascending in time."""
    filled: bool = False


def nice_steps(highest: float, count: int = 4) -> list[float]:
    """Round values from 0 to at least ``highest``, about ``count`` apart."""
    rough = max(highest, 1e-9) / count
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough)
    return [step * index for index in range(max(1, math.ceil(highest / step - 1e-9)) + 1)]


def decades(lowest: float, highest: float) -> list[float]:
    """Powers of ten, and three times those between them, that enclose two positive values."""
    marks = [factor * 10.0**power for power in range(-3, 6) for factor in (1, 3)]
    first = max((index for index, mark in enumerate(marks) if mark <= lowest), default=0)
    last = min((index for index, mark in enumerate(marks) if mark >= highest), default=len(marks) - 1)
    return marks[first : max(last, first + 1) + 1]


def short(value: float) -> str:
    """A number for an axis: 12k rather than 12000, without needless zeros."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


class _Drawing:
    def __init__(self, until: float, height: int) -> None:
        self.until = max(until, 1e-9)
        self.height = height
        self.parts: list[str] = []

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.until

    def text(self, x: float, y: float, words: str, style: str = "soft", anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def panel(self, top: float, lines: Sequence[Line], marks: Sequence[float], place: Callable[[float], float]) -> None:
        """A panel whose vertical axis has ``marks``; ``place`` maps a value to 0 (bottom) .. 1 (top)."""
        bottom = top + PANEL

        def y(value: float) -> float:
            return bottom - PANEL * min(1.0, max(0.0, place(value)))

        for mark in marks:
            self.parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" class="grid"/>'
            )
            self.text(LEFT - 8, y(mark) + 4, short(mark), anchor="end")
        right = float(LEFT)
        for line in lines:
            self.parts.append(f'<circle cx="{right + 5:.1f}" cy="{top - 13:.1f}" r="4" class="f{line.colour}"/>')
            self.text(right + 14, top - 9, line.name, "ink name")
            right += 26 + 7 * len(line.name)
            if not line.points:
                continue
            path = " ".join(f"{self.x(seconds):.1f},{y(value):.1f}" for seconds, value in line.points)
            if line.filled:
                first, last = self.x(line.points[0][0]), self.x(line.points[-1][0])
                area = f"{first:.1f},{bottom} {path} {last:.1f},{bottom}"
                self.parts.append(f'<polygon points="{area}" class="area f{line.colour}"/>')
            self.parts.append(f'<polyline points="{path}" class="line {line.colour}"/>')

    def time_axis(self, y: float) -> None:
        for second in nice_steps(self.until, 8):
            if second <= self.until:
                self.text(self.x(second), y, f"{second:g} s", anchor="middle")

    def svg(self) -> str:
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" aria-label="A rebalance under load">\n<style>{_STYLE}</style>\n'
            f'<rect width="{WIDTH}" height="{self.height}" class="page"/>\n{body}\n</svg>\n'
        )


def draw(series: Series) -> str:
    """The SVG of a run. A series without samples gives only the frame."""
    samples = series.samples
    until = samples[-1].elapsed if samples else 1.0
    pairs = list(dict.fromkeys((move.source, move.target) for move in series.moves))
    height = TOP + 3 * PANEL + 2 * GAP + 36 + ROW * len(pairs)
    drawing = _Drawing(until, height)
    drawing.text(LEFT, 28, f"Slots move to a third group while {series.keys:,} keys are read and written", "ink title")
    bad = series.errors or series.differences
    drawing.text(
        *(LEFT, 48, f"{series.errors:,} errors, {series.differences:,} wrong values in {series.requests:,} requests"),
        "bad" if bad else "soft",
    )
    if series.rebalance_began is not None:
        start = drawing.x(series.rebalance_began)
        end = drawing.x(min(until, series.rebalance_ended or until))
        drawing.parts.append(
            f'<rect x="{start:.1f}" y="{TOP}" width="{max(1.0, end - start):.1f}" '
            f'height="{3 * PANEL + 2 * GAP}" class="band"/>'
        )
        drawing.text((start + end) / 2, TOP + 14, "slots are moving", anchor="middle")

    def curve(name: str) -> list[Point]:
        return [(sample.elapsed, float(getattr(sample, name))) for sample in samples]

    tops = [TOP + index * (PANEL + GAP) for index in range(3)]
    marks = nice_steps(max((sample.requests for sample in samples), default=0.0))
    drawing.panel(tops[0], [Line("requests/s", "a", curve("requests"), filled=True)], marks, _linear(marks))
    latencies = [value for sample in samples for value in (sample.p50_ms, sample.p99_ms) if value > 0]
    marks = decades(min(latencies, default=0.1), max(latencies, default=1.0))
    drawing.panel(
        tops[1],
        [Line("p50 ms", "a", curve("p50_ms")), Line("p99 ms", "b", curve("p99_ms"))],
        marks,
        _logarithmic(marks),
    )
    marks = nice_steps(max(series.slots_to_move, max((sample.slots_moved for sample in samples), default=0)), 3)
    drawing.panel(tops[2], [Line("slots moved", "c", curve("slots_moved"), filled=True)], marks, _linear(marks))
    if samples:
        fastest = max(sample.keys_per_second for sample in samples)
        words = f"{samples[-1].keys_moved:,} keys moved, up to {fastest:,.0f} keys/s"
        drawing.text(WIDTH - RIGHT, tops[2] - 9, words, anchor="end")
    drawing.time_axis(tops[2] + PANEL + 20)
    for row, pair in enumerate(pairs):
        _draw_moves(drawing, height - ROW * (len(pairs) - row), series, pair)
    return drawing.svg()


def _draw_moves(drawing: _Drawing, y: float, series: Series, pair: tuple[int, int]) -> None:
    """A row with the times in which slots of a pair of groups moved, each named by its way."""
    drawing.text(LEFT - 8, y + 4, f"{pair[0]} to {pair[1]}", anchor="end")
    for move in series.moves:
        if (move.source, move.target) != pair:
            continue
        start, end = drawing.x(move.began), drawing.x(move.ended)
        colour, words = ("b", "by the stream") if move.way == "stream" else ("a", "by keys")
        drawing.parts.append(
            f'<rect x="{start:.1f}" y="{y:.1f}" width="{max(2.0, end - start):.1f}" height="5" class="f{colour}"/>'
        )
        drawing.text(max(start, end) + 6, y + 5, words)


def _linear(marks: Sequence[float]) -> Callable[[float], float]:
    highest = marks[-1]
    return lambda value: value / highest


def _logarithmic(marks: Sequence[float]) -> Callable[[float], float]:
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    return lambda value: (math.log10(max(value, 1e-6)) - low) / (high - low)
