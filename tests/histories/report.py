"""The result of a run: figures, and findings, each written to a file with all that is known of its key."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.histories.checker import Verdict
from tests.histories.operations import Outcome, Partition

SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be.

    Attributes:
        invariant: what does not hold, in a word or two.
        text: what was seen.
        partition: the partition whose history shows it; None if the finding is not about a single key.
    """

    invariant: str
    text: str
    partition: Partition | None = None

    def __str__(self) -> str:
        where = f"{self.partition}: " if self.partition is not None else ""
        return f"{self.invariant}: {where}{self.text}"


@dataclass(slots=True)
class Report:
    """One run.

    Attributes:
        seed: with the same seed, the run can be done again.
        seconds: how long it took, with its checks.
        operations: how many may have run, including the reads at the end.
        outcomes: of all operations.
        errors: texts of errors, with how often they came.
        faults: what was done to the cluster.
        slots_moved: slots that came to rest at another group.
        partitions: searched or accounted for.
        excused: partitions from which a server that came back with older data may have lost something.
        lists: how many lists of keys were asked for meanwhile.
        scans: how many scans of all keys came to their end meanwhile.
        cached: how many values were used from caches of clients.
        hot_reads: how many were answered of keys of which proxies keep the values.
        copies: what became of copies by the replication stream.
        slots_copied: how often a slot has switched to a copy.
        verdicts: of the searches.
        steps: of the longest search.
        findings: what must not be.
    """

    seed: int
    seconds: float = 0.0
    operations: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slots_moved: int = 0
    partitions: int = 0
    excused: int = 0
    lists: int = 0
    scans: int = 0
    cached: int = 0
    hot_reads: int = 0
    copies: Counter[str] = field(default_factory=Counter)
    slots_copied: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    steps: int = 0
    findings: list[Finding] = field(default_factory=list)

    def line(self) -> str:
        """The run in one line."""
        outcomes = self.outcomes
        undecided = self.verdicts[Verdict.UNDECIDED]
        return (
            f"seed {self.seed}: {self.operations} operations ({outcomes[Outcome.UNKNOWN]} unknown, "
            f"{outcomes[Outcome.NOT_RUN]} not run) on {self.partitions} histories ({self.excused} excused), "
            f"{self.lists} lists of keys, {self.scans} scans, {self.cached} cached values, "
            f"{self.hot_reads} reads of hot keys, "
            f"{len(self.faults)} faults, "
            f"{self.slots_moved} slots moved{self._copies()}, {self.seconds:.0f} s, longest search {self.steps} steps"
            + (f", {undecided} undecided" if undecided else "")
            + f": {len(self.findings)} findings"
        )

    def _copies(self) -> str:
        said = ", ".join(f"{times} {what}" for what, times in sorted(self.copies.items()))
        return f" ({self.slots_copied} switches to copies: {said})" if said else ""

    def write(self, directory: Path) -> list[Path]:
        """Write a file for each finding, and give their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        for number, finding in enumerate(self.findings, 1):
            path = directory / f"seed-{self.seed}-finding-{number}.txt"
            lines = [str(finding), "", "Faults:", *self.faults]
            if finding.partition is not None:
                lines += ["", f"History of {finding.partition}:", *map(str, finding.partition.operations)]
            path.write_text("\n".join(lines) + "\n")
            written.append(path)
        return written
