"""What the families of slow commands are given to work with."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from proxy.backends import BackendOptions
from proxy.clusterview import ClusterView
from proxy.engine.router import Router
from proxy.settings import ProxySettings
from proxy.slowlog import SlowLog
from slots.table import SlotTable

if TYPE_CHECKING:
    from proxy.ownconnections import OwnConnections


class AskAll(Protocol):
    """Asks every worker of the proxy, the asking one included, and gives their answers."""

    def __call__(self, what: str, **arguments: Any) -> Coroutine[Any, Any, list[Any]]:
        """Ask ``what``; the arguments and the answers are JSON values. bounded: late answers are left out."""


@dataclass(frozen=True)
class Services:
    """One worker's parts, as its families use them."""

    settings: ProxySettings
    router: Router
    options: BackendOptions
    own: "OwnConnections"
    databases: int
    masters: Callable[[], list[str]]
    """Addresses of the masters that own slots, give them away or receive them."""
    table: Callable[[], SlotTable | None]
    cluster: Callable[[], ClusterView | None]
    """The proxies as clients are told of them; None but in cluster mode."""
    ask_all: AskAll
    slow_log: SlowLog
    describe: Callable[[], dict[str, Any]]
    """What INFO's section Slotferry says of the proxy, by name."""
    now: Callable[[], float]
    """The time on the sessions' clock, in seconds."""
    started: float
    """When the worker was started, as time.time() gives it."""

    def every_master(self) -> list[str]:
        """Addresses of the masters of all groups, also of those without slots, by group id.

        What is at every server for good is kept up there, too: slots may come back any time.
        """
        table = self.table()
        groups = sorted(table.groups.items()) if table is not None else []
        return [group.master for _, group in groups if group.master is not None]
