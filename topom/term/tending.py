"""Keeps going what goes on by itself: a loop that fails is said, contained, and started again.

Whatever a server, a proxy or the store says, or a mistake of ours makes of it, ends one turn of one loop, and neither
another loop nor topom: a control plane that ends because of one member is no help with the others.

**bounded**: a loop that fails again and again is started after waits that grow, with full jitter.
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
"""A loop that has gone on for so long since it last failed is well again."""


class Tending:
    """The loops of one owner.

    Args:
        ends: what ends a loop for good, and goes to whoever waits for it: it is no fault of the loop's.
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
        """Run ``work`` until it returns, again after each failure; cancelled, it ends.

        ``work`` has to be one that can be begun anew at any time.
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
                # Something that the loop waited for was cancelled, not the loop.
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
