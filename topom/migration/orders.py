"""What operators order while slots move: cancel, skip, retry, and how fast keys move.

:mod:`topom.cluster.cancelling` says what becomes of each slot. This module stores it, and tells the batches.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import structlog

from slots import ranges
from topom.cluster import cancelling, topology
from topom.cluster.cancelling import Cancelled
from topom.cluster.hours import Hours
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.migration.actions import Actions
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)


class Orders:
    """The orders to one topom's batches."""

    def __init__(self, ledger: Ledger, actions: Actions) -> None:
        self._ledger = ledger
        self._actions = actions

    async def cancel(self, text: str | None) -> Cancelled:
        """Cancel the actions of slots, or of all if None; gives what becomes of each.

        Raises:
            InvalidSlots: ``text`` is not a list of slots.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        slots = self._slots(text)
        outcome = Cancelled()

        def cancel(state: ClusterState, epoch: int) -> ClusterState:
            nonlocal outcome
            new, outcome = cancelling.cancel(state, epoch, slots)
            return new

        await self._ledger.change(cancel)
        log.info(
            "slots_cancelled",
            ended=ranges.show(outcome.ended),
            returning=ranges.show(outcome.returning),
            too_late=ranges.show(outcome.too_late),
        )
        # Slots that go back have waited long enough.
        self._actions.retry()
        return outcome

    async def skip(self, text: str) -> list[int]:
        """Let slots that do not go on step aside until they are retried; gives the ids of those that do so now.

        Raises:
            InvalidSlots: ``text`` is not a list of slots.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        slots = self._slots(text)
        reasons = self._actions.reasons()
        wanted = Reason.now(Kind.PAUSED, "an operator wanted it so", "slotferry migration retry")
        changed: list[int] = []

        def skip(state: ClusterState, epoch: int) -> ClusterState:
            new = cancelling.skip(state, epoch, {slot: reasons.get(slot, wanted) for slot in slots})
            changed[:] = sorted(set(new.skipped) - set(state.skipped))
            return new

        await self._ledger.change(skip)
        log.info("slots_skipped", slots=ranges.show(changed))
        return changed

    async def retry(self, text: str | None) -> list[int]:
        """Try at once what has failed and waits, and by a copy where copies were given up. These skipped slots, or all
        of them if None, go on too; gives their ids.

        Raises:
            InvalidSlots: ``text`` is not a list of slots.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        slots = self._slots(text)
        changed: list[int] = []

        def retry(state: ClusterState, epoch: int) -> ClusterState:
            new = cancelling.unskipped(state, slots)
            changed[:] = sorted(set(state.skipped) - set(new.skipped))
            return new

        await self._ledger.change(retry)
        self._actions.forget_failures()
        self._actions.retry()
        log.info("slots_retried", skipped=ranges.show(changed))
        return changed

    async def set(self, changes: Mapping[str, Any]) -> None:
        """Set migration settings, by the names of :class:`~topom.cluster.state.MigrationSettings`, over the configured
        ones.

        Raises:
            InvalidHours: the hours or their time zone cannot be read.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        Hours.parse(changes.get("hours", ""), changes.get("time_zone", ""))

        def change(state: ClusterState, epoch: int) -> ClusterState:
            merged = {**state.migration_changes, **changes}
            return replace(state, migration_changes=merged) if merged != state.migration_changes else state

        await self._ledger.change(change)
        log.info("migration_set", **changes)

    def _slots(self, text: str | None) -> Collection[int]:
        number = self._ledger.state.product.number_of_slots
        return range(number) if text is None else topology.parse_slots(text, number)
