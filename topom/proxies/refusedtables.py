"""Sends a table that a proxy refused again, under a new epoch, until it is acknowledged.

A proxy that refuses keeps its older table. If the state machine takes the change back, a newer table comes soon;
otherwise the same one is sent again.
"""

import asyncio
from dataclasses import replace
from typing import ClassVar

from slots.backoff import Backoff
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.periodic import Look, Loop
from topom.proxies.members import Members

FIRST_SECONDS, LONGEST_SECONDS = 0.2, 5.0
"""Seconds before a table is sent again; with full jitter."""
CALM_SECONDS = 30.0
"""After so many seconds without a refusal, the waits begin at ``FIRST_SECONDS`` again."""


class RefusedTables(Loop):
    """The tables of one topom that proxies refuse."""

    name = "refused tables"
    pause_seconds: ClassVar[float | None] = 0.0

    def __init__(self, ledger: Ledger, members: Members) -> None:
        super().__init__()
        self._ledger = ledger
        self._members = members
        self._backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS)
        self._told_at = 0.0
        members.listen_refusals(self.wake)

    async def look(self) -> Look:
        """Send the newest table again, if it is refused."""
        if not self._members.refused_epoch or self._ledger.table.epoch > self._members.refused_epoch:
            return Look()
        clock = asyncio.get_running_loop().time
        if clock() - self._told_at > CALM_SECONDS:
            self._backoff.reset()
        await asyncio.sleep(self._backoff.next())
        refused = self._members.refused_epoch

        def again(state: ClusterState, epoch: int) -> ClusterState:
            return replace(state, table=state.table.changed(epoch)) if state.table.epoch <= refused else state

        await self._ledger.change(again)
        self._told_at = clock()
        return Look(f"the table of epoch {refused}, which a proxy refused, was given out again", LONGEST_SECONDS)
