"""The figures of one worker: what its supervisor is told each second, and what INFO says of the proxy."""

import resource
from typing import Any

from proxy.commands.clients.authentication import Authentication
from proxy.commands.services import Services
from proxy.moving.migrating import KeyMover
from proxy.worker.clients.arrivals import Arrivals
from proxy.worker.holding import Holding
from proxy.worker.replicas.replicas import Replicas
from slots.messages.message import Product


class Figures:
    """Looks at the parts of a worker.

    Args:
        product: what the proxy serves.
        services, arrivals, authentication, holding, mover, replicas: the parts.
    """

    def __init__(
        self,
        product: Product,
        services: Services,
        arrivals: Arrivals,
        authentication: Authentication,
        holding: Holding,
        mover: KeyMover,
        replicas: Replicas,
    ) -> None:
        self._product = product
        self._services = services
        self._arrivals = arrivals
        self._authentication = authentication
        self._holding = holding
        self._mover = mover
        self._replicas = replicas
        self.clients_lacking = 0
        """How many clients fewer it may have than ``max_clients`` in the file, for want of open files."""

    @property
    def in_flight(self) -> int:
        """Requests that servers have yet to answer."""
        queued = sum(backend.queued for backend in self._services.router.shared_backends)
        return queued + self._mover.waiting + self._services.own.in_flight

    def counters(self) -> dict[str, float]:
        """By the names in :mod:`proxy.supervisor.workermetrics`."""
        router = self._services.router
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "requests": router.loop.requests,
            "errors": router.loop.errors,
            "shed": router.loop.shed,
            "cached": router.hot_values.answered,
            "clients": len(router.sessions),
            "max_clients": self._services.settings.max_clients,
            "max_clients_lacking": self.clients_lacking,
            "connections": self._arrivals.accepted,
            "refused": self._arrivals.refused,
            "arriving": len(self._arrivals),
            "arrivals_failed": self._arrivals.failed,
            "authentications_failed": self._authentication.failures,
            "logins_refused": self._authentication.refused,
            "held": len(self._holding),
            "moving": self._mover.waiting,
            "moved": self._mover.moved,
            "replica_slots": self._replicas.slots_read,
            "in_flight": self.in_flight,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "memory_bytes": _resident_bytes(),
        }

    def describe(self) -> dict[str, Any]:
        """The fields of INFO's section Slotferry."""
        table = self._services.table()
        return {
            "product": self._product.name,
            "epoch": table.epoch if table else 0,
            "number_of_slots": self._product.number_of_slots,
            "slot_function": self._product.slot_function,
            "databases": self._product.databases,
            "groups": len(table.groups) if table else 0,
            "workers": self._services.settings.worker_count,
            "instance": self._services.options.instance,
        }


def _resident_bytes() -> int:
    """Memory of this process; if the system does not tell (macOS), the most it has had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
