"""Runs schedules by hand: ``python -m tests.histories --schedules 100 --seed 1 --operations 5000``.

Each schedule's seed is printed with its figures and faults; an explanation of each finding is printed, and the key's
whole history is written to a file. The exit status is 1 if there were findings. A planted fault is looked for until it
is found.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.histories.checker import Verdict
from tests.histories.cluster import HistoriesCluster, started
from tests.histories.moves import TOGETHER
from tests.histories.planted import PLANTED
from tests.histories.report import SHOWN_ERRORS, Report
from tests.histories.run import run
from tests.histories.schedule import OF_COPIES, OF_REPLICAS, Kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10, help="how many, with a seed each from --seed on (10)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="of the first; by chance")
    parser.add_argument("--operations", type=int, default=5000, help="of each schedule (5000)")
    parser.add_argument("--seconds", type=float, default=12.0, help="for which each schedule's faults last (12)")
    parser.add_argument("--plant", choices=PLANTED, default="", help="switch an invariant off, until it is found")
    parser.add_argument(
        "--only", type=Kind, choices=[*Kind], action="append", help="only these faults; all, when none is named"
    )
    parser.add_argument("--way", choices=("keys", "stream"), default="keys", help="how slots move (keys)")
    parser.add_argument("--replicas", action="store_true", help="a replica for each group, which copies may follow")
    parser.add_argument(
        "--together", type=int, default=TOGETHER, help="one order of so many goes to several groups at once (3)"
    )
    parser.add_argument("--fresh", action="store_true", help="a new cluster for each schedule")
    parser.add_argument("--reports", type=Path, help="folder for findings; a temporary one when not named")
    arguments = parser.parse_args()
    return asyncio.run(_main(arguments))


async def _main(arguments: argparse.Namespace) -> int:
    directory = arguments.reports or Path(tempfile.mkdtemp(prefix="slotferry-histories-"))
    without = {*(() if arguments.way == "stream" else OF_COPIES), *(() if arguments.replicas else OF_REPLICAS)}
    kinds = tuple(kind for kind in Kind if kind not in without)
    seeds = list(range(arguments.seed, arguments.seed + arguments.schedules))
    totals = Report(arguments.seed)
    while seeds:
        async with started(arguments.plant, arguments.way, arguments.replicas) as cluster:
            while seeds:
                seed = seeds.pop(0)
                print(f"seed {seed} begins", flush=True)
                report = await run(
                    cluster,
                    seed,
                    seconds=arguments.seconds,
                    operations=arguments.operations,
                    kinds=arguments.only or kinds,
                    together=arguments.together,
                )
                show(report, cluster, directory)
                _add(totals, report)
                # What was found may have left keys behind that the next schedule would find again.
                if report.findings or arguments.fresh:
                    break
            if arguments.plant and totals.findings:
                break
    print(
        f"{arguments.schedules - len(seeds)} schedules, {totals.operations} operations, {totals.partitions} histories, "
        f"{len(totals.faults)} faults, {totals.slots_moved} slots moved, {totals.slots_copied} switches to copies, "
        f"{totals.verdicts[Verdict.UNDECIDED]} undecided: {len(totals.findings)} findings",
        flush=True,
    )
    return 1 if totals.findings else 0


def show(report: Report, cluster: HistoriesCluster, directory: Path) -> None:
    """Print a report; keep its findings and, with them, the logs of all processes."""
    print(report.line(), *report.faults, sep="\n  ", flush=True)
    for text, times in report.errors.most_common(SHOWN_ERRORS):
        print(f"  {times} times: {text}")
    if not report.findings:
        return
    for finding, path in zip(report.findings, report.write(directory), strict=True):
        print(f"FINDING {finding}\n  written to {path}")
    for process in cluster.processes:
        shutil.copyfile(process.log, directory / f"seed-{report.seed}-{process.log.name}")


def _add(totals: Report, report: Report) -> None:
    totals.operations += report.operations
    totals.partitions += report.partitions
    totals.faults += report.faults
    totals.slots_moved += report.slots_moved
    totals.copies += report.copies
    totals.slots_copied += report.slots_copied
    totals.verdicts = Counter(totals.verdicts + report.verdicts)
    totals.findings += report.findings


if __name__ == "__main__":
    sys.exit(main())
