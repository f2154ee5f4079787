"""Groups that no Sentinel watches while topom gives them another master.

A Sentinel that saw only half of a planned promotion could make the new master a replica of the former one, or choose a
third server. So before a group is locked, every Sentinel forgets it. While it is locked, no Sentinel is told of it.
After that, all of them begin with the master that the slot table then names. If topom ends meanwhile, the next leader
lets them begin.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import structlog

from slots.failures import FAILURES, in_words
from topom.masters.sentinels.errors import SentinelWatches
from topom.masters.sentinels.links import Links
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.watch import Watch

log = structlog.get_logger(__name__)


class Unwatched:
    """The groups of one topom that no Sentinel watches just now."""

    def __init__(self, telling: Telling, watch: Watch, links: Links) -> None:
        self._telling = telling
        self._watch = watch
        self._links = links

    @asynccontextmanager
    async def during(self, group_id: int) -> AsyncIterator[None]:
        """Keep all Sentinels from watching a group inside the ``with`` block. To enter takes as long as a Sentinel may
        take to answer.

        Raises:
            SentinelWatches: one could not be told.
        """
        # Check this first: if a promotion is tried again and again, the other Sentinels must not begin anew each time.
        _require_all([self._unheard(address) for address in self._watch.sentinels], group_id)
        self._watch.unwatched.add(group_id)
        try:
            _require_all(
                await asyncio.gather(*(self._forget(address, group_id) for address in self._watch.sentinels)), group_id
            )
            log.info("sentinels_leave_alone", group=group_id)
            yield
        finally:
            self._watch.unwatched.discard(group_id)
            self._links.begin_again()

    def _unheard(self, address: str) -> str:
        """Why a Sentinel cannot be told, by what it did when it was last asked; empty if it answered."""
        link = self._links.get(address)
        if link is None:
            return f"Sentinel {address} is not known for long enough"
        return "" if link.reason is None else f"Sentinel {address} does not answer ({link.reason.what})"

    async def _forget(self, address: str, group_id: int) -> str:
        """Why a Sentinel could not be told; empty if it was."""
        link = self._links.get(address)
        if link is None:
            return self._unheard(address)
        try:
            await self._telling.forget(link, group_id)
        except FAILURES as error:
            return f"Sentinel {address} does not answer ({in_words(error)})"
        return ""


def _require_all(refusals: Iterable[str], group_id: int) -> None:
    """Raises SentinelWatches for the first refusal, if there is one."""
    for refusal in refusals:
        if refusal:
            raise SentinelWatches(
                f"{refusal}, and might undo a change of group {group_id}'s master; nothing was changed",
                "bring it back, or remove it with 'slotferry sentinel remove'",
            )
