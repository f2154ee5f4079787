"""What each document of the store holds: JSON, in documents small enough for any store. The store itself says their
format (:func:`topom.store.require_format`); fields with defaults may be added within one (:mod:`topom.store.known`).

| document | holds |
|---|---|
| ``cluster`` | product, epoch, writer, term, next proxy, number of groups, what is swept, and others |
| ``starts`` | the cluster's id and key, who took the writer's place at which epochs, a proof that the store is older |
| ``groups/0000`` | groups 0 to 63 with their servers, and so on |
| ``slots/0000`` | slots 0 to 255, and so on: 64 documents of a few KB for the largest table |
| ``proxies/00000001`` | one proxy |
| ``fenced/<instance>`` | one fenced proxy, until its fence is up everywhere |
| ``fences`` | the newest fence's number, and by number which servers have fences; missing until there was one |
| ``migration`` | migration settings that an operator changed |
| ``skipped`` | slots that step aside, and why, by ranges of slots; missing until there was one |
| ``moved`` | when slots last came to rest after a move: slots that did so together, by time; missing at first |
| ``departures`` | which groups slots have left within a day, and when; missing at first |
| ``leaving`` | what is on its way out, why and since when; missing until there was something |
| ``pool`` | servers that are in no group; missing until there was one |
| ``joining`` | replicas that were not seen whole yet; missing until there was one |
| ``placement`` | whether topom places by itself, and the steps under way; missing until there was something |
| ``promotions`` | changes of masters that are not over, by group; missing until there was one |
| ``speed`` | how fast keys moved when slots last came to rest; missing at first |
| ``sentinels`` | addresses of the Sentinels; missing until an operator changed them |
| ``priorities`` | the replica-priority that servers are to have again; missing until there was one |
| ``differing`` | what is known against replicas that digest checks found to differ; missing until there was one |
| ``run_ids`` | the run id under which each server was last seen, by address; missing until one was |
| ``data`` | the id that each group's data is known by; missing until there was one |
| ``leftovers`` | which groups may have old keys of which slots, since which switch; missing until there was one |
| ``offsets/0000`` | how far masters were in their streams of writes: groups 0 to 63, and so on |
| ``protection`` | that an operator has lifted protection mode: who, when; missing while it is not lifted |
| ``pause`` | that an operator has paused topom: who, when, why; missing while none has |
| ``plan`` | the plan that was begun last: its policy, who, when; missing before the first |
| ``users`` | the version that last changed the users of clients that topom keeps; missing until one did |
| ``users/<name>`` | one of these users (:mod:`topom.proxies.keptusers`) |
| ``events/00000000`` | events, 32 a document (:mod:`topom.cluster.event_records`) |
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from slots import ranges
from slots.group import Group
from slots.messages.message import Product
from slots.rules import SlotRule, coming_from_wire, rules_from_wire
from slots.slot import MAXIMUM_SLOTS, slots_from_wire
from slots.table import SlotTable
from topom.cluster import event_records
from topom.cluster.lineage import Start
from topom.cluster.placement_run import Kept
from topom.cluster.speed import PairSpeed
from topom.cluster.state import (
    ClusterState,
    Differs,
    Fenced,
    Joining,
    LastPlan,
    Leaving,
    Lifting,
    Marked,
    Noted,
    Pause,
    PoolServer,
    Promotion,
    ProxyRecord,
)
from topom.reasons import Reason
from topom.store import Stored, StoreDamaged
from topom.store.known import made

SLOTS_A_DOCUMENT = 256
GROUPS_A_DOCUMENT = 64
MISSING: Any = object()
Addressed = TypeVar("Addressed", Joining, PoolServer)
One = TypeVar("One", Noted, Group)


def decode(stored: Stored) -> ClusterState | None:
    """The state that the documents hold; None for a store that was never written to. Raises :class:`StoreDamaged`."""
    return Reader().decode(stored)


class Reader:
    """Reads states one after the other.

    The content of an unchanged document is not built anew: it is the same object in the next state. So the cost of
    reading grows with what changes, and a comparison of states sees at once what is the same.
    """

    def __init__(self) -> None:
        self._stored: Mapping[str, bytes] = {}
        self._built: dict[str, tuple[bytes, Any]] = {}
        self._joined: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._table_read: SlotTable | None = None

    def decode(self, stored: Stored) -> ClusterState | None:
        """As :func:`decode`, the function."""
        if stored.version == 0:
            return None
        try:
            self._stored = stored.documents
            self._built = {name: built for name, built in self._built.items() if name in stored.documents}
            return self._state(stored.version)
        except Exception as error:  # anything may be odd in there; nothing may build upon it
            self._built, self._joined = {}, {}
            raise StoreDamaged(
                f"what the store holds at version {stored.version} cannot be read ({error!r}); restore it from a backup"
            ) from error

    def _state(self, version: int) -> ClusterState:
        cluster = self._one("cluster", _object)
        product = made(Product, cluster["product"])
        rules = rules_from_wire(cluster["rules"]), coming_from_wire(cluster.get("coming_rules"))
        table = self._table(cluster["epoch"], product.number_of_slots, cluster["groups"], *rules)
        return ClusterState(
            version=version,
            writer=cluster["writer"],
            term=cluster["term"],
            product=product,
            table=table,
            next_proxy_id=cluster["next_proxy_id"],
            proxies=self._together("proxies/", lambda raw: made(ProxyRecord, raw), _by_id),
            fenced=self._together("fenced/", lambda raw: made(Fenced, raw), _by_instance),
            **self._one("fences", _fences, _fences({"last": 0, "marked": {}, "came": {}})),
            migration_changes=self._one("migration", _object),
            skipped=self._one("skipped", _skipped, {}),
            moved=self._one("moved", lambda raw: _moved(raw, product.number_of_slots), {}),
            departures=self._one("departures", lambda raw: _departures(raw, product.number_of_slots), {}),
            speed=self._one("speed", lambda raw: made(PairSpeed, raw), None),
            promotions=self._one(
                "promotions", lambda raw: {int(group): made(Promotion, one) for group, one in raw.items()}, {}
            ),
            sentinels=self._one("sentinels", tuple, None),
            events=self._together(event_records.PREFIX, event_records.events_of, event_records.in_order),
            assigned=cluster["assigned"],
            offline_since=_time_or_none(cluster.get("offline_since")),
            protection_lifted=self._one("protection", lambda raw: made(Lifting, raw), None),
            pause=self._one("pause", lambda raw: made(Pause, raw), None),
            last_plan=self._one("plan", lambda raw: made(LastPlan, raw), None),
            leaving=self._one(
                "leaving", lambda raw: {one.key: one for one in (made(Leaving, each) for each in raw)}, {}
            ),
            joining=self._one("joining", lambda raw: _by_address(made(Joining, each) for each in raw), {}),
            pool=self._one("pool", lambda raw: _by_address(made(PoolServer, each) for each in raw), {}),
            run_ids=self._one("run_ids", lambda raw: {str(server): str(run_id) for server, run_id in raw.items()}, {}),
            priorities=self._one("priorities", lambda raw: {str(server): int(one) for server, one in raw.items()}, {}),
            differing=self._one("differing", _differing, {}),
            offsets=self._together(
                "offsets/", lambda raw: {int(one["group"]): made(Noted, one) for one in raw}, _all_of
            ),
            placement=self._one("placement", Kept.from_document, Kept()),
            data_ids=self._one("data", lambda raw: {int(group): str(data) for group, data in raw.items()}, {}),
            leftovers=self._one("leftovers", lambda raw: _leftovers(raw, product.number_of_slots), {}),
            **self._one("starts", _starts),
            sweeping={str(server): str(sweep) for server, sweep in cluster["sweeping"]},
            unwatched=frozenset(cluster["unwatched"]),
            users=self._together("users/", _object, lambda parts: {str(one["name"]): one for one in parts}),
            users_version=self._one("users", lambda raw: int(raw["version"]), 0),
        )

    def _table(
        self,
        epoch: int,
        number_of_slots: int,
        number_of_groups: int,
        rules: tuple[SlotRule, ...],
        coming: tuple[SlotRule, ...] | None,
    ) -> SlotTable:
        parts = [self._one(slots_name(first), slots_from_wire) for first in range(0, number_of_slots, SLOTS_A_DOCUMENT)]
        groups: Mapping[int, Group] = self._together(
            "groups/", lambda raw: {group.id: group for group in map(Group.from_wire, raw)}, _all_of
        )
        if len(groups) != number_of_groups:
            raise ValueError(f"there are {len(groups)} groups, and there should be {number_of_groups}")
        slots = self._joint(
            "slots", lambda: tuple(sorted((slot for part in parts for slot in part), key=lambda slot: slot.id)), *parts
        )
        known = self._table_read
        if (
            known is None
            or (known.epoch, known.rules, known.coming) != (epoch, rules, coming)
            or known.slots is not slots
            or known.groups is not groups
        ):
            known = self._table_read = SlotTable(epoch, slots, groups, rules=rules, coming=coming)
        return known

    def _one(self, name: str, build: Callable[[Any], Any], otherwise: Any = MISSING) -> Any:
        """What a document holds; ``otherwise`` if it is missing, or KeyError if that is not given."""
        if otherwise is not MISSING and name not in self._stored:
            return self._joint(f"no {name}", lambda: otherwise)
        value = self._stored[name]
        built = self._built.get(name)
        if built is None or built[0] != value:
            built = self._built[name] = value, build(json.loads(value))
        return built[1]

    def _parts(self, prefix: str, build: Callable[[Any], Any]) -> list[Any]:
        """The contents of the documents whose names begin with this prefix."""
        return [self._one(name, build) for name in sorted(self._stored) if name.startswith(prefix)]

    def _together(self, prefix: str, build: Callable[[Any], Any], join: Callable[[list[Any]], Any]) -> Any:
        """What :func:`join` makes of :meth:`_parts`."""
        parts = self._parts(prefix, build)
        return self._joint(prefix, lambda: join(parts), *parts)

    def _joint(self, name: str, build: Callable[[], Any], *parts: Any) -> Any:
        """What ``build`` makes of these parts; the same object as before if the parts are the same objects."""
        known = self._joined.get(name)
        if (
            known is None
            or len(known[0]) != len(parts)
            or any(a is not b for a, b in zip(known[0], parts, strict=True))
        ):
            known = self._joined[name] = parts, build()
        return known[1]


def _by_id(records: Iterable[ProxyRecord]) -> dict[int, ProxyRecord]:
    return {record.id: record for record in records}


def _by_address(entries: Iterable[Addressed]) -> dict[str, Addressed]:
    return {entry.address: entry for entry in entries}


def _by_instance(entries: Iterable[Fenced]) -> dict[str, Fenced]:
    return {entry.instance: entry for entry in entries}


def _all_of(parts: Iterable[Mapping[int, One]]) -> dict[int, One]:
    return {number: one for part in parts for number, one in part.items()}


def _moved(raw: Mapping[str, str], number_of_slots: int) -> dict[int, float]:
    return {slot: _time(at) for at, text in raw.items() for slot in ranges.parse(text, number_of_slots)}


def _departures(raw: Iterable[Mapping[str, Any]], number_of_slots: int) -> dict[int, dict[int, float]]:
    return {int(one["group"]): _moved(one["slots"], number_of_slots) for one in raw}


def _leftovers(raw: Iterable[Mapping[str, Any]], number_of_slots: int) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for one in raw:
        slots = ranges.parse(one["slots"], number_of_slots)
        found.setdefault(int(one["group"]), {}).update(dict.fromkeys(slots, int(one["switch"])))
    return found


def _differing(raw: Iterable[Mapping[str, Any]]) -> dict[str, Differs]:
    return {entry.server: entry for entry in (made(Differs, one) for one in raw)}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is no object")
    return value


def _time_or_none(value: Any) -> float | None:
    return None if value is None else _time(value)


def _time(text: str) -> float:
    if not math.isfinite(at := float(text)):
        raise ValueError(f"{text:.40} is no time")
    return at


def _fences(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the state that are about fences and in one document."""
    return {
        "last_fence": int(raw["last"]),
        "marked": {str(server): made(Marked, one) for server, one in raw["marked"].items()},
        "came": {str(server): int(number) for server, number in raw["came"].items()},
    }


def _starts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the state that are about its starts."""
    return {
        "cluster_id": str(raw["cluster"]),
        "seal_key": str(raw["key"]),
        "starts": tuple(Start(str(writer), int(epoch)) for writer, epoch in raw["starts"]),
        "older": str(raw["older"]),
    }


def slots_name(first: int) -> str:
    """The document of these slots, by the first of them."""
    return f"slots/{first // SLOTS_A_DOCUMENT:04d}"


def _skipped(document: Mapping[str, Any]) -> dict[int, Reason]:
    found = ((text, Reason.from_document(raw)) for text, raw in document.items())
    return {slot: reason for text, reason in found for slot in ranges.parse(text, MAXIMUM_SLOTS)}
