"""The demo's measurements, second by second and in total, as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slotferry.traffic.driver import Report


@dataclass(frozen=True)
class Sample:
    """One second of the demo."""

    elapsed: float
    """Seconds since the traffic began."""
    requests: float
    """Requests a second."""
    errors: int
    differences: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    slots_moved: int
    keys_moved: int
    keys_per_second: float
    """Keys moved a second."""


@dataclass
class Move:
    """Slots on their way from one group to another, as long as they go the same way."""

    source: int
    target: int
    way: str
    """``keys`` or ``stream``."""
    began: float
    """Seconds since the traffic began."""
    ended: float
    because: str = ""
    """Why the first of these slots went that way; as topom says it, empty if it did not."""

    def __str__(self) -> str:
        way = f"by {'the stream' if self.way == 'stream' else 'keys'}"
        return f"from group {self.source} to group {self.target} {self.because or way}"


@dataclass
class Series:
    """The whole run."""

    keys: int
    slots_to_move: int = 0
    rebalance_began: float | None = None
    """Seconds since the traffic began; None before."""
    rebalance_ended: float | None = None
    samples: list[Sample] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    """In the order in which they began."""
    requests: int = 0
    errors: int = 0
    differences: int = 0

    def add(self, report: Report, elapsed: float, migration: Mapping[str, Any]) -> Sample:
        """Add one second of traffic, with the state of the migration at its end."""
        before = self.samples[-1] if self.samples else None
        passed = elapsed - before.elapsed if before else 0.0
        moved = migration["keys_moved"] - before.keys_moved if before else 0
        sample = Sample(
            elapsed=round(elapsed, 3),
            requests=round(report.requests / report.duration) if report.duration else 0.0,
            errors=report.errors,
            differences=report.differences,
            slots_moved=migration["slots_moved"],
            keys_moved=migration["keys_moved"],
            keys_per_second=round(moved / passed) if passed > 0 else 0.0,
            **report.latency.summary(),
        )
        self.samples.append(sample)
        self.requests += report.requests
        self.errors += report.errors
        self.differences += report.differences
        return sample

    def saw(self, elapsed: float, migration: Mapping[str, Any]) -> None:
        """Note which slots are on their way, and which way that is."""
        for batch in migration["batches"]:
            if not (way := batch.get("way")):
                continue
            pair = batch["source"], batch["target"]
            last = next((move for move in reversed(self.moves) if (move.source, move.target) == pair), None)
            if last is not None and last.way == way:
                last.ended = round(elapsed, 3)
            else:
                because = next((note for note in batch.get("notes", ()) if note.startswith("by ")), "")
                self.moves.append(Move(*pair, way, round(elapsed, 3), round(elapsed, 3), because))

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
