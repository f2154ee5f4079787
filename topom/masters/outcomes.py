"""Counts the outcomes of changes of masters, for ``/metrics``."""

from collections import Counter
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from topom.errors import Conflict, NotFound

Result = TypeVar("Result")


class Kind(StrEnum):
    """Which kind of change of masters it was."""

    PLANNED = "planned"
    FORCED = "forced"
    FAILOVER = "failover"
    SENTINEL = "sentinel"


class Outcome(StrEnum):
    """How it ended. A ``refused`` change touched nothing, or was taken back for a reason that only has to pass."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Outcomes:
    """How often each kind had each outcome since this topom began to lead."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Kind, Outcome]] = Counter()

    def count(self, kind: Kind, outcome: Outcome) -> None:
        """Count one more."""
        self.counts[kind, outcome] += 1

    async def of(self, kind: Kind, work: Coroutine[Any, Any, Result]) -> Result:
        """Do ``work``, and count its outcome. Work that is cancelled is not counted: another topom ends it."""
        try:
            result = await work
        except (Conflict, NotFound):
            self.count(kind, Outcome.REFUSED)
            raise
        except Exception:
            self.count(kind, Outcome.FAILED)
            raise
        self.count(kind, Outcome.DONE)
        return result
