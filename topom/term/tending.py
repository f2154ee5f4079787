"""Keeps the loops running: if one fails, that is logged, the others go on, and it is started again.

Whatever a server, a proxy or the store says, and whatever bug topom has, it ends one turn of one loop, but no other
loop, and not topom: a control plane that ends because of one member cannot help the others.

**bounded**: a loop that fails again and again is started after growing waits, with full jitter.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import structlog

from slots.backoff import Backoff
from topom.reasons import Reason, Reasons

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 10.0
HEALTHY_SECONDS = 30.0
"""A loop that has run for so long since its last failure counts as healthy."""


class Tending:
    """The loops of one owner.

    Args:
        ends: errors that end a loop for good, and go to the caller: they are no fault of the loop.
    """

    def __init__(self, *ends: type[Exception]) -> None:
        self._ends = ends
        self._failed: dict[str, float] = {}
        self._reasons = Reasons[str]()
        self.failures: Counter[str] = Counter()
        """How often each loop failed."""

    @property
    def reasons(self) -> Mapping[str, Reason]:
        """Loops that failed within the last :data:`HEALTHY_SECONDS`, and why."""
        if self._failed:
            now = asyncio.get_running_loop().time()
            self._failed = {name: at for name, at in self._failed.items() if now - at < HEALTHY_SECONDS}
        self._reasons.keep_only(self._failed)
        return self._reasons

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` until it returns, again after each failure; it ends if it is cancelled.

        It must be possible to begin ``work`` anew at any time.
        """
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                return await work()
            except self._ends:
                raise
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something for which the loop waited was cancelled, not the loop.
                failure: BaseException = error
            except Exception as error:
                failure = error
            if clock() - began >= HEALTHY_SECONDS:
                backoff.reset()
            wait = backoff.next()
            self.failures[name] += 1
            self._failed[name] = clock()
            reason = self._reasons.waits(name, Reason.of(failure))
            log.error(
                "loop_failed",
                loop=name,
                kind=reason.kind,
                reason=str(reason),
                retry_seconds=round(wait, 2),
                exc_info=failure,
            )
            await asyncio.sleep(wait)
