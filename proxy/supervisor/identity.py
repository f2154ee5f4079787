"""The identity under which the proxy registers, and the newest table that it has.

An identity that topom or a server has fenced off is over. The next one begins at once, but the workers get it only with
a table that came under it.

Upholds **epochs** (an older table is refused), **final-fence** and **one-owner** (a table from under an identity that
is over is in force for nobody).
"""

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from proxy.supervisor.kept_table.tablefile import Kept
from slots.dialing import ControlError
from slots.messages.control import KnownTable, Registered
from slots.messages.message import Product
from slots.slot import TableError
from slots.table import SlotTable


class Identity:
    """Who the proxy is, and what it serves. It knows nothing of processes or connections."""

    def __init__(self) -> None:
        self.instance = uuid.uuid4().hex
        """The identity under which the proxy registers with topom."""
        self.registered = False
        """Whether topom has registered it."""
        self.is_new = False
        """Whether the workers do not have it yet."""
        self.product: Product | None = None
        """What the proxy serves; None until the first registration."""
        self.table: SlotTable | None = None
        """The newest table of this process, under whatever identity it came."""
        self.known: KnownTable | None = None
        """The newest table that it has had, also as another process, under whatever identity (**newest-store**)."""
        self._former = self.instance
        self._topom: Registered | None = None

    @property
    def of_workers(self) -> str:
        """The identity of the workers: the former one, until a table comes under a new one."""
        return self._former if self.is_new else self.instance

    @property
    def epoch(self) -> int:
        """The epoch of the newest table; 0 for none."""
        return self.table.epoch if self.table is not None else 0

    @property
    def table_in_force(self) -> SlotTable | None:
        """The newest table under the identity of the workers; None once that is over."""
        return None if self.is_new else self.table

    def replicas(self) -> Mapping[int, Collection[str]]:
        """By group of the newest table, its replicas."""
        return {group.id: group.replicas for group in self.table.groups.values()} if self.table is not None else {}

    def groups_of_servers(self) -> dict[str, int]:
        """By server of the newest table, its group."""
        groups = self.table.groups.values() if self.table is not None else ()
        return {server: group.id for group in groups for server in group.servers}

    # What becomes of it

    def go_on_as(self, kept: Kept) -> None:
        """Be what an earlier process of this proxy was."""
        self.instance = self._former = kept.instance
        self.registered = True
        self.product = kept.product
        self.table = kept.table

    def is_registered(self, answer: Registered) -> bool:
        """topom has registered it; say whether that is the first time for this process.

        Raises :class:`ControlError` if topom speaks of another product.
        """
        self.registered = True
        self._topom = answer
        if self.product is None:
            self.product = answer.product
            return True
        if self.product != answer.product:
            raise ControlError(
                f"topom now speaks of {answer.product}, but this proxy serves {self.product}; it goes on with what it "
                "has. Restart it if the change is meant"
            )
        return False

    def end(self) -> None:
        """It is over; the next one begins. The workers keep the old one until the table for the new one is there."""
        if not self.is_new:
            self._former = self.instance
        self.is_new = self.product is not None
        self.instance = uuid.uuid4().hex
        self.registered = False

    # Tables

    def read(self, content: Mapping[str, Any]) -> SlotTable | None:
        """The table of a message; None if it is changes to a table that is not the present one.

        Raises :class:`TableError` for one that cannot be used.
        """
        if "since" in content:
            now = self.table_in_force
            return now.with_changes(content) if now is not None and content["since"] == now.epoch else None
        new = SlotTable.from_wire(content)
        if self.product is not None and len(new.slots) != self.product.number_of_slots:
            raise TableError(f"it has {len(new.slots)} slots, the product has {self.product.number_of_slots}")
        return new

    def refuses(self, new: SlotTable) -> bool:
        """epochs: an older table, or another one of the same epoch, comes from a topom that lost its place."""
        now = self.table
        return now is not None and (new.epoch < now.epoch or (new.epoch == now.epoch and new != now))

    def take(self, new: SlotTable, seal: str) -> bool:
        """This is the newest table from now on; say whether it is the first one under a new identity."""
        first, self.is_new = self.is_new, False
        self.table = new
        if self._topom is not None:
            self.known = KnownTable(cluster=self._topom.cluster, start=self._topom.start, epoch=new.epoch, seal=seal)
        return first
