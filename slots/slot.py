"""One slot: the group that owns it, and the action that moves it.

A slot never changes; each change makes a new one, and is refused where the slot's state does not allow it
(**by-action**, **level**).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slots import fields, ranges
from slots.beginning import Beginning
from slots.states import UNTOUCHED, Course, SlotState

MAXIMUM_SLOTS = 16384
CHANGING = MAXIMUM_SLOTS + 1
"""Stands for the slot of a key while a change of the slot rules that is under way changes it."""
OFFLINE = 0
"""The group id of a slot that no group owns."""
MOST_REPLICAS = 100
"""The most replicas that can be required to have a key before it is dropped at its source."""


class TableError(ValueError):
    """A table, or a change to one, is inconsistent."""


class SlotStateError(TableError):
    """The slot's state does not allow this change."""


WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
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
        except WRONG as error:
            raise TableError(f"not a slot: {wire!r:.300} ({error})") from error


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
