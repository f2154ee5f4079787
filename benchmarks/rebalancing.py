"""Measures slots that move by themselves: how even a simulated fleet is over days, and how many bytes that moves.

    python -m benchmarks.rebalancing --quick    # 60 groups for two days; some seconds
    python -m benchmarks.rebalancing            # 1,000 groups and 16,384 slots for a week; minutes

No server is started: the decisions are pure functions, and the traffic is made up.
"""

import random
import sys
import time
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from topom.balance.simulation.running import GOAL, Outcome, simulate
from topom.balance.simulation.scenario import Crowd, Scenario

MOST_OVER_BOUND = 2.0
"""The goal: no more bytes move than that times the lower bound."""


def scenario(groups: int, slots: int, hours: float, seed: int) -> Scenario:
    """A fleet with a flash crowd every six hours, a group that is added half-way, and a slow one."""
    chance = random.Random(seed)
    crowds = tuple(Crowd(6.0 * number + chance.random(), 2.0, 20.0) for number in range(1, int(hours // 6)))
    fleet = Scenario(groups=groups, slots=slots, hours=hours, seed=seed, step_seconds=300.0)
    return replace(fleet, crowds=crowds, added=(hours / 2,), slow=1)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A small fleet, for two days.")] = False,
    seed: int = 1,
) -> None:
    """Run the fleet by decisions and by number, and say whether the goals are met."""
    fleet = scenario(60, 1024, 48.0, seed) if quick else scenario(1000, 16384, 168.0, seed)
    columns = (
        "policy",
        "greatest/mean",
        "95% of time",
        f"above {GOAL:g}",
        "bytes/bound",
        "moves",
        "came back",
        "CPU s",
    )
    table = Table(*columns)
    found: dict[str, Outcome] = {}
    for name, by_itself in (("by load, by itself", True), ("codis", False)):
        began = time.process_time()
        one = found[name] = simulate(fleet, by_itself)
        table.add_row(
            name,
            f"{one.greatest:.3f}",
            f"{one.mostly:.3f}",
            f"{one.above:.1%}",
            f"{one.bytes / max(1, one.bound):.2f}",
            f"{one.moves:,}",
            str(one.returned),
            f"{time.process_time() - began:.0f}",
        )
    Console(width=120).print(table)
    best = found["by load, by itself"]
    sys.exit(best.mostly > GOAL or best.returned > 0 or best.bytes > MOST_OVER_BOUND * best.bound)


if __name__ == "__main__":
    typer.run(main)
