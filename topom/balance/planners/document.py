"""Plans without a cluster, from a document with groups, slots and sizes, such as a file holds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slots.group import Group
from slots.slot import OFFLINE, Slot, TableError
from topom.balance.planners.forecast import forecast
from topom.balance.planners.policies import POLICIES, UnknownPolicy, plan
from topom.balance.planners.request import MOST, PlanRequest, SlotLoad
from topom.cluster.topology import Move
from topom.errors import Invalid
from topom.migration.batches import Pair
from topom.migration.ways import AUTO, Choice, Ground, Sized, choose
from topom.placement.planner.document import POLICY as PLACEMENT

BARE = "codis"
"""The policy whose answer is only the moves, like that of Codis's own planner, for programs that read that."""


class InvalidPlanInput(Invalid):
    """A document of groups and slots that contradicts itself, or is not complete."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a document says: groups, slots by ascending id, and the known loads, bytes, keys and capacity."""

    groups: tuple[Group, ...]
    slots: tuple[Slot, ...]
    known: PlanRequest


def plan_document(policy: str, document: Any, options: PlanRequest | None = None) -> dict[str, Any]:
    """The answer of :func:`answer_document` alone."""
    return answer_document(policy, document, options)[0]


def answer_document(
    policy: str, document: Any, options: PlanRequest | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A plan without a cluster, for documents read from a file.

    Args:
        policy: the name of the policy.
        document: as :func:`read` takes it.
        options: tolerance, limits, and groups to drain. Loads, bytes, keys and capacity always come from the document.

    Returns:
        ``{"moves": [{"slot", "from", "to"}...]}``, where ``from`` is 0 for a slot that was offline, and the plan's
        reasons. A policy other than codis adds ``"reasons"``, ``"cost"`` and ``"groups"``
        (:meth:`topom.balance.planners.forecast.Forecast.to_wire`) to the answer.

    Raises:
        InvalidPlanInput: the document is wrong; a sentence says what.
        UnknownPolicy, InvalidPlanRequest, NoGroup: as :func:`topom.balance.planners.plan`.
    """
    if policy not in POLICIES:
        raise UnknownPolicy(f"there is no policy {policy!r}; known are: {', '.join(sorted([*POLICIES, PLACEMENT]))}")
    given = read(document)
    known = given.known
    request = replace(options or known, loads=known.loads, bytes=known.bytes, keys=known.keys, capacity=known.capacity)
    planned = plan(policy, given.groups, given.slots, request)
    answer: dict[str, Any] = {"moves": [move.to_wire() for move in planned.moves]}
    if policy != BARE:
        ways = _ways(given, planned.moves)
        cost = forecast(given.groups, given.slots, planned.moves, request, ways=ways).to_wire()
        answer |= {"reasons": list(planned.reasons), "groups": cost.pop("groups"), "cost": cost}
    return answer, planned.reasons


def _ways(given: Document, moves: Iterable[Move]) -> dict[Pair, Choice]:
    """How the slots of each pair would move by themselves, as far as a document tells; no server is looked at."""
    by_pair: dict[Pair, list[int]] = {}
    for move in moves:
        if move.source != OFFLINE:
            by_pair.setdefault((move.source, move.target), []).append(move.slot)
    held: dict[int, list[int]] = {}
    for slot in given.slots:
        held.setdefault(slot.group_id, []).append(slot.id)
    sizes, keys = given.known.bytes, given.known.keys

    def counted(slots: Iterable[int]) -> tuple[float, float]:
        listed = list(slots)
        return sum(keys.get(slot, 0) for slot in listed), sum(sizes.get(slot, 0) for slot in listed)

    return {
        (source, target): choose(
            Ground.of(0.0, Sized(*counted(slots), *counted(held[source])) if keys and sizes else None), AUTO
        )
        for (source, target), slots in by_pair.items()
    }


def read(document: Any) -> Document:
    """What a document says.

    Args:
        document: ``{"groups": [{"id", "servers": [...]}...], "slots": [{"id", "group_id", "action"}...]}``; ``action``
            may be missing or empty. The number of slots is the number listed: ids 0 to n-1, each once. Optional are
            ``"sizes": {"slot": bytes}``, ``"keys": {"slot": number}`` and ``"loads"``, a second: ``{"slot": [requests,
            bytes in, bytes out]}``, in which a missing slot counts as empty, and ``"capacity": {"group": weight}``.

    Raises:
        InvalidPlanInput: the document is wrong; a sentence says what.
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
    slot_ids, group_ids = {slot.id for slot in slots}, {group.id for group in groups}
    known = PlanRequest(
        bytes=_counts(document, "sizes", "bytes", slot_ids),
        keys=_counts(document, "keys", "keys", slot_ids),
        capacity=_weights(document, group_ids),
        loads=_loads(document, slot_ids),
    )
    return Document(tuple(groups), tuple(slots), known)


def _listed(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = document.get(name)
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        raise InvalidPlanInput(f'"{name}" of the input has to be a list of objects')
    return listed


def _numbers(document: Mapping[str, Any], name: str, thing: str, known: set[int]) -> dict[int, int | float]:
    """An optional object of numbers by the id of a slot or a group."""
    return _checked(document.get(name, {}), name, thing, known)


def _checked(raw: Any, name: str, thing: str, known: set[int]) -> dict[int, int | float]:
    if not isinstance(raw, Mapping):
        raise InvalidPlanInput(f'"{name}" of the input has to be an object, with numbers by the id of a {thing}')
    found: dict[int, int | float] = {}
    for key, value in raw.items():
        text = str(key)
        # Numbers are as JSON writes them: "07" and "7" would be the same slot twice.
        if not re.fullmatch("0|[1-9][0-9]{0,8}", text):
            raise InvalidPlanInput(f'"{name}" names {key!r}, which is no {thing} id')
        if int(text) not in known:
            raise InvalidPlanInput(f'"{name}" names {thing} {text}, which is not listed under {thing}s')
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidPlanInput(f'"{name}" of {thing} {text} is {value!r}; it has to be a number')
        if not -MOST <= value <= MOST:
            raise InvalidPlanInput(f'"{name}" of {thing} {text} is {value}; it has to be a number below 2^63')
        found[int(text)] = value
    return found


def _counts(document: Mapping[str, Any], name: str, unit: str, known: set[int]) -> dict[int, int]:
    counts = {}
    for slot, value in _numbers(document, name, "slot", known).items():
        if value < 0 or value != int(value):
            raise InvalidPlanInput(f'"{name}" of slot {slot} is {value}; it has to be a whole number of {unit}, or 0')
        counts[slot] = int(value)
    return counts


def _weights(document: Mapping[str, Any], known: set[int]) -> dict[int, float]:
    weights = {}
    for group_id, value in _numbers(document, "capacity", "group", known).items():
        if value <= 0:
            raise InvalidPlanInput(
                f'"capacity" of group {group_id} is {value}; it has to be above 0. '
                "A group that is to have nothing is drained"
            )
        weights[group_id] = float(value)
    return weights


def _loads(document: Mapping[str, Any], known: set[int]) -> dict[int, SlotLoad]:
    raw = document.get("loads", {})
    if not isinstance(raw, Mapping) or not all(isinstance(parts, list) and len(parts) == 3 for parts in raw.values()):
        raise InvalidPlanInput(
            '"loads" of the input has to be an object, with [requests, bytes in, bytes out] a second '
            "by the id of a slot"
        )
    columns = [
        _checked({slot: parts[place] for slot, parts in raw.items()}, "loads", "slot", known) for place in range(3)
    ]
    if any(value < 0 for column in columns for value in column.values()):
        raise InvalidPlanInput('"loads" of a slot has to be three numbers, each 0 or more')
    return {slot: SlotLoad(*(column[slot] for column in columns)) for slot in columns[0]}


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
