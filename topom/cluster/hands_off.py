"""The one answer to whether topom may act by itself now.

It may not while an operator has *paused* it, nor in protection mode (:mod:`topom.cluster.protection`). What operators
ask for is done all the same. What was begun goes on to where it is safe: a locked group is unlocked, a moving slot
stays reachable, a fence comes up everywhere.
"""

import time
from dataclasses import replace

import structlog

from topom.cluster.events import actor
from topom.cluster.ledger import Ledger
from topom.cluster.protection import Protection
from topom.cluster.state import ClusterState, Pause
from topom.reasons import Reason

log = structlog.get_logger(__name__)

MOST_WHY = 200
"""The most characters of the operator's text that says why topom is paused."""


class HandsOff:
    """Whether one topom keeps its hands off."""

    def __init__(self, ledger: Ledger, protection: Protection) -> None:
        self._ledger = ledger
        self.protection = protection

    def paused(self) -> Reason | None:
        """The reason that an operator has paused topom; None if topom is not paused."""
        pause = self._ledger.state.pause
        return pause.reason if pause is not None else None

    def reason(self) -> Reason | None:
        """Why topom does nothing by itself, and what to do; None if it does."""
        return self.paused() or self.protection.reason

    async def pause(self, why: str) -> None:
        """Have topom do nothing by itself from now on, also after a change of the leader.

        Raises as :meth:`Ledger.change`.
        """
        pause = Pause(actor.get() or "topom", time.time(), why[:MOST_WHY])

        def change(state: ClusterState, epoch: int) -> ClusterState:
            if state.pause is not None and state.pause.why == pause.why:
                return state
            return replace(state, pause=pause)

        await self._ledger.change(change)
        log.warning("paused", by=pause.by, why=pause.why)

    async def resume(self) -> None:
        """Have topom act by itself again. Raises as :meth:`Ledger.change`."""
        await self._ledger.change(lambda state, epoch: replace(state, pause=None) if state.pause is not None else state)
        log.info("resumed")
