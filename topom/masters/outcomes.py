"""Counts what changes of masters came to, for ``/metrics``."""

from collections import Counter
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from topom.errors import Conflict, NotFound

Result = TypeVar("Result")


class Kind(StrEnum):
    """Why a master was to be changed."""

    PLANNED = "planned"
    FORCED = "forced"
    FAILOVER = "failover"
    SENTINEL = "sentinel"


class Outcome(StrEnum):
    """What came of it: ``refused`` touched nothing, or was taken back for a reason that only has to pass."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Outcomes:
    """How often each kind came to each outcome since this topom came to lead."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Kind, Outcome]] = Counter()

    def count(self, kind: Kind, outcome: Outcome) -> None:
        """One more."""
        self.counts[kind, outcome] += 1

    async def of(self, kind: Kind, work: Coroutine[Any, Any, Result]) -> Result:
        """What ``work`` comes to, counted. One that is cancelled is not counted: another topom ends it."""
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
