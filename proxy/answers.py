"""What topom is told of an epoch: that the whole proxy applies it, or that it will not be.

Upholds **drained** for workers that died: an epoch that takes slots from where their commands may still run is
withheld, and refused once that has taken too long.
"""

import asyncio
from collections.abc import Callable

import structlog

from proxy.acknowledging import Acknowledgements
from proxy.channel import Message
from proxy.leftovers import Leftovers
from proxy.tablekeeping import TableKeeping
from proxy.workforce import Workforce
from slots.table import SlotTable

log = structlog.get_logger()


class Answers:
    """Decides what to say of the newest table, and says it.

    Args:
        acknowledgements: what was said so far.
        workforce, keeping, leftovers: what stands in the way of saying more.
        table: the newest table under the present identity, if there is one.
        send: says something to topom.
        seconds: for how long an epoch may be withheld for dead workers before it is refused.
    """

    def __init__(
        self,
        acknowledgements: Acknowledgements,
        workforce: Workforce,
        keeping: TableKeeping,
        leftovers: Leftovers,
        table: Callable[[], SlotTable | None],
        send: Callable[[Message], object],
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
        """Acknowledge what can be acknowledged now; begin to wait for what stands in the way."""
        table = self._table()
        if table is None:
            return
        applied = self._applied(table)
        unsettled = self._leftovers.unsettled
        epoch = self._acks.next(applied, unsettled)
        if epoch is not None:
            log.debug("epoch_acknowledged", epoch=epoch)
            self._send({"type": "ack", "epoch": epoch})
        if self._timer is None and self._acks.withheld(applied, unsettled):
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._waited_enough)

    def refuse(self, epoch: int, reason: str) -> None:
        """Say that an epoch will not be applied, unless something was said of it before."""
        if self._acks.refuse(epoch):
            log.warning("epoch_refused", epoch=epoch, reason=reason)
            self._send({"type": "nack", "epoch": epoch, "reason": reason})

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _applied(self, newest: SlotTable) -> int:
        """The epoch that all live workers apply, as far as it is on the disk where it has to be.

        Of a seat that is empty just now nothing has to be drained.
        """
        applied = min((worker.applied for worker in self._workforce.alive.values()), default=newest.epoch)
        return min(applied, self._keeping.covered)

    def _waited_enough(self) -> None:
        """drained: topom hears that an epoch cannot be acknowledged as long as a dead worker is not settled."""
        self._timer = None
        table = self._table()
        if table is not None and self._acks.withheld(self._applied(table), self._leftovers.unsettled):
            servers = ", ".join(self._leftovers.servers)
            self.refuse(table.epoch, f"connections of a worker that died are not yet ended at {servers}")
