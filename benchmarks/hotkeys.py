"""How many of the keys that are asked for most are named as such.

    python -m benchmarks.hotkeys             # ten minutes
    python -m benchmarks.hotkeys --quick     # shows that all works

Four proxies of one worker each are asked for keys by Zipf's law with exponent 0.99, for 45 seconds of their own time.
The sketches, and what merges them at a proxy and at topom, are the real ones. Of the true twenty, by counts that halve
in 15 seconds as the sketches' do, so many are among topom's first twenty.
"""

import random
from base64 import b64decode, b64encode
from heapq import nlargest
from itertools import accumulate
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from proxy.engine.hotkeys import HALF_LIFE_SECONDS, HotKeys
from proxy.supervisor.loads import MOST_TOLD_HOT_KEYS, merged
from slots.messages.load import HotKey
from topom.load.hotkeys import HotKeys as OfFleet

GOAL = 0.95
PROXIES = 4
EXPONENT = 0.99
TOP = 20
LOOKS = (5, 15, 30, 45)
"""Seconds after the beginning."""
KEYS = (1_000, 10_000, 100_000, 1_000_000)
RATES = (1_000, 5_000, 20_000, 100_000)
"""Requests a second, of each proxy."""


def recalls(keys: int, rate: int, seed: int) -> list[float]:
    """The part of the true top keys that is named, at each of :data:`LOOKS`."""
    random.seed(seed)
    weights = list(accumulate((rank + 1) ** -EXPONENT for rank in range(keys)))
    names = [b"key:%d" % number for number in range(keys)]
    sketches = [HotKeys(seed * PROXIES + number) for number in range(PROXIES)]
    fleet = OfFleet()
    asked: dict[int, float] = {}
    found = []
    for second in range(1, LOOKS[-1] + 1):
        asked = {key: count * 0.5 ** (1 / HALF_LIFE_SECONDS) for key, count in asked.items() if count > 0.1}
        for number, sketch in enumerate(sketches):
            for key in random.choices(range(keys), cum_weights=weights, k=rate):
                sketch.request(0, key % 1024, names[key])
                asked[key] = asked.get(key, 0.0) + 1
            told = sketch.tell(1.0, MOST_TOLD_HOT_KEYS, False)
            worker = [
                HotKey(0, slot, b64encode(key).decode(), length, had, excess)
                for _, slot, key, length, had, excess in told
            ]
            fleet.take(number, [(said, b64decode(said.key)) for said in merged([worker])], False)
        if second in LOOKS:
            true = {names[key] for key in nlargest(TOP, asked, asked.__getitem__)}
            found.append(sum(key.key in true for key in fleet.busiest(rate * PROXIES, TOP)) / TOP)
    return found


def main(
    quick: Annotated[bool, typer.Option(help="One case.")] = False,
    seeds: Annotated[int, typer.Option(help="Repetitions.")] = 3,
) -> None:
    """Print a table, and end with 1 if the goal is missed after half a minute."""
    table = Table("keys", "requests/s of a proxy", *(f"after {look} s" for look in LOOKS))
    missed = False
    for keys in KEYS[:1] if quick else KEYS:
        for rate in RATES[:1] if quick else RATES:
            runs = [recalls(keys, rate, seed) for seed in range(seeds)]
            means = [fmean(run[place] for run in runs) for place in range(len(LOOKS))]
            worst = [min(run[place] for run in runs) for place in range(len(LOOKS))]
            missed |= min(means[LOOKS.index(30) :]) < GOAL
            shown = (f"{mean:.3f} ({least:.2f})" for mean, least in zip(means, worst, strict=True))
            table.add_row(f"{keys:,}", f"{rate:,}", *shown)
    Console().print(table)
    raise typer.Exit(missed)


if __name__ == "__main__":
    typer.run(main)
