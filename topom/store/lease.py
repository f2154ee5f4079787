"""The leader's lease: renewed all the time, and given up by our own clock before the store gives it to another topom.

The clock goes on while the machine sleeps. The time counts from when this process *asked* for a renewal, which is
before the store granted it. So whatever pauses, the lease ends here first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from slots.backoff import Backoff
from topom.store import Leader, StoreError

log = structlog.get_logger(__name__)

RENEWALS = 3
"""How many renewals there are in the time of one lease."""
RELEASE_SECONDS = 2.0
"""How long the store may take to hear that a lease is given up. After that the lease ends there by itself."""


class LeaseGone(StoreError):
    """The store says that the lease is gone."""


def clock() -> float:
    """Seconds that only grow, also while the machine sleeps, if the system has such a clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease:
    """A :class:`~topom.store.Leadership` with a lease at a store.

    Args:
        leader: what it announced.
        seconds: how long the lease holds after a renewal.
        granted: when this process asked for the lease that the store has confirmed, by :func:`clock`.
        renew: asks the store for another term; raises :class:`LeaseGone` or another :class:`StoreError`.
        release: tells the store that the lease is not needed; raises :class:`StoreError`.
    """

    def __init__(
        self,
        leader: Leader,
        seconds: float,
        granted: float,
        renew: Callable[[], Awaitable[None]],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.leader = leader
        self.lost = asyncio.Event()
        self._seconds = seconds
        self._until = granted + seconds
        self._renew = renew
        self._release = release
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self._kept)
        self._releasing: asyncio.Task[None] | None = None

    def valid(self) -> bool:
        """Whether it still holds, by the clock now; sets ``lost`` if it does not."""
        if not self.lost.is_set() and clock() >= self._until:
            self._lose("it was not renewed in time")
        return not self.lost.is_set()

    def end(self) -> None:
        """Note that the lease is gone, as the store's client has learnt."""
        self._lose("the store has ended it")

    async def resign(self) -> None:
        """Give up the lease, and tell the store within :data:`RELEASE_SECONDS`. Never raises."""
        self._lose("resigned")
        self._keeping.cancel()
        assert self._releasing is not None
        await asyncio.wait([self._releasing])

    def _lose(self, reason: str) -> None:
        if not self.lost.is_set():
            self.lost.set()
            log.info("lease_ended", term=self.leader.term, reason=reason)
            # Then others need not wait until it ends by itself.
            self._releasing = asyncio.create_task(self._let_go())

    def _kept(self, keeping: asyncio.Task[None]) -> None:
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            self._lose(f"it could not be renewed: {error!r}")

    async def _let_go(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._release()
        except Exception as error:
            log.warning("lease_not_released", reason=str(error) or "no answer in time")

    async def _keep(self) -> None:
        backoff = Backoff(self._seconds / 20, self._seconds / RENEWALS)
        wait = self._seconds / RENEWALS
        while True:
            await asyncio.sleep(max(0.0, min(wait, self._until - clock())))
            if not self.valid():
                return
            asked = clock()
            try:
                async with asyncio.timeout(self._until - asked):
                    await self._renew()
            except LeaseGone:
                self.end()
                return
            except (StoreError, TimeoutError) as error:
                log.warning("lease_not_renewed", reason=str(error) or "no answer in time")
                wait = backoff.next()
            else:
                self._until = asked + self._seconds
                backoff.reset()
                wait = self._seconds / RENEWALS
