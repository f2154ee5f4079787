"""Layouts written as lists of sizes, for the steps of planning by bytes."""

from collections.abc import Sequence

from topom.balance.planners.packing.layout import NOWHERE, Layout


def bins(*contents: Sequence[int], lower: int, upper: int, unplaced: Sequence[int] = ()) -> Layout:
    """Bins of one band with items of these sizes in them; items that are in no bin come last."""
    placed = [(size, place) for place, sizes in enumerate(contents) for size in sizes]
    items = placed + [(size, NOWHERE) for size in unplaced]
    count = len(contents)
    return Layout(
        [lower] * count, [upper] * count, [0] * count, [size for size, _ in items], [origin for _, origin in items]
    )


def contents(layout: Layout) -> list[list[int]]:
    return [[size for size, _ in listed] for listed in layout.members]
