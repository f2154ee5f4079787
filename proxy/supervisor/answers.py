"""Answers topom about an epoch: the whole proxy applies it, or it will not be applied.

Upholds **drained** for workers that died. If an epoch takes slots from servers where a dead worker's commands may still
run, its acknowledgement is withheld. If that takes too long, the epoch is refused.
"""

import asyncio
from collections.abc import Callable

import structlog

from proxy.supervisor.acknowledging import Acknowledgements
from proxy.supervisor.kept_table.tablekeeping import TableKeeping
from proxy.supervisor.leftovers import Leftovers
from proxy.supervisor.workforce import Workforce
from slots.messages.control import Ack, Nack
from slots.messages.message import sentence
from slots.table import SlotTable

log = structlog.get_logger()


class Answers:
    """Decides the answer for the newest table, and sends it.

    Args:
        acknowledgements: the answers so far.
        workforce, keeping, leftovers: the reasons why an acknowledgement may have to wait.
        table: the newest table under the present identity, if there is one.
        send: sends a message to topom.
        seconds: how long an epoch may be withheld for dead workers before it is refused.
    """

    def __init__(
        self,
        acknowledgements: Acknowledgements,
        workforce: Workforce,
        keeping: TableKeeping,
        leftovers: Leftovers,
        table: Callable[[], SlotTable | None],
        send: Callable[[Ack | Nack], object],
        seconds: float,
    ) -> None:
        self._acks = acknowledgements
        self._workforce = workforce
        self._keeping = keeping
        self._leftovers = leftovers
        self._table = table
        self._send = send
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def consider(self) -> None:
        """Acknowledge all that can be acknowledged now; begin to wait for the rest."""
        table = self._table()
        if table is None:
            return
        applied = self._applied(table)
        leftovers = self._leftovers.groups
        epoch = self._acks.next(applied, leftovers)
        if epoch is not None:
            log.debug("epoch_acknowledged", epoch=epoch)
            self._send(Ack(epoch=epoch))
        if self._timer is None and self._acks.withheld(applied, leftovers):
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._waited_enough)

    def refuse(self, epoch: int, reason: str) -> None:
        """Refuse an epoch, unless it was answered before."""
        if self._acks.refuse(epoch):
            log.warning("epoch_refused", epoch=epoch, reason=reason)
            self._send(Nack(epoch=epoch, reason=sentence(reason)))

    def close(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()

    def _applied(self, newest: SlotTable) -> int:
        """The epoch that all live workers apply, and that is on the disk if it has to be there.

        An empty seat has nothing to drain.
        """
        applied = min((worker.applied for worker in self._workforce.alive.values()), default=newest.epoch)
        return min(applied, self._keeping.covered)

    def _waited_enough(self) -> None:
        """drained: an epoch is refused when a dead worker's connections are not ended for too long."""
        self._timer = None
        table = self._table()
        if table is not None and self._acks.withheld(self._applied(table), self._leftovers.groups):
            servers = ", ".join(self._leftovers.servers)
            self.refuse(table.epoch, f"connections of a worker that died are not yet ended at {servers}")
