"""Measures plans by bytes: how many bytes they move, compared with the fewest possible, and how long planning takes.
And how long a plan by load takes.

    python -m benchmarks.planning            # both sizes of fleet; less than a minute
    python -m benchmarks.planning --quick

No server is started: planners are pure functions.
"""

import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks import report
from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners import PlanRequest, plan
from topom.balance.planners.request import SlotLoad
from topom.balance.planners.shares import band, shares

FLEETS = ((1024, 50), (16384, 1000))
EXPONENTS = (0.3, 0.5, 0.7, 1.0)
LARGEST_BYTES = 2**30
SLOWEST_SECONDS = 2.0
"""The goal for the larger fleet: no plan takes longer."""
SLOWEST_BY_LOAD_SECONDS = 0.3
"""The goal for a plan by load of the larger fleet."""
LOAD_EXPONENT = 0.7
MOST_OVER_BOUND = 1.1
"""The goal for the smaller fleet: no plan moves more than this times the bound."""
MOST_WEIGHED = 28
"""For a group with more slots than these, only the bytes above its band count."""

Owners = Callable[[int, int, random.Random], list[int]]


def scattered(slots: int, groups: int, rng: random.Random) -> list[int]:
    """Each slot in a random group."""
    return [rng.randint(1, groups) for _ in range(slots)]


def ranges(slots: int, groups: int, rng: random.Random) -> list[int]:
    """The same number of slots in each group, one range after another."""
    return [1 + slot * groups // slots for slot in range(slots)]


def grown(slots: int, groups: int, rng: random.Random) -> list[int]:
    """The same, but a tenth of the groups is new and empty."""
    return ranges(slots, groups - groups // 10, rng)


SITUATIONS: dict[str, Owners] = {"scattered": scattered, "ranges": ranges, "grown": grown}


@dataclass(frozen=True)
class Run:
    """One plan.

    Attributes:
        bound_bytes: the bytes that every plan has to move to bring all groups into their bands, see :func:`bound`.
        outside: bytes outside the bands afterwards, as a share of all bytes.
        oversized: slots that are larger than any group may be; no plan can even them out.
    """

    slots: int
    groups: int
    exponent: float
    situation: str
    seed: int
    seconds: float
    moves: int
    moved_bytes: int
    bound_bytes: int
    outside: float
    oversized: int

    @property
    def over_bound(self) -> float:
        return self.moved_bytes / self.bound_bytes


def one(slots: int, groups: int, exponent: float, situation: str, seed: int) -> Run:
    """Make a fleet, plan for it, and measure the plan."""
    rng = random.Random(seed)
    sizes = [round(LARGEST_BYTES / rank**exponent) for rank in range(1, slots + 1)]
    rng.shuffle(sizes)
    owners = SITUATIONS[situation](slots, groups, rng)
    fleet = [Group(group, (f"server-{group}:6379",)) for group in range(1, groups + 1)]
    listed = [Slot(slot, owner) for slot, owner in enumerate(owners)]
    request = PlanRequest(bytes=dict(enumerate(sizes)))
    began = time.perf_counter()
    made = plan("bytes", fleet, listed, request)
    seconds = time.perf_counter() - began
    share = shares(fleet, listed, request)
    bands = {group: band(amount, request.tolerance) for group, amount in share.items()}
    load = dict.fromkeys(share, 0)
    for slot, owner in enumerate(owners):
        load[owner] += sizes[slot]
    owned: dict[int, list[int]] = {group: [] for group in share}
    for slot, owner in enumerate(owners):
        owned[owner].append(sizes[slot])
    fewest = bound(owned, bands)
    for move in made.moves:
        load[move.source] -= sizes[move.slot]
        load[move.target] += sizes[move.slot]
    outside = sum(max(0, low - load[group], load[group] - high) for group, (low, high) in bands.items())
    limit = max(high for _, high in bands.values())
    return Run(
        slots,
        groups,
        exponent,
        situation,
        seed,
        seconds,
        len(made.moves),
        sum(sizes[move.slot] for move in made.moves if move.source != OFFLINE),
        fewest,
        outside / sum(sizes),
        sum(size > limit for size in sizes),
    )


def seconds_by_load(slots: int, groups: int, seed: int) -> float:
    """Seconds of a plan by load, for slots in ranges whose requests follow Zipf's law, with sizes that do not."""
    rng = random.Random(seed)
    rates = [1e6 / rank**LOAD_EXPONENT for rank in range(1, slots + 1)]
    rng.shuffle(rates)
    fleet = [Group(group, (f"server-{group}:6379",)) for group in range(1, groups + 1)]
    listed = [Slot(slot, owner) for slot, owner in enumerate(ranges(slots, groups, rng))]
    request = PlanRequest(
        loads={slot: SlotLoad(rate) for slot, rate in enumerate(rates)},
        bytes={slot: rng.randint(10**6, 10**7) for slot in range(slots)},
    )
    began = time.perf_counter()
    plan("load", fleet, listed, request)
    return time.perf_counter() - began


def bound(owned: Mapping[int, Sequence[int]], bands: Mapping[int, tuple[int, int]]) -> int:
    """A lower bound for every plan that brings all groups into their bands: the larger of two sums.

    The first sum is for groups above their bands: each gives up the lightest set of its slots that is enough. The
    second is for groups below theirs: each gets the bytes it lacks, and at least the smallest slot.

    Args:
        owned: sizes of each group's slots.
    """
    smallest = min(size for sizes in owned.values() for size in sizes)
    above = below = 0
    for group, (low, high) in bands.items():
        load = sum(owned[group])
        above += lightest(owned[group], load - high)
        below += max(low - load, smallest) if load < low else 0
    return max(above, below)


def lightest(sizes: Sequence[int], need: int) -> int:
    """The least sum of some of these sizes that is at least ``need``; ``need`` itself for more than MOST_WEIGHED
    sizes."""
    if need <= 0:
        return 0
    if len(sizes) > MOST_WEIGHED:
        return need
    half = len(sizes) // 2
    first, second = sums(sizes[:half]), sums(sizes[half:])
    # For each sum of one half, the least sum of the other half that is enough with it.
    found = ((one, bisect_left(second, need - one)) for one in first)
    return min(one + second[position] for one, position in found if position < len(second))


def sums(sizes: Sequence[int]) -> list[int]:
    """The sums of all sets of these sizes, ascending."""
    found = [0]
    for size in sizes:
        found += [size + one for one in found]
    return sorted(found)


COLUMNS = (
    "fleet",
    "zipf",
    "situation",
    "oversized",
    "moves",
    "moved / bound",
    "worst",
    "outside",
    "seconds",
    "slowest",
)


def row(runs: Sequence[Run]) -> tuple[object, ...]:
    """A line of the table: the medians and the worst of the runs of one kind."""
    first = runs[0]
    return (
        f"{first.slots} x {first.groups}",
        f"{first.exponent:.1f}",
        first.situation,
        first.oversized,
        round(statistics.median(run.moves for run in runs)),
        f"{statistics.median(run.over_bound for run in runs):.3f}",
        f"{max(run.over_bound for run in runs):.3f}",
        f"{max(run.outside for run in runs) * 100:.2f}%",
        f"{statistics.median(run.seconds for run in runs):.3f}",
        f"{max(run.seconds for run in runs):.3f}",
    )


def goals(runs: Sequence[Run], by_load: Sequence[float]) -> list[tuple[str, bool]]:
    """Each goal in words, with what was measured, and whether it was met."""
    (small, _), (large, _) = FLEETS
    worst = max((run.over_bound for run in runs if run.slots == small), default=0.0)
    slowest = max((run.seconds for run in runs if run.slots == large), default=0.0)
    return [
        (f"{small} slots: at most {MOST_OVER_BOUND} times the bound; {worst:.3f}", worst <= MOST_OVER_BOUND),
        (f"{large} slots: planned within {SLOWEST_SECONDS} s; {slowest:.3f} s", slowest < SLOWEST_SECONDS),
        (
            f"{large} slots by load: planned within {SLOWEST_BY_LOAD_SECONDS} s; {statistics.median(by_load):.3f} s"
            f" (median of {len(by_load)}, at most {max(by_load):.3f} s)",
            statistics.median(by_load) < SLOWEST_BY_LOAD_SECONDS,
        ),
    ]


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many fleets of each kind.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One fleet of each kind: to see that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Bytes moved by plans of the policy bytes, beside the fewest possible, and the time a plan takes."""
    console = report.console()
    drawn = Table(*COLUMNS, title="plans by bytes")
    runs: list[Run] = []
    for slots, groups in FLEETS:
        for exponent in EXPONENTS:
            for situation in SITUATIONS:
                of_kind = [one(slots, groups, exponent, situation, seed) for seed in range(1 if quick else seeds)]
                runs += of_kind
                drawn.add_row(*map(str, row(of_kind)))
    console.print(drawn)
    by_load = [seconds_by_load(*FLEETS[-1], seed) for seed in range(1 if quick else seeds)]
    verdicts = goals(runs, by_load)
    for words, met in verdicts:
        console.print(f"{'met' if met else 'NOT MET'}: {words}", highlight=False)
    content = {"machine": report.machine(), "runs": report.plain(runs), "by_load_seconds": by_load}
    console.print(f"kept in {report.save('planning', output, content)}", highlight=False)
    if not all(met for _, met in verdicts):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
