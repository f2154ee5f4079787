"""Planners: which slots should move where, by the name of a policy. Pure functions, deterministic.

To add a policy, write a module with a function of :data:`Planner`'s shape and name it in :data:`POLICIES`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slots.table import OFFLINE, Group, Slot, TableError
from topom.errors import Conflict, Invalid
from topom.planners import codis
from topom.topology import Move

Planner = Callable[[Sequence[Group], Sequence[Slot]], list[Move]]
POLICIES: Mapping[str, Planner] = {"codis": codis.plan}


class UnknownPolicy(Invalid):
    """No planner of that name."""


class InvalidPlanInput(Invalid):
    """A document of groups and slots that does not hold together."""


class NoGroup(Conflict):
    """There is no group with a server that could own a slot."""


def plan(policy: str, groups: Iterable[Group], slots: Iterable[Slot]) -> list[Move]:
    """The moves that ``policy`` asks for, by ascending slot. Slots in an action are never among them.

    Raises:
        UnknownPolicy: naming the known ones.
        NoGroup: when no group has a server.
    """
    planner = POLICIES.get(policy)
    if planner is None:
        raise UnknownPolicy(f"there is no policy {policy!r}; known are: {', '.join(sorted(POLICIES))}")
    usable = sorted((group for group in groups if group.servers), key=lambda group: group.id)
    if not usable:
        raise NoGroup("no group has a server, so no slot can be placed; add a group with a server first")
    return sorted(planner(usable, list(slots)), key=lambda move: move.slot)


def plan_document(policy: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A plan without a cluster, for documents read from a file.

    Args:
        document: ``{"groups": [{"id", "servers": [...]}...], "slots": [{"id", "group_id", "action"}...]}``;
            ``action`` may be missing or empty. The number of slots is the number listed: ids 0 to n-1, each once.

    Returns:
        ``{"moves": [{"slot", "from", "to"}...]}``; ``from`` is 0 for a slot that was offline.

    Raises:
        InvalidPlanInput: with a sentence that says what is wrong with the document.
        UnknownPolicy, NoGroup: as :func:`plan`.
    """
    if not isinstance(document, Mapping):
        raise InvalidPlanInput('the input is not an object with "groups" and "slots"')
    try:
        groups = [Group.from_wire(raw) for raw in _listed(document, "groups")]
        slots = [Slot.from_wire(raw) for raw in _listed(document, "slots")]
    except TableError as error:
        raise InvalidPlanInput(str(error)) from error
    _check(groups, slots)
    slots.sort(key=lambda slot: slot.id)
    return {"moves": [move.to_wire() for move in plan(policy, groups, slots)]}


def _listed(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = document.get(name)
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        raise InvalidPlanInput(f'"{name}" of the input has to be a list of objects')
    return listed


def _check(groups: Sequence[Group], slots: Sequence[Slot]) -> None:
    known = {group.id for group in groups}
    if len(known) != len(groups):
        raise InvalidPlanInput("a group id is listed more than once")
    if any(group_id <= OFFLINE for group_id in known):
        raise InvalidPlanInput("group ids have to be 1 or larger; 0 stands for offline")
    if not slots:
        raise InvalidPlanInput("no slots are listed; list every slot with its id, from 0 on")
    ids = {slot.id for slot in slots}
    if len(ids) != len(slots):
        raise InvalidPlanInput("a slot id is listed more than once")
    missing = sorted(set(range(len(slots))) - ids)
    if missing:
        raise InvalidPlanInput(
            f"slot {missing[0]} is not listed, though {len(slots)} slots are; list every slot, from 0 to the last"
        )
    for slot in slots:
        named = [slot.group_id] if slot.group_id != OFFLINE else []
        if slot.action is not None:
            named.append(slot.action.target_id)
        for group_id in named:
            if group_id not in known:
                raise InvalidPlanInput(f"slot {slot.id} names group {group_id}, which is not listed under groups")
