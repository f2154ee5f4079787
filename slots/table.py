"""The slot table: which group owns each slot, and which servers each group has, at one epoch.

A table never changes; a change makes a new one with a larger epoch (**epochs**), so a process can hand
its table to another part of itself without a copy or a lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

from slots import fields, ranges
from slots.beginning import Beginning
from slots.keyslots import KeySlots
from slots.rules import ComingRules, SlotRule, rules_from_wire, rules_to_wire
from slots.states import UNTOUCHED, Course, SlotState

MAXIMUM_SLOTS = 16384
CHANGING = MAXIMUM_SLOTS + 1
"""Stands for the slot of a key while a change of the slot rules that is under way changes it."""
DEFAULT_SLOTS = 1024
OFFLINE = 0
"""The group id of a slot that no group owns."""
MOST_REPLICAS = 100
"""The most replicas that can be required to have a key before it is dropped at its source."""


def host_of(address: str) -> str:
    """The host of ``host:port``, an IPv6 one without its brackets."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


class TableError(ValueError):
    """A table, or a change to one, is inconsistent."""


class SlotStateError(TableError):
    """The slot's state does not allow this change."""


_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a table raises where it is not one."""


_NEXT: Mapping[tuple[SlotState, Course], Collection[SlotState]] = {
    (SlotState.COPYING, Course.FORWARD): (SlotState.PREPARING,),
    (SlotState.PREPARING, Course.FORWARD): (SlotState.PREPARED,),
    # complete: it may be finished at once only where there is no source, so that no key has to move, or after a copy.
    (SlotState.PREPARED, Course.FORWARD): (SlotState.MIGRATING, SlotState.FINISHED),
    (SlotState.PREPARED, Course.BACK): (SlotState.MIGRATING,),
    (SlotState.MIGRATING, Course.FORWARD): (SlotState.FINISHED,),
    (SlotState.MIGRATING, Course.BACK): (SlotState.FINISHED,),
}
"""Where :meth:`Slot.advance` may go from each state and course."""


@dataclass(frozen=True, slots=True)
class Action:
    """What is happening to a slot: its state, the group it is on its way to, and whether it was turned round.

    ``min_replicas`` is how many of the target's replicas have to have a key before it is dropped at the source.

    **by-action**: ``epoch`` is the epoch of the write that began this action, turned it round, or later put another
    master at either end; 0 before the action has begun. No two actions have the same epoch. ``source_run_id`` and
    ``target_run_id`` are the run ids of the masters that the action began with. They change places when the action is
    turned round. A run id is empty if another master took over since: its data of the slot may differ from its
    predecessor's.

    ``copy`` is the id of the copy that the target has by the replication stream; empty if keys move one by one. Until
    the action is ``finished``, the target's keys are worth nothing without that copy (**level**).
    """

    state: SlotState
    target_id: int
    course: Course = Course.FORWARD
    min_replicas: int = 0
    epoch: int = 0
    source_run_id: str = ""
    target_run_id: str = ""
    copy: str = ""

    @property
    def beginning(self) -> Beginning:
        """The facts that decide which copy of a key counts when both servers have one."""
        return Beginning(self.source_run_id, self.target_run_id, self.course is Course.BACK)


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot. ``group_id`` is the source while an action runs, and :data:`OFFLINE` when nobody owns it.

    A slot is changed by its methods alone, from :meth:`assign` to :meth:`with_other_master`. Each gives the changed
    slot, and raises :class:`SlotStateError` if the slot's state does not allow the change. A slot is *in motion* while
    it has an action that is not pending. Proxies do not know of a pending action.
    """

    id: int
    group_id: int = OFFLINE
    action: Action | None = None

    @property
    def owner_id(self) -> int:
        """The group whose master runs commands for this slot."""
        if self.action is not None and self.action.state.owned_by_target:
            return self.action.target_id
        return self.group_id

    @property
    def destination_id(self) -> int:
        """The group in which the slot comes to rest, as far as is known; its present group if it has no action."""
        if self.action is None or self.action.course is Course.TURNING:
            return self.group_id
        return self.action.target_id

    def assign(self, group_id: int) -> Slot:
        """Given to a group at once. The slot has to be offline and not in motion, or at rest in that group."""
        if self.group_id != OFFLINE and (self.group_id, self.action) != (group_id, None):
            raise SlotStateError(f"slot {self.id} has an owner, and cannot be assigned to group {group_id} at once")
        self._require_no_motion("be assigned")
        return Slot(self.id, group_id)

    def take_offline(self) -> Slot:
        """Taken from its group; it must not be in motion. Its keys stay where they are."""
        self._require_no_motion("be taken offline")
        return Slot(self.id)

    def send(self, group_id: int) -> Slot:
        """Sent to a group; it must not be in motion. It becomes ``pending``, or stays at rest if that is its own
        group."""
        self._require_no_motion(f"be sent to group {group_id}")
        return Slot(self.id, self.group_id, None if group_id == self.group_id else Action(SlotState.PENDING, group_id))

    def begin(self, epoch: int, min_replicas: int, source_run_id: str, target_run_id: str, copy: str = "") -> Slot:
        """``pending`` becomes ``preparing``, or ``copying`` with a copy; the arguments are explained at
        :class:`Action`."""
        action = self._require("begin", Course.FORWARD, SlotState.PENDING)
        return Slot(
            self.id,
            self.group_id,
            replace(
                action,
                state=SlotState.COPYING if copy else SlotState.PREPARING,
                min_replicas=min_replicas,
                epoch=epoch,
                source_run_id=source_run_id,
                target_run_id=target_run_id,
                copy=copy,
            ),
        )

    def begin_anew(self) -> Slot:
        """``copying``, ``preparing``, or ``prepared`` on the way forward, becomes ``pending``, as before the action
        began."""
        states = (SlotState.COPYING, SlotState.PREPARING, SlotState.PREPARED)
        action = self._require("begin anew", Course.FORWARD, *states)
        return Slot(self.id, self.group_id, Action(SlotState.PENDING, action.target_id))

    def advance(self, state: SlotState) -> Slot:
        """One state on: ``copying``, ``preparing``, ``prepared``, ``migrating``, ``finished``.

        On the way forward ``prepared`` may become ``finished`` at once, and with a copy it may not become
        ``migrating``: keys that were deleted at the source since would be alive again. An action that is to be turned
        round does not advance.
        """
        action = self.action
        if action is None or state not in _NEXT.get((action.state, action.course), ()):
            raise self._refusal(f"become {state}")
        if action.copy and state is SlotState.MIGRATING:
            raise self._refusal(f"become {state}, having a copy")
        return Slot(self.id, self.group_id, replace(action, state=state))

    def unlock(self, epoch: int) -> Slot:
        """``prepared`` becomes what it was before the lock: ``preparing``, or ``migrating`` that is still to be turned
        round."""
        action = self._require("be unlocked", None, SlotState.PREPARED)
        if action.course is Course.BACK:
            # absent-first: its keys are on two servers, so it cannot go back to ``preparing``.
            return self._exchanged(action, SlotState.MIGRATING, Course.TURNING, epoch)
        return Slot(self.id, self.group_id, replace(action, state=SlotState.PREPARING))

    def come_to_rest(self) -> Slot:
        """``finished`` becomes at rest in the target."""
        action = self._require("come to rest", None, SlotState.FINISHED)
        return Slot(self.id, action.target_id)

    def cancel(self) -> Slot:
        """Cancelled, on the way forward: at rest in its group if no key has moved, else to be turned round."""
        action = self._require("be cancelled", Course.FORWARD, *UNTOUCHED, SlotState.MIGRATING)
        if action.state in UNTOUCHED:
            return Slot(self.id, self.group_id)
        return Slot(self.id, self.group_id, replace(action, course=Course.TURNING))

    def turn(self, epoch: int) -> Slot:
        """``migrating`` that was cancelled becomes ``prepared`` on the way back: source and target change places."""
        action = self._require("be turned round", Course.TURNING, SlotState.MIGRATING)
        return self._exchanged(action, SlotState.PREPARED, Course.BACK, epoch)

    def with_other_master(self, group_id: int, epoch: int) -> Slot:
        """The group that it leaves, or goes to, gets another master.

        **by-action**: knowledge about its keys from the time of the former master no longer counts, even if that server
        becomes master again.
        """
        action = self.action
        if action is None or action.state is SlotState.PENDING or group_id not in (self.group_id, action.target_id):
            raise self._refusal(f"have another master of group {group_id}")
        changed = replace(
            action,
            epoch=epoch,
            source_run_id="" if self.group_id == group_id else action.source_run_id,
            target_run_id="" if action.target_id == group_id else action.target_run_id,
        )
        return Slot(self.id, self.group_id, changed)

    def numbered(self, id: int) -> Slot:
        """The same change for another slot, which shares the action."""
        return Slot(id, self.group_id, self.action)

    def _exchanged(self, action: Action, state: SlotState, course: Course, epoch: int) -> Slot:
        """The slot with source and target exchanged. **by-action**: that is another action."""
        new = replace(
            action,
            state=state,
            target_id=self.group_id,
            course=course,
            epoch=epoch,
            source_run_id=action.target_run_id,
            target_run_id=action.source_run_id,
        )
        return Slot(self.id, action.target_id, new)

    def _require(self, what: str, course: Course | None, *states: SlotState) -> Action:
        """Its action; it has to be in one of these states, and on this course if one is named."""
        action = self.action
        if action is None or action.state not in states or course not in (None, action.course):
            raise self._refusal(what)
        return action

    def _require_no_motion(self, what: str) -> None:
        if self.action is not None and self.action.state is not SlotState.PENDING:
            raise self._refusal(what)

    def _refusal(self, what: str) -> SlotStateError:
        now = "at rest" if self.action is None else f"{self.action.state} ({self.action.course})"
        return SlotStateError(f"slot {self.id} is {now}, and cannot {what}")

    def to_wire(self) -> dict[str, Any]:
        """``{"id", "group_id", "action": {"state", "target_id", ...}}``; the action is ``{}`` at rest.

        Other fields of an action are left out where they have their default.
        """
        action: dict[str, Any] = {}
        if self.action is not None:
            action = {"state": str(self.action.state), "target_id": self.action.target_id}
            if self.action.course is not Course.FORWARD:
                action["course"] = str(self.action.course)
            if self.action.min_replicas:
                action["min_replicas"] = self.action.min_replicas
            if self.action.epoch:
                action["epoch"] = self.action.epoch
            if self.action.source_run_id:
                action["source_run_id"] = self.action.source_run_id
            if self.action.target_run_id:
                action["target_run_id"] = self.action.target_run_id
            if self.action.copy:
                action["copy"] = self.action.copy
        return {"id": self.id, "group_id": self.group_id, "action": action}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Slot:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError` for an unknown state, and for a field that is
        missing or is not what it has to be (:mod:`slots.fields`)."""
        try:
            raw = wire.get("action") or {}
            action = None
            if raw.get("state"):
                action = Action(
                    SlotState(raw["state"]),
                    fields.group_id(raw["target_id"]),
                    Course(raw.get("course") or Course.FORWARD),
                    # bounded: a mover waits for so many replicas.
                    min_replicas=fields.number(raw.get("min_replicas", 0), most=MOST_REPLICAS),
                    epoch=fields.number(raw.get("epoch", 0)),
                    source_run_id=fields.text(raw.get("source_run_id", "")),
                    target_run_id=fields.text(raw.get("target_run_id", "")),
                    copy=fields.text(raw.get("copy", "")),
                )
            return cls(fields.number(wire["id"]), fields.group_id(wire["group_id"]), action)
        except _WRONG as error:
            raise TableError(f"not a slot: {wire!r:.300} ({error})") from error


@dataclass(frozen=True, slots=True)
class Group:
    """A master and its replicas. ``servers`` are ``host:port``, the master first; it may be empty.

    ``datacenters`` gives the datacenter of a server by its address, if it has one. ``nodes`` gives its node, the host
    that it runs on. While it is ``locked``, another of its servers is being made its master, and proxies hold requests
    for the slots it owns (**drained**). If its master is ``lost``, proxies do not wait for the replies that it owes
    them. ``unread`` are the replicas that no proxy may read from, because they are known to differ from their master.
    """

    id: int
    servers: tuple[str, ...] = ()
    datacenters: Mapping[str, str] = field(default_factory=dict, hash=False)
    locked: bool = False
    lost: bool = False
    nodes: Mapping[str, str] = field(default_factory=dict, hash=False)
    unread: frozenset[str] = frozenset()

    @property
    def master(self) -> str | None:
        """``host:port`` of the server that takes the writes."""
        return self.servers[0] if self.servers else None

    @property
    def replicas(self) -> tuple[str, ...]:
        """``host:port`` of the servers that follow the master."""
        return self.servers[1:]

    def datacenter_of(self, server: str) -> str:
        """Name of the datacenter of a server; empty if none was given."""
        return self.datacenters.get(server, "")

    def node_of(self, server: str) -> str:
        """Name of the node of a server; the host of its address if none was given."""
        return self.nodes.get(server) or host_of(server)

    def to_wire(self) -> dict[str, Any]:
        """``{"id", "servers": ["host:port", ...], "datacenters": {"host:port": name}, "nodes", "locked", "lost"}``.

        The master comes first. ``datacenters`` and ``nodes`` are left out where no server was given one, ``locked`` and
        ``lost`` where they are false, ``unread`` (a list of addresses) where it is empty.
        """
        wire: dict[str, Any] = {"id": self.id, "servers": list(self.servers)}
        if self.datacenters:
            wire["datacenters"] = dict(self.datacenters)
        if self.nodes:
            wire["nodes"] = dict(self.nodes)
        if self.locked:
            wire["locked"] = True
        if self.lost:
            wire["lost"] = True
        if self.unread:
            wire["unread"] = sorted(self.unread)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Group:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError` for a field that is missing or is not what it has
        to be (:mod:`slots.fields`)."""
        try:
            datacenters, nodes = (fields.names(wire.get(key) or {}) for key in ("datacenters", "nodes"))
            locked, lost = (fields.flag(wire.get(name, False)) for name in ("locked", "lost"))
            servers = tuple(map(fields.server, fields.listed(wire["servers"])))
            unread = frozenset(map(fields.server, fields.listed(wire.get("unread") or [])))
            return cls(fields.group_id(wire["id"]), servers, datacenters, locked, lost, nodes, unread)
        except _WRONG as error:
            raise TableError(f"not a group: {wire!r:.300} ({error})") from error


@dataclass(frozen=True)
class SlotTable:
    """All slots and all groups as of ``epoch``, and the product's slot rules. ``slots[i].id == i``.

    ``coming`` is the change of the rules that is under way; None while there is none. ``unknown`` are the places whose
    slots may be inconsistent with the rest; by default, all.
    """

    epoch: int
    slots: tuple[Slot, ...]
    groups: Mapping[int, Group]
    unknown: InitVar[Iterable[int] | None] = None
    rules: tuple[SlotRule, ...] = ()
    coming: ComingRules | None = None

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
    def all_locked(self) -> bool:
        """Whether all slots are locked, because their rules change."""
        return self.coming is not None and self.coming.locked

    @property
    def locks(self) -> bool:
        """Whether a slot is locked, by itself, with its group or with all."""
        return (
            self.all_locked
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

    def ruled(self, epoch: int, rules: tuple[SlotRule, ...], coming: ComingRules | None = None) -> SlotTable:
        """A table of a larger ``epoch`` with these rules, and this change of them. Raises as :meth:`changed`."""
        return replace(self.changed(epoch), unknown=(), rules=rules, coming=coming)

    def to_wire(self) -> dict[str, Any]:
        """The whole table: ``{"epoch", "slots": [...], "groups": [...], "rules": [...], "coming": {...}}``.

        The slots are as :func:`slots_to_wire` has them. ``coming`` is left out where it is None.
        """
        wire = {
            "epoch": self.epoch,
            "slots": slots_to_wire(self.slots),
            "groups": [self.groups[group_id].to_wire() for group_id in sorted(self.groups)],
            "rules": rules_to_wire(self.rules),
        }
        if self.coming is not None:
            wire["coming"] = self.coming.to_wire()
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
                coming=ComingRules.from_wire(wire.get("coming")),
            )
        except TableError:
            raise
        except _WRONG as error:
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
            changes["coming"] = None if self.coming is None else self.coming.to_wire()
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
            coming = ComingRules.from_wire(wire["coming"]) if "coming" in wire else self.coming
            return replace(new, unknown=(), rules=rules, coming=coming)
        except TableError:
            raise
        except _WRONG as error:
            raise TableError(f"not changes to a slot table: {error!r}") from error


def slots_to_wire(slots: Iterable[Slot]) -> list[dict[str, Any]]:
    """Slots as messages: slots that differ only in their ids are one item, ``{"ids": "0-511,700", "group_id",
    "action"}``.


    The action is left out for slots at rest.

    As a rule, hundreds of slots change together. Clients wait while the change is stored and sent to all proxies.
    """
    alike: dict[tuple[int, Action | None], list[int]] = {}
    last: Slot | None = None
    ids: list[int] = []
    for slot in slots:
        # Neighbours mostly share one action; comparing that costs less than hashing it.
        if last is None or slot.group_id != last.group_id or slot.action is not last.action:
            ids = alike.setdefault((slot.group_id, slot.action), [])
        ids.append(slot.id)
        last = slot
    wire = []
    for (group_id, action), members in alike.items():
        described = Slot(0, group_id, action).to_wire()
        del described["id"]
        if not described["action"]:
            del described["action"]
        wire.append({"ids": ranges.show(members), **described})
    return wire


def slots_from_wire(wire: Iterable[Mapping[str, Any]]) -> list[Slot]:
    """The reverse of :func:`slots_to_wire`, in any order.

    Raises :class:`TableError`, or what reading another kind of object does, for anything else.
    """
    slots: list[Slot] = []
    for raw in wire:
        one = Slot.from_wire({**raw, "id": 0})
        slots += [one.numbered(slot) for slot in ranges.parse(raw["ids"], MAXIMUM_SLOTS)]
    return slots
