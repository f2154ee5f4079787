"""The Sentinels that are known, and the groups that each of them should watch now."""

from collections.abc import Iterable

from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.masters.sentinels import monitoring


class Watch:
    """What is stored of Sentinels and groups.

    Args:
        configured: the Sentinels in the settings, which count until an operator adds or removes one.

    Attributes:
        unwatched: groups that no Sentinel should watch just now.
    """

    def __init__(self, ledger: Ledger, configured: Iterable[str]) -> None:
        self._ledger = ledger
        self._configured = tuple(configured)
        self.unwatched: set[int] = set()

    @property
    def sentinels(self) -> tuple[str, ...]:
        """Addresses of all Sentinels."""
        return self.sentinels_in(self._ledger.state)

    def sentinels_in(self, state: ClusterState) -> tuple[str, ...]:
        """As :attr:`sentinels`, in this state."""
        return self._configured if state.sentinels is None else state.sentinels

    @property
    def masters(self) -> dict[int, str]:
        """The masters, by group, of the groups to watch."""
        masters = monitoring.watched(self._ledger.table)
        return {group_id: master for group_id, master in masters.items() if group_id not in self.unwatched}

    def name_of(self, group_id: int) -> str:
        """The name under which Sentinels watch a group."""
        return monitoring.name_of(self._ledger.state.product.name, group_id)

    def group_of(self, name: str) -> int | None:
        """The group that Sentinels watch under a name; None if it is not a name of this product."""
        return monitoring.group_id_of(self._ledger.state.product.name, name)
