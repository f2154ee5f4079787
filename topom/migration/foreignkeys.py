"""Which keys of a server are foreign, and may be deleted by a sweep (**owned**).

Keys are foreign to a group if another group that has a server owns their slots: by the table no proxy looks for them
here. In doubt nothing is deleted: no keys of slots that are offline, or that leave the group, or that come to it and
are locked. Of slots that are offline, a group's *leftovers* are known to be old (:mod:`topom.cluster.leftovers`).

**Which keys.** A server's foreign keys may also be the only copies: the server was filled before it was added, or slots
were taken offline and assigned to another group. Each group has a random *data id*, which its servers carry with their
data once a scan has found no foreign key there. The foreign keys in data that carries the id can only be of slots that
left **complete**, or leftovers. So these keys are deleted. topom forgets the id of a group when slots of the group are
taken offline, and the ids of all other groups when offline slots are assigned to one. It also forgets the id of a group
that gets a master from outside, because that may be a former master with what was written there meanwhile. A server
with other data is refused as a target, until an operator says that the keys may go. That holds for leftovers as well:
it is stored which slots a group has left, and not in which data. The master may be a server with other data by then.
"""

import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import structlog

from migrator.errors import ForeignKeys
from slots.counting import counted
from slots.slot import Slot
from slots.states import SlotState
from slots.table import SlotTable
from topom.cluster.ledger import Ledger
from topom.cluster.rules import locked_for
from topom.cluster.state import ClusterState
from topom.errors import Unavailable
from topom.reasons import Kind, Reason, Reasons

log = structlog.get_logger(__name__)


class SweepBrokenOff(Unavailable):
    """Which keys of a server may be swept has changed."""

    kind = Kind.BUSY


def foreign_to(table: SlotTable, group_id: int, left: Collection[int] = ()) -> bytes:
    """A byte for each slot: whether its keys belong to another group than this one, beyond doubt.

    ``left`` are the slots of which the group may have old keys (:mod:`topom.cluster.leftovers`).
    """
    served = {group.id for group in table.groups.values() if group.id != group_id and group.master is not None}
    return bytes(
        (slot.group_id in served or (slot.id in left and slot.group_id != group_id)) and locked_for(slot) != group_id
        for slot in table.slots
    )


def masters_at_rest(table: SlotTable, with_old_keys: Collection[int] = ()) -> dict[int, str]:
    """The masters that may have foreign keys, by the id of their group, without groups from or to which a slot is on
    its way. ``with_old_keys`` are groups with leftovers.
    """
    owners, busy = set[int](), set[int]()
    for slot in table.slots:
        owners.add(slot.group_id)
        if slot.action is not None and slot.action.state is not SlotState.PENDING:
            busy |= {slot.group_id, slot.action.target_id}
    owners = {group_id for group_id in owners if table.master_of(group_id) is not None}
    return {
        group_id: group.master
        for group_id, group in sorted(table.groups.items())
        if group.master is not None
        and not group.locked
        and group_id not in busy
        and (owners - {group_id} or group_id in with_old_keys)
    }


class SweepWarrant:
    """What one sweep may delete; ``allowed`` if an operator has said that all foreign keys may go."""

    def __init__(
        self,
        ledger: Ledger,
        reasons: Reasons[str],
        conflict: Callable[[str], Reason | None],
        doubt: Callable[[str], Reason | None],
        group_id: int,
        server: str,
        data: str,
        allowed: bool,
    ) -> None:
        self._conflict = conflict
        self._doubt = doubt
        self._ledger = ledger
        self._reasons = reasons
        self._allowed = allowed
        self._group_id = group_id
        self._server = server
        self._data = data
        self._begun = b""
        # The sweep goes by these rules, or by newer ones, which are told apart from these.
        self._rules = ledger.table.rules
        self._held: SlotTable | None = None

    def foreign(self) -> bytes:
        return self._foreign(self._ledger.state)

    async def begin(self, keys: int, known: bool) -> bytes:
        # Whatever has just come in may be another name of a server that owns these keys.
        self._require_one_name(self._doubt)
        if not known and not self._allowed:
            raise ForeignKeys(
                f"server {self._server} of group {self._group_id} holds {counted(keys, 'key')} of slots that belong to "
                "other groups, and was never seen without them, so nobody but you knows whether they are needed",
                f"save what is, and have them removed: slotferry server sweep {self._server}",
            )

        def begin(state: ClusterState, epoch: int) -> ClusterState:
            # owned: this goes by what is stored now, and no slot comes to the server until the sweep is over.
            self._begun = self._foreign(state)
            self._held = state.table
            return replace(state, sweeping={**state.sweeping, self._server: secrets.token_hex(8)})

        await self._ledger.change(begin)
        log.info("server_being_swept", server=self._server, group=self._group_id, keys=keys, known=known)
        return self._begun

    def hold(self, removed: int) -> None:
        self._require_one_name(self._conflict)
        table = self._ledger.table
        if table is not self._held:
            if any(_lost(self._begun, self._foreign(self._ledger.state))):
                raise SweepBrokenOff(f"slots whose keys were being removed at {self._server} are in doubt by now")
            self._held = table
        what = f"keys of slots that {self._server} does not own are being removed, {removed} so far"
        self._reasons.waits(self._server, Reason.now(Kind.BUSY, what), server=self._server, group=self._group_id)

    def _require_one_name(self, why_not: Callable[[str], Reason | None]) -> None:
        # run-id: a server may own a slot by another name than this one.
        if reason := why_not(self._server):
            raise reason.to(SweepBrokenOff)

    def _foreign(self, state: ClusterState) -> bytes:
        group = state.table.groups.get(self._group_id)
        if group is None or group.master != self._server or group.locked:
            raise SweepBrokenOff(f"{self._server} is not the master of group {self._group_id} any more, as it seems")
        if state.table.rules != self._rules:
            # owned: by other rules other keys are foreign.
            raise SweepBrokenOff(f"the slot rules have changed; {self._server} is looked at again")
        if state.data_ids.get(self._group_id) != self._data:
            raise SweepBrokenOff(f"slots were assigned or taken offline; what {self._server} has is looked at again")
        if any(slot.action and slot.action.copy and self._group_id in _ends(slot) for slot in state.table.slots):
            # owned: their keys are foreign at one end, and not known as that yet. A scan without them would not count.
            raise SweepBrokenOff(f"slots are being copied to or from {self._server}, which is looked at after that")
        return foreign_to(state.table, self._group_id, state.leftovers.get(self._group_id, {}))


def _ends(slot: Slot) -> tuple[int, ...]:
    """The groups from which and to which a slot is on its way."""
    return (slot.group_id, slot.action.target_id) if slot.action is not None else ()


def _lost(before: bytes, after: bytes) -> Iterable[bool]:
    return (bool(was) and not now for was, now in zip(before, after, strict=True))
