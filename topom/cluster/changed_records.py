"""Which documents a store gets when the state changes: those that hold something else from then on.

:mod:`topom.cluster.records` says what each document holds, and reads them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

from slots import ranges
from slots.group import Group
from slots.rules import rules_to_wire
from slots.slot import slots_to_wire
from topom.cluster import event_records
from topom.cluster.placement_run import NOTHING_KEPT
from topom.cluster.records import GROUPS_A_DOCUMENT, SLOTS_A_DOCUMENT, slots_name
from topom.cluster.state import ClusterState, Noted
from topom.reasons import Reason

One = TypeVar("One", Noted, Group)
Documents = dict[str, bytes | None]


class Part(NamedTuple):
    """A part of the state that has a document of its own, which is missing while nothing else was ever in it."""

    document: str
    of: Callable[[ClusterState], Any]
    nothing: Any
    content: Callable[[Any], Any]
    """What the document holds. If the part is None, there is no document."""


def _entries(by_key: Mapping[Any, Any]) -> list[dict[str, Any]]:
    return [asdict(entry) for entry in by_key.values()]


def _leftovers(by_group: Mapping[int, Mapping[int, int]]) -> list[dict[str, Any]]:
    return [
        {"group": group, "switch": int(switch), "slots": slots}
        for group, left in by_group.items()
        for switch, slots in _together(left).items()
    ]


def _promotions(by_group: Mapping[int, Any]) -> dict[str, Any]:
    return {str(group): asdict(entry) for group, entry in by_group.items()}


def _by_reason(skipped: Mapping[int, Reason]) -> dict[str, Any]:
    """Why slots were skipped, by ranges of slots with one reason: such slots are many, and most share their reason."""
    together: dict[Reason, list[int]] = {}
    for slot, reason in skipped.items():
        together.setdefault(reason, []).append(slot)
    return {ranges.show(sorted(slots)): reason.to_document() for reason, slots in together.items()}


PARTS = (
    Part("skipped", lambda state: state.skipped, {}, _by_reason),
    Part("leaving", lambda state: state.leaving, {}, _entries),
    Part("joining", lambda state: state.joining, {}, _entries),
    Part("pool", lambda state: state.pool, {}, _entries),
    Part("placement", lambda state: state.placement, NOTHING_KEPT, lambda kept: kept.to_document()),
    Part("promotions", lambda state: state.promotions, {}, _promotions),
    Part("priorities", lambda state: state.priorities, {}, dict),
    Part("run_ids", lambda state: state.run_ids, {}, dict),
    Part("differing", lambda state: state.differing, {}, _entries),
    Part("data", lambda state: state.data_ids, {}, dict),
    Part("leftovers", lambda state: state.leftovers, {}, _leftovers),
    Part("protection", lambda state: state.protection_lifted, None, asdict),
    Part("pause", lambda state: state.pause, None, asdict),
    Part("plan", lambda state: state.last_plan, None, asdict),
)


def differences(old: ClusterState | None, new: ClusterState) -> Documents:
    """The documents to put (or, if None, to delete) so that a store that holds ``old`` holds ``new``."""
    documents: Documents = {"cluster": _encode(_cluster(new))}
    _differ_in_origin(documents, old, new)
    _differ_in_table(documents, old, new)
    for part in PARTS:
        value = part.of(new)
        if value != (part.nothing if old is None else part.of(old)):
            documents[part.document] = None if value is None else _encode(part.content(value))
    _differ_in_moves(documents, old, new)
    if new.sentinels is not None and (old is None or old.sentinels != new.sentinels):
        documents["sentinels"] = _encode(list(new.sentinels))
    fences = new.last_fence, new.marked, new.came
    if fences != ((0, {}, {}) if old is None else (old.last_fence, old.marked, old.came)):
        marked = {server: asdict(one) for server, one in new.marked.items()}
        documents["fences"] = _encode({"last": new.last_fence, "marked": marked, "came": dict(new.came)})
    if old is None or old.offsets is not new.offsets:
        _differ_in_parts(documents, "offsets", {} if old is None else old.offsets, new.offsets, _offset)
    _differ_in_users(documents, old, new)
    documents |= event_records.differences(old.events if old else (), new.events)
    _differ(documents, "proxies/{:08d}", {} if old is None else old.proxies, new.proxies)
    _differ(documents, "fenced/{}", {} if old is None else old.fenced, new.fenced)
    return documents


def _cluster(new: ClusterState) -> dict[str, Any]:
    # A topom that does not know of changes of the rules begins with the old ones, as any other does.
    coming = {} if new.table.coming is None else {"coming_rules": rules_to_wire(new.table.coming)}
    return {
        "product": new.product.model_dump(),
        "epoch": new.table.epoch,
        "writer": new.writer,
        "term": new.term,
        "next_proxy_id": new.next_proxy_id,
        "assigned": new.assigned,
        "offline_since": new.offline_since,
        "groups": len(new.table.groups),
        "rules": rules_to_wire(new.table.rules),
        **coming,
        "unwatched": sorted(new.unwatched),
        "sweeping": sorted(new.sweeping.items()),
    }


def _differ_in_origin(documents: Documents, old: ClusterState | None, new: ClusterState) -> None:
    if old is None or (old.cluster_id, old.seal_key, old.starts, old.older) != (
        new.cluster_id,
        new.seal_key,
        new.starts,
        new.older,
    ):
        starts = [[one.writer, one.epoch] for one in new.starts]
        documents["starts"] = _encode(
            {"cluster": new.cluster_id, "key": new.seal_key, "starts": starts, "older": new.older}
        )


def _differ_in_table(documents: Documents, old: ClusterState | None, new: ClusterState) -> None:
    if old is None or old.table.groups != new.table.groups:
        _differ_in_parts(documents, "groups", {} if old is None else old.table.groups, new.table.groups, _group)
    for first in range(0, len(new.table.slots), SLOTS_A_DOCUMENT):
        chunk = new.table.slots[first : first + SLOTS_A_DOCUMENT]
        if old is None or old.table.slots[first : first + SLOTS_A_DOCUMENT] != chunk:
            documents[slots_name(first)] = _encode(slots_to_wire(chunk))


def _differ_in_moves(documents: Documents, old: ClusterState | None, new: ClusterState) -> None:
    if old is None or old.migration_changes != new.migration_changes:
        documents["migration"] = _encode(dict(new.migration_changes))
    if (old is None or old.moved is not new.moved) and new.moved:
        documents["moved"] = _encode(_together(new.moved))
    if (old is None or old.departures is not new.departures) and new.departures:
        documents["departures"] = _encode(
            [{"group": group, "slots": _together(left)} for group, left in new.departures.items()]
        )
    if new.speed is not None and (old is None or old.speed != new.speed):
        documents["speed"] = _encode(asdict(new.speed))


def _differ_in_users(documents: Documents, old: ClusterState | None, new: ClusterState) -> None:
    if new.users_version != (0 if old is None else old.users_version):
        before = {} if old is None else old.users
        documents["users"] = _encode({"version": new.users_version})
        documents |= {f"users/{name}": None for name in before if name not in new.users}
        documents |= {
            f"users/{name}": _encode(dict(entry)) for name, entry in new.users.items() if before.get(name) != entry
        }


def _differ(documents: Documents, name: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> None:
    if old is new:
        return
    for key in old.keys() - new.keys():
        documents[name.format(key)] = None
    for key, value in new.items():
        if (before := old.get(key)) is not value and before != value:
            documents[name.format(key)] = _encode(asdict(value))


def _differ_in_parts(
    documents: Documents,
    name: str,
    old: Mapping[int, One],
    new: Mapping[int, One],
    encode: Callable[[int, One], dict[str, Any]],
) -> None:
    """As :func:`_differ`, for what is kept by group, :data:`GROUPS_A_DOCUMENT` of them in one document."""
    changed = {group for group in old.keys() | new.keys() if old.get(group) != new.get(group)}
    parts: dict[int, list[dict[str, Any]]] = {group // GROUPS_A_DOCUMENT: [] for group in changed}
    for group, value in sorted(new.items()):
        if (part := parts.get(group // GROUPS_A_DOCUMENT)) is not None:
            part.append(encode(group, value))
    for number, part in parts.items():
        documents[f"{name}/{number:04d}"] = _encode(part) if part else None


def _group(number: int, group: Group) -> dict[str, Any]:
    return group.to_wire()


def _offset(number: int, noted: Noted) -> dict[str, Any]:
    return {"group": number, **asdict(noted)}


def _together(values: Mapping[int, float]) -> dict[str, str]:
    """By value, the slots that have it."""
    together: dict[float, list[int]] = {}
    for slot, value in values.items():
        together.setdefault(value, []).append(slot)
    return {repr(value): ranges.show(sorted(slots)) for value, slots in together.items()}


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_sorted_set).encode()


def _sorted_set(value: Any) -> list[str]:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")
