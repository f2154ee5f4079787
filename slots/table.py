"""The slot table: which group owns each slot, which servers make up each group, as of which epoch.

A table never changes; a change makes a new one with a larger epoch (**epochs**), so a process can hand
its table to another part of itself without a copy or a lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from slots import ranges
from slots.beginning import Beginning
from slots.states import UNTOUCHED, Course, SlotState

MAXIMUM_SLOTS = 16384
DEFAULT_SLOTS = 1024
OFFLINE = 0
"""The group id of a slot that no group owns."""
MOST_REPLICAS = 100
"""Most replicas that may have to have a key before it is dropped at its source."""


def host_of(address: str) -> str:
    """The host of ``host:port``, an IPv6 one without its brackets."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


class TableError(ValueError):
    """A table, or a change to one, does not hold together."""


class SlotStateError(TableError):
    """A slot is not in a state from which it may be changed so."""


_NEXT: Mapping[tuple[SlotState, Course], Collection[SlotState]] = {
    (SlotState.PREPARING, Course.FORWARD): (SlotState.PREPARED,),
    # complete: it is finished at once only where there is no source, so that no key has to move.
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

    **by-action**: ``epoch`` is that of the write that began this action, turned it round, or since then put another
    master at either end; 0 before it has begun. No two actions have the same. ``source_run_id`` and ``target_run_id``
    are those of the masters that it began with, and change places with them when it is turned round. They are empty
    for a master that took over since: what it holds of the slot is not known to be what its predecessor held.
    """

    state: SlotState
    target_id: int
    course: Course = Course.FORWARD
    min_replicas: int = 0
    epoch: int = 0
    source_run_id: str = ""
    target_run_id: str = ""

    @property
    def beginning(self) -> Beginning:
        """What tells whose copy counts of a key that is on both servers."""
        return Beginning(self.source_run_id, self.target_run_id, self.course is Course.BACK)


def _replicas(value: object) -> int:
    """The number of replicas that came in. Raises ValueError for what is none."""
    # bounded: whoever moves keys waits for so many replicas.
    if type(value) is not int or not 0 <= value <= MOST_REPLICAS:
        raise ValueError(f"min_replicas is {value!r}, and has to be from 0 to {MOST_REPLICAS}")
    return value


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot. ``group_id`` is the source while an action runs, and :data:`OFFLINE` when nobody owns it.

    A slot is changed by its methods alone, from :meth:`assign` to :meth:`with_other_master`. Each gives the slot as it
    is then, and raises :class:`SlotStateError` for one that is not in a state from which that is allowed. A slot is
    *in motion* while it has an action that is not pending; of a pending one no proxy knows.
    """

    id: int
    group_id: int = OFFLINE
    action: Action | None = None

    @property
    def owner_id(self) -> int:
        """The group at which commands for this slot run."""
        if self.action is not None and self.action.state.owned_by_target:
            return self.action.target_id
        return self.group_id

    @property
    def destination_id(self) -> int:
        """The group in which it comes to rest, as far as is known: where it is, if nothing happens to it."""
        if self.action is None or self.action.course is Course.TURNING:
            return self.group_id
        return self.action.target_id

    def assign(self, group_id: int) -> Slot:
        """Given to a group at once: one that is offline and not in motion, or at rest in that group."""
        if self.group_id != OFFLINE and (self.group_id, self.action) != (group_id, None):
            raise SlotStateError(f"slot {self.id} has an owner, and cannot be assigned to group {group_id} at once")
        self._require_no_motion("be assigned")
        return Slot(self.id, group_id)

    def take_offline(self) -> Slot:
        """Taken from its group, while it is not in motion. Its keys stay where they are."""
        self._require_no_motion("be taken offline")
        return Slot(self.id)

    def send(self, group_id: int) -> Slot:
        """Put on its way to a group, while it is not in motion: ``pending``, or at rest if that is its own group."""
        self._require_no_motion(f"be sent to group {group_id}")
        return Slot(self.id, self.group_id, None if group_id == self.group_id else Action(SlotState.PENDING, group_id))

    def begin(self, epoch: int, min_replicas: int, source_run_id: str, target_run_id: str) -> Slot:
        """``pending`` becomes ``preparing``; what it begins with is as in :class:`Action`."""
        action = self._require("begin", Course.FORWARD, SlotState.PENDING)
        return Slot(
            self.id,
            self.group_id,
            replace(
                action,
                state=SlotState.PREPARING,
                min_replicas=min_replicas,
                epoch=epoch,
                source_run_id=source_run_id,
                target_run_id=target_run_id,
            ),
        )

    def begin_anew(self) -> Slot:
        """``preparing``, or ``prepared`` on the way forward, becomes ``pending``, as before the action began."""
        action = self._require("begin anew", Course.FORWARD, SlotState.PREPARING, SlotState.PREPARED)
        return Slot(self.id, self.group_id, Action(SlotState.PENDING, action.target_id))

    def advance(self, state: SlotState) -> Slot:
        """One state on: ``preparing``, ``prepared``, ``migrating``, ``finished``.

        On the way forward ``prepared`` may become ``finished`` at once. What is to be turned round goes no further.
        """
        action = self.action
        if action is None or state not in _NEXT.get((action.state, action.course), ()):
            raise self._refusal(f"become {state}")
        return Slot(self.id, self.group_id, replace(action, state=state))

    def unlock(self, epoch: int) -> Slot:
        """``prepared`` becomes what it was before the lock: ``preparing``, or ``migrating``, to be turned round."""
        action = self._require("be unlocked", None, SlotState.PREPARED)
        if action.course is Course.BACK:
            # absent-first: its keys are on two servers, so there is no way back to ``preparing``.
            return self._exchanged(action, SlotState.MIGRATING, Course.TURNING, epoch)
        return Slot(self.id, self.group_id, replace(action, state=SlotState.PREPARING))

    def settle(self) -> Slot:
        """``finished`` becomes rest at the target."""
        action = self._require("settle", None, SlotState.FINISHED)
        return Slot(self.id, action.target_id)

    def cancel(self) -> Slot:
        """Called off, on the way forward: at rest where it was while no key has moved, else to be turned round."""
        action = self._require("be cancelled", Course.FORWARD, *UNTOUCHED, SlotState.MIGRATING)
        if action.state in UNTOUCHED:
            return Slot(self.id, self.group_id)
        return Slot(self.id, self.group_id, replace(action, course=Course.TURNING))

    def turn(self, epoch: int) -> Slot:
        """``migrating`` that was cancelled becomes ``prepared`` on the way back: source and target change places."""
        action = self._require("be turned round", Course.TURNING, SlotState.MIGRATING)
        return self._exchanged(action, SlotState.PREPARED, Course.BACK, epoch)

    def with_other_master(self, group_id: int, epoch: int) -> Slot:
        """On its way from or to a group that gets another master.

        **by-action**: what was learned while it had the former one counts no more, also if that one becomes master
        again.
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
        """Another slot to which the same happens. It shares the action."""
        return Slot(id, self.group_id, self.action)

    def _exchanged(self, action: Action, state: SlotState, course: Course, epoch: int) -> Slot:
        """Source and target have changed places. **by-action**: it is another action."""
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

    def _require(self, wish: str, course: Course | None, *states: SlotState) -> Action:
        """Its action, if it is in one of these states, on this course if one is named."""
        action = self.action
        if action is None or action.state not in states or course not in (None, action.course):
            raise self._refusal(wish)
        return action

    def _require_no_motion(self, wish: str) -> None:
        if self.action is not None and self.action.state is not SlotState.PENDING:
            raise self._refusal(wish)

    def _refusal(self, wish: str) -> SlotStateError:
        now = "at rest" if self.action is None else f"{self.action.state} ({self.action.course})"
        return SlotStateError(f"slot {self.id} is {now}, and cannot {wish}")

    def to_wire(self) -> dict[str, Any]:
        """``{"id", "group_id", "action": {"state", "target_id", ...}}``; the action is ``{}`` at rest.

        What else an action has is left out where it is what it is by default.
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
        return {"id": self.id, "group_id": self.group_id, "action": action}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Slot:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError` for an unknown state or a missing field, and for a
        number of replicas that cannot be one."""
        try:
            raw = wire.get("action") or {}
            action = None
            if raw.get("state"):
                action = Action(
                    SlotState(raw["state"]),
                    int(raw["target_id"]),
                    Course(raw.get("course") or Course.FORWARD),
                    min_replicas=_replicas(raw.get("min_replicas", 0)),
                    epoch=int(raw.get("epoch", 0)),
                    source_run_id=str(raw.get("source_run_id", "")),
                    target_run_id=str(raw.get("target_run_id", "")),
                )
            return cls(int(wire["id"]), int(wire["group_id"]), action)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TableError(f"not a slot: {wire!r} ({error})") from error


@dataclass(frozen=True, slots=True)
class Group:
    """A master and its replicas. ``servers`` are ``host:port``, the master first; it may be empty.

    ``datacenters`` has the datacenter of each server that was given one, by address, and ``nodes`` its node, the host
    that it runs on. While it is ``locked``, another of its servers is being made its master, and proxies hold requests
    for the slots it owns (**drained**). If its master is ``lost``, they do not wait for what that one owes them.
    ``unread`` are those of its replicas that nobody is to read from, whatever they say: they are known to differ from
    their master.
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
        """Name of the datacenter a server is in; empty where nobody said."""
        return self.datacenters.get(server, "")

    def node_of(self, server: str) -> str:
        """Name of the node a server is on; the host of its address where nobody said."""
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
        """The reverse of :meth:`to_wire`."""
        try:
            datacenters, nodes = (
                {str(server): str(name) for server, name in dict(wire.get(key) or {}).items()}
                for key in ("datacenters", "nodes")
            )
            locked, lost = (bool(wire.get(name, False)) for name in ("locked", "lost"))
            servers = tuple(str(server) for server in wire["servers"])
            unread = frozenset(str(server) for server in wire.get("unread") or ())
            return cls(int(wire["id"]), servers, datacenters, locked, lost, nodes, unread)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TableError(f"not a group: {wire!r} ({error})") from error


@dataclass(frozen=True)
class SlotTable:
    """All slots and all groups as of ``epoch``. ``slots[i].id == i``."""

    epoch: int
    slots: tuple[Slot, ...]
    groups: Mapping[int, Group]

    def __post_init__(self) -> None:
        count = len(self.slots)
        if not 1 <= count <= MAXIMUM_SLOTS or count & (count - 1):
            raise TableError(f"the number of slots is {count}; it has to be a power of two up to {MAXIMUM_SLOTS}")
        for index, slot in enumerate(self.slots):
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
        """The reverse index: ids of the slots each group owns (:attr:`Slot.owner_id`), ascending."""
        found: dict[int, list[int]] = {group_id: [] for group_id in self.groups}
        for slot in self.slots:
            if slot.owner_id != OFFLINE:
                found[slot.owner_id].append(slot.id)
        return {group_id: tuple(ids) for group_id, ids in found.items()}

    @cached_property
    def by_server(self) -> Mapping[str, tuple[int, ...]]:
        """The reverse index: ids of the slots whose group each server belongs to, ascending."""
        found: dict[str, list[int]] = {}
        for group in self.groups.values():
            for server in group.servers:
                found.setdefault(server, []).extend(self.by_group[group.id])
        return {server: tuple(sorted(ids)) for server, ids in found.items()}

    def master_of(self, group_id: int) -> str | None:
        """``host:port`` of the master of a group; None for :data:`OFFLINE` and for an empty group."""
        group = self.groups.get(group_id)
        return group.master if group else None

    def changed(
        self, epoch: int, slots: Iterable[Slot] = (), groups: Iterable[Group] = (), removed_groups: Iterable[int] = ()
    ) -> SlotTable:
        """A table of a larger ``epoch`` with these slots and groups in place of the old ones.

        Raises:
            TableError: when ``epoch`` does not grow, or the outcome does not hold together.
        """
        # epochs: whoever holds a newer table keeps it.
        if epoch <= self.epoch:
            raise TableError(f"epoch {epoch} is not larger than {self.epoch}")
        new_slots = list(self.slots)
        for slot in slots:
            if not 0 <= slot.id < len(new_slots):
                raise TableError(f"slot {slot.id} is not within 0-{len(new_slots) - 1}")
            new_slots[slot.id] = slot
        new_groups = dict(self.groups)
        for group in groups:
            new_groups[group.id] = group
        for group_id in removed_groups:
            new_groups.pop(group_id, None)
        return SlotTable(epoch, tuple(new_slots), new_groups)

    def to_wire(self) -> dict[str, Any]:
        """The whole table: ``{"epoch", "slots": [...], "groups": [...]}``.

        The slots are as :func:`slots_to_wire` has them.
        """
        return {
            "epoch": self.epoch,
            "slots": slots_to_wire(self.slots),
            "groups": [self.groups[group_id].to_wire() for group_id in sorted(self.groups)],
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SlotTable:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError`."""
        try:
            groups = [Group.from_wire(raw) for raw in wire["groups"]]
            slots = tuple(sorted(slots_from_wire(wire["slots"]), key=lambda slot: slot.id))
            return cls(int(wire["epoch"]), slots, {group.id: group for group in groups})
        except TableError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"not a slot table: {error!r}") from error

    def changes_since(self, older: SlotTable) -> dict[str, Any]:
        """What makes this table of ``older``: ``{"since", "epoch", "slots", "groups", "removed_groups"}``.

        The slots are as in :meth:`to_wire`.
        """
        return {
            "since": older.epoch,
            "epoch": self.epoch,
            "slots": slots_to_wire(
                new for new, old in zip(self.slots, older.slots, strict=True) if new is not old and new != old
            ),
            "groups": [group.to_wire() for group in self.groups.values() if older.groups.get(group.id) != group],
            "removed_groups": sorted(set(older.groups) - set(self.groups)),
        }

    def with_changes(self, wire: Mapping[str, Any]) -> SlotTable:
        """The table that :meth:`changes_since` describes, made from this one.

        Raises:
            TableError: when the changes are against another epoch than this table's, or do not hold together;
                ask for a whole table.
        """
        if wire.get("since") != self.epoch:
            raise TableError(f"the changes are against epoch {wire.get('since')}, this table is of epoch {self.epoch}")
        try:
            return self.changed(
                int(wire["epoch"]),
                slots_from_wire(wire["slots"]),
                [Group.from_wire(raw) for raw in wire["groups"]],
                [int(group_id) for group_id in wire["removed_groups"]],
            )
        except TableError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"not changes to a slot table: {error!r}") from error


def slots_to_wire(slots: Iterable[Slot]) -> list[dict[str, Any]]:
    """Slots, those that differ in nothing but their ids as one: ``{"ids": "0-511,700", "group_id", "action"}``.

    Hundreds of slots change together as a rule, and clients wait while the change is stored and goes round.
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
        wire.append({"ids": ranges.show(members), **described})
    return wire


def slots_from_wire(wire: Iterable[Mapping[str, Any]]) -> list[Slot]:
    """The reverse of :func:`slots_to_wire`, in any order.

    Raises :class:`TableError`, KeyError, TypeError or ValueError for what is none.
    """
    slots: list[Slot] = []
    for raw in wire:
        one = Slot.from_wire({**raw, "id": 0})
        slots += [one.numbered(slot) for slot in ranges.parse(raw["ids"], MAXIMUM_SLOTS)]
    return slots
