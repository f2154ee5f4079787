"""Notices copies that do not get level: what is missing at the target does not sink. Operators see it as the reason.

A copy follows its source until little is missing at the target. If clients write faster than the target takes it, that
never comes. After a while (:data:`migrator.stream.running.LEVEL_SECONDS`) its keys move one by one. Before that an
operator may do something about it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from migrator.facts import shown
from migrator.stream.running import LEVEL_SECONDS, NEARLY_BYTES
from topom.migration.batches import Batch
from topom.reasons import Kind, Reason

SINKING_SECONDS = 60.0
"""So long what is missing may fail to sink."""
TO_DO = (
    "write less to the source, raise or remove the limits of `slotferry migration set` for keys, bytes and latency, or "
    "cancel the move and make it with fewer slots at a time (--parallel-slots), at a quieter hour, or with --way keys; "
    f"if nothing is done, its keys move one by one {LEVEL_SECONDS / 60:.0f} minutes after the snapshot"
)


@dataclass(slots=True)
class _Lowest:
    lag: int
    at: float


class Levelling:
    """Looks at the copies of one topom. ``clock`` gives seconds from any beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lowest: dict[Batch, _Lowest] = {}
        self.stuck: dict[Batch, Reason] = {}
        """The batches whose copies do not get level, and what to do about it."""

    def look(self, lags: Mapping[Batch, int | None]) -> None:
        """Note how many bytes are missing at the target of each copy. None, and no entry, is no copy that follows."""
        now = self._clock()
        # A copy that is nearly level has what it needs; what is written then comes and goes.
        missing = {batch: lag for batch, lag in lags.items() if lag is not None and lag > NEARLY_BYTES}
        for batch in self._lowest.keys() - missing.keys():
            del self._lowest[batch]
        for batch, lag in missing.items():
            lowest = self._lowest.get(batch)
            if lowest is None or lag < lowest.lag:
                self._lowest[batch] = _Lowest(lag, now)
        self.stuck = {
            batch: self._reason(batch, lag)
            for batch, lag in missing.items()
            if now - self._lowest[batch].at >= SINKING_SECONDS
        }

    def _reason(self, batch: Batch, lag: int) -> Reason:
        what = (
            f"the copy of slots of group {batch.source_id} in group {batch.target_id} does not get level: {shown(lag)} "
            f"of what was written are missing there, and that has not sunk for {SINKING_SECONDS:g} s or longer"
        )
        new = Reason.now(Kind.SERVER, what, TO_DO)
        before = self.stuck.get(batch)
        return new if before is None else replace(new, since=before.since)
