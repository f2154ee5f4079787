"""The slot table: which group owns each slot, and which servers each group has, at one epoch.

A table never changes; a change makes a new one with a larger epoch (**epochs**), so a process can hand
its table to another part of itself without a copy or a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from typing import Any

from slots import fields
from slots.group import Group
from slots.keyslots import KeySlots
from slots.rules import SlotRule, coming_from_wire, rules_from_wire, rules_to_wire
from slots.slot import MAXIMUM_SLOTS, OFFLINE, WRONG, Slot, TableError, slots_from_wire, slots_to_wire
from slots.states import SlotState

DEFAULT_SLOTS = 1024


@dataclass(frozen=True)
class SlotTable:
    """All slots and all groups as of ``epoch``, and the product's slot rules. ``slots[i].id == i``.

    ``coming`` are the rules to come while they change, else None. Until that is over, nobody uses a key whose slot they
    change. A worker that learns of them locks all slots until nothing is under way that was sent before (**drained**).
    ``unknown`` are the places whose slots may be inconsistent with the rest; by default, all.
    """

    epoch: int
    slots: tuple[Slot, ...]
    groups: Mapping[int, Group]
    unknown: InitVar[Iterable[int] | None] = None
    rules: tuple[SlotRule, ...] = ()
    coming: tuple[SlotRule, ...] | None = None

    def __post_init__(self, unknown: Iterable[int] | None) -> None:
        count = len(self.slots)
        if not 1 <= count <= MAXIMUM_SLOTS or count & (count - 1):
            raise TableError(f"the number of slots is {count}; it has to be a power of two up to {MAXIMUM_SLOTS}")
        for index in range(count) if unknown is None else unknown:
            slot = self.slots[index]
            if slot.id != index:
                raise TableError(f"slot {slot.id} stands at place {index} of the table")
            for group_id in (slot.group_id, slot.action.target_id if slot.action else OFFLINE):
                if group_id != OFFLINE and group_id not in self.groups:
                    raise TableError(f"slot {slot.id} names group {group_id}, which the table does not hold")

    @classmethod
    def empty(cls, number_of_slots: int = DEFAULT_SLOTS) -> SlotTable:
        """Epoch 0, every slot offline, no groups."""
        return cls(0, tuple(Slot(i) for i in range(number_of_slots)), {})

    @cached_property
    def by_group(self) -> Mapping[int, tuple[int, ...]]:
        """The reverse index: the ids of the slots that each group owns (:attr:`Slot.owner_id`), ascending."""
        found: dict[int, list[int]] = {group_id: [] for group_id in self.groups}
        for slot in self.slots:
            if slot.owner_id != OFFLINE:
                found[slot.owner_id].append(slot.id)
        return {group_id: tuple(ids) for group_id, ids in found.items()}

    @cached_property
    def by_server(self) -> Mapping[str, tuple[int, ...]]:
        """The reverse index: the ids of the slots whose group has each server, ascending."""
        found: dict[str, list[int]] = {}
        for group in self.groups.values():
            for server in group.servers:
                found.setdefault(server, []).extend(self.by_group[group.id])
        return {server: tuple(sorted(ids)) for server, ids in found.items()}

    @cached_property
    def acting(self) -> tuple[Slot, ...]:
        """The slots that have an action, ascending."""
        return tuple(slot for slot in self.slots if slot.action is not None)

    @cached_property
    def used_masters(self) -> Mapping[int, str]:
        """The master of each group that owns slots, gives them away or receives them, by ascending id."""
        used = {slot.group_id for slot in self.slots}
        used |= {slot.action.target_id for slot in self.acting if slot.action is not None}
        found = ((group_id, self.master_of(group_id)) for group_id in sorted(used))
        return {group_id: master for group_id, master in found if master is not None}

    def master_of(self, group_id: int) -> str | None:
        """``host:port`` of the master of a group; None for :data:`OFFLINE` and for an empty group."""
        group = self.groups.get(group_id)
        return group.master if group else None

    @property
    def locks(self) -> bool:
        """Whether a slot is locked, by itself, with its group, or with all because their rules change."""
        return (
            self.coming is not None
            or any(group.locked for group in self.groups.values())
            or any(slot.action is not None and slot.action.state is SlotState.PREPARED for slot in self.slots)
        )

    def key_slots(self, function: str) -> KeySlots:
        """Which slot each key has, by a slot function and the table's rules."""
        return KeySlots(function, len(self.slots), self.rules)

    def changed(
        self,
        epoch: int,
        slots: Iterable[Slot] = (),
        groups: Iterable[Group] = (),
        removed_groups: Iterable[int] = (),
    ) -> SlotTable:
        """A table of a larger ``epoch`` with these slots and groups in place of the old ones.

        Raises:
            TableError: when ``epoch`` does not grow, or the new table is inconsistent.
        """
        # epochs: a process that holds a newer table keeps it.
        if epoch <= self.epoch:
            raise TableError(f"epoch {epoch} is not larger than {self.epoch}")
        new_slots = list(self.slots)
        places: list[int] = []
        for slot in slots:
            if not 0 <= slot.id < len(new_slots):
                raise TableError(f"slot {slot.id} is not within 0-{len(new_slots) - 1}")
            new_slots[slot.id] = slot
            places.append(slot.id)
        gone, come = {*removed_groups}, {group.id: group for group in groups}
        # If no group has changed, the new table shares the mapping: a look for changes then need not compare any
        # groups.
        new_groups = self.groups
        if gone or come:
            new_groups = {number: group for number, group in {**self.groups, **come}.items() if number not in gone}
        # Clients wait while a table is made. A slot that has not changed can only have lost its group.
        all_slots = tuple(new_slots) if places else self.slots
        return SlotTable(epoch, all_slots, new_groups, None if gone else places, self.rules, self.coming)

    def ruled(self, epoch: int, rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> SlotTable:
        """A table of a larger ``epoch`` with these rules, and this change of them. Raises as :meth:`changed`."""
        return replace(self.changed(epoch), unknown=(), rules=rules, coming=coming)

    def to_wire(self) -> dict[str, Any]:
        """The whole table: ``{"epoch", "slots": [...], "groups": [...], "rules": [...], "coming": [...]}``.

        The slots are as :func:`slots_to_wire` has them. ``coming`` is left out where it is None.
        """
        wire = {
            "epoch": self.epoch,
            "slots": slots_to_wire(self.slots),
            "groups": [self.groups[group_id].to_wire() for group_id in sorted(self.groups)],
            "rules": rules_to_wire(self.rules),
        }
        if self.coming is not None:
            wire["coming"] = rules_to_wire(self.coming)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SlotTable:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError`."""
        try:
            groups = [Group.from_wire(raw) for raw in wire["groups"]]
            slots = tuple(sorted(slots_from_wire(wire["slots"]), key=lambda slot: slot.id))
            return cls(
                fields.number(wire["epoch"]),
                slots,
                {group.id: group for group in groups},
                rules=rules_from_wire(wire["rules"]),
                coming=coming_from_wire(wire.get("coming")),
            )
        except TableError:
            raise
        except WRONG as error:
            raise TableError(f"not a slot table: {error!r}") from error

    def changes_since(self, older: SlotTable) -> dict[str, Any]:
        """The changes that turn the table ``older`` into this one: ``{"since", "epoch", "slots", "groups",
        "removed_groups", "rules", "coming"}``.

        The slots are as in :meth:`to_wire`. ``rules`` and ``coming`` are left out if they are the same.
        """
        changes = {
            "since": older.epoch,
            "epoch": self.epoch,
            "slots": slots_to_wire(
                new for new, old in zip(self.slots, older.slots, strict=True) if new is not old and new != old
            ),
            "groups": [group.to_wire() for group in self.groups.values() if older.groups.get(group.id) != group],
            "removed_groups": sorted(set(older.groups) - set(self.groups)),
        }
        if self.rules != older.rules:
            changes["rules"] = rules_to_wire(self.rules)
        if self.coming != older.coming:
            changes["coming"] = None if self.coming is None else rules_to_wire(self.coming)
        return changes

    def with_changes(self, wire: Mapping[str, Any]) -> SlotTable:
        """The table that :meth:`changes_since` describes, made from this one.

        Raises:
            TableError: the changes are against another epoch than this table's, or they are inconsistent. Ask for a
                whole table.
        """
        if wire.get("since") != self.epoch:
            raise TableError(f"the changes are against epoch {wire.get('since')}, this table is of epoch {self.epoch}")
        try:
            new = self.changed(
                fields.number(wire["epoch"]),
                slots_from_wire(wire["slots"]),
                [Group.from_wire(raw) for raw in wire["groups"]],
                [fields.group_id(group_id) for group_id in wire["removed_groups"]],
            )
            rules = rules_from_wire(wire["rules"]) if "rules" in wire else self.rules
            coming = coming_from_wire(wire["coming"]) if "coming" in wire else self.coming
            return replace(new, unknown=(), rules=rules, coming=coming)
        except TableError:
            raise
        except WRONG as error:
            raise TableError(f"not changes to a slot table: {error!r}") from error
