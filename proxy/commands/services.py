"""The parts of a worker that the families of slow commands use."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from proxy.clusterview import ClusterView
from proxy.commands.notable import NotableLog
from proxy.engine.router import Router
from proxy.servers.backends import BackendOptions
from proxy.settings import ProxySettings
from slots.messages.questions import Question
from slots.table import SlotTable

if TYPE_CHECKING:
    from proxy.servers.ownconnections import OwnConnections


class AskAll(Protocol):
    """Asks every worker of the proxy, including the asking one, and gives their answers."""

    def __call__(self, question: Question) -> Coroutine[Any, Any, list[Any]]:
        """Ask; the answers are JSON values. bounded: late answers are left out."""


@dataclass
class Services:
    """One worker's parts, as its families use them."""

    settings: ProxySettings
    """Those that hold now; some may change."""
    index: int
    """The worker's seat among the workers. The numbers of its sessions have it as their remainder."""
    router: Router
    options: BackendOptions
    own: "OwnConnections"
    databases: int
    masters: Callable[[], list[str]]
    """Addresses of the masters that own slots, give them away or receive them."""
    table: Callable[[], SlotTable | None]
    cluster: Callable[[], ClusterView | None]
    """The proxies that clients are told of; None unless in cluster mode."""
    ask_all: AskAll
    notable: NotableLog
    describe: Callable[[], dict[str, Any]]
    """The fields about the proxy in INFO's section Slotferry, by name."""
    now: Callable[[], float]
    """The time on the sessions' clock, in seconds."""
    started: float
    """The start of the worker, by time.time()."""

    def every_master(self) -> list[str]:
        """Addresses of the masters of all groups, including groups without slots, by group id.

        Data that every server has for good is kept up at these, too: slots may come back at any time.
        """
        table = self.table()
        groups = sorted(table.groups.items()) if table is not None else []
        return [group.master for _, group in groups if group.master is not None]
