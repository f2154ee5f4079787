"""Which document of the store holds what, and how: JSON, in documents small enough for any store.

| document | holds |
|---|---|
| ``cluster`` | product, epoch, who wrote it and its term, next proxy, if slots had a group, unwatched servers, sweeps |
| ``groups`` | every group with its servers |
| ``slots/0000`` | slots 0 to 255, and so on: 64 documents of a few KB for the largest table |
| ``proxies/00000001`` | one proxy |
| ``fenced/<instance>`` | one fenced proxy, until its fence is up everywhere |
| ``fences`` | the newest fence's number, and by number which servers have fences; missing until there was one |
| ``migration`` | migration settings that an operator changed |
| ``skipped`` | slots that step aside, and why, by slot; missing until there was one |
| ``moved`` | when slots last came to rest after a move: slots that did so together, by time; missing at first |
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
| ``offsets/0000`` | how far masters were in their streams of writes: groups 0 to 63, and so on |
| ``protection`` | that an operator has lifted protection mode: who, when; missing while it is not lifted |
| ``events/00000000`` | events, 32 a document (:mod:`topom.cluster.event_records`) |
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slots import ranges
from slots.table import Group, Slot, SlotTable, slots_from_wire, slots_to_wire
from topom.cluster import event_records
from topom.cluster.placement_run import Kept
from topom.cluster.speed import PairSpeed
from topom.cluster.state import (
    ClusterState,
    Differs,
    Fenced,
    Joining,
    Leaving,
    Lifting,
    Marked,
    Noted,
    PoolServer,
    Product,
    Promotion,
    ProxyRecord,
)
from topom.store import Stored, StoreDamaged
from topom.store.known import made

SLOTS_A_DOCUMENT = 256
OFFSETS_A_DOCUMENT = 64


def decode(stored: Stored) -> ClusterState | None:
    """What the documents say; None for a store never written to. Raises :class:`StoreDamaged`."""
    if stored.version == 0:
        return None
    try:
        documents = {name: json.loads(value) for name, value in stored.documents.items()}
        cluster = documents["cluster"]
        product = made(Product, cluster["product"])
        slots: list[Slot] = []
        for first in range(0, product.number_of_slots, SLOTS_A_DOCUMENT):
            slots += slots_from_wire(documents[_slots_name(first)])
        slots.sort(key=lambda slot: slot.id)
        groups = [Group.from_wire(raw) for raw in documents["groups"]]
        proxies = [made(ProxyRecord, raw) for name, raw in documents.items() if name.startswith("proxies/")]
        fences = _fences(documents, {server for group in groups for server in group.servers})
        state = ClusterState(
            version=stored.version,
            writer=cluster["writer"],
            term=cluster.get("term", 0),
            product=product,
            table=SlotTable(cluster["epoch"], tuple(slots), {group.id: group for group in groups}),
            next_proxy_id=cluster["next_proxy_id"],
            proxies={proxy.id: proxy for proxy in proxies},
            **fences,
            migration_changes=_object(documents["migration"]),
            skipped={int(slot): str(reason) for slot, reason in documents.get("skipped", {}).items()},
            moved={
                slot: _time(at)
                for at, text in documents.get("moved", {}).items()
                for slot in ranges.parse(text, product.number_of_slots)
            },
            speed=made(PairSpeed, documents["speed"]) if "speed" in documents else None,
            promotions={int(group): made(Promotion, raw) for group, raw in documents.get("promotions", {}).items()},
            sentinels=tuple(documents["sentinels"]) if "sentinels" in documents else None,
            events=event_records.decode(documents),
            assigned=cluster.get("assigned", False),
            protection_lifted=made(Lifting, documents["protection"]) if "protection" in documents else None,
            leaving={entry.key: entry for entry in (made(Leaving, raw) for raw in documents.get("leaving", []))},
            joining={entry.address: entry for entry in (made(Joining, raw) for raw in documents.get("joining", []))},
            pool={entry.address: entry for entry in (made(PoolServer, raw) for raw in documents.get("pool", []))},
            run_ids={str(server): str(run_id) for server, run_id in documents.get("run_ids", {}).items()},
            priorities={str(server): int(value) for server, value in documents.get("priorities", {}).items()},
            # What an earlier version kept of replicas that it had filled says nothing against them.
            differing={
                entry.server: entry
                for entry in (
                    made(Differs, raw) for raw in documents.get("differing", []) if raw.get("stage") != "filled"
                )
            },
            offsets={
                int(raw["group"]): made(Noted, raw)
                for name, found in documents.items()
                if name.startswith("offsets/")
                for raw in found
            },
            placement=Kept.from_document(documents["placement"]) if "placement" in documents else Kept(),
            # A version that does not keep these may have taken slots offline.
            data_ids={int(group): str(data) for group, data in documents.get("data", {}).items()}
            if "sweeping" in cluster
            else {},
            sweeping={str(server): str(sweep) for server, sweep in cluster.get("sweeping", ())},
            # A version that does not keep it, and may have written last, leaves it out of what it writes each time.
            unwatched=frozenset(cluster.get("unwatched", [server for group in groups for server in group.servers])),
        )
        # Stores of versions that did not keep it say it by their tables.
        return state if "assigned" in cluster else state.with_assigned()
    except Exception as error:  # whatever is odd in there: nothing may be built upon it
        raise StoreDamaged(
            f"what the store holds at version {stored.version} cannot be read ({error!r}); restore it from a backup"
        ) from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is no object")
    return value


def _time(text: str) -> float:
    if not math.isfinite(at := float(text)):
        raise ValueError(f"{text:.40} is no time")
    return at


def differences(old: ClusterState | None, new: ClusterState) -> dict[str, bytes | None]:
    """The documents to put (or, if None, to delete) so that a store that holds ``old`` holds ``new``."""
    documents: dict[str, bytes | None] = {
        "cluster": _encode(
            {
                "product": asdict(new.product),
                "epoch": new.table.epoch,
                "writer": new.writer,
                "term": new.term,
                "next_proxy_id": new.next_proxy_id,
                "assigned": new.assigned,
                "unwatched": sorted(new.unwatched),
                "sweeping": sorted(new.sweeping.items()),
            }
        )
    }
    if old is None or old.table.groups != new.table.groups:
        documents["groups"] = _encode([group.to_wire() for group in new.table.groups.values()])
    for first in range(0, len(new.table.slots), SLOTS_A_DOCUMENT):
        chunk = new.table.slots[first : first + SLOTS_A_DOCUMENT]
        if old is None or old.table.slots[first : first + SLOTS_A_DOCUMENT] != chunk:
            documents[_slots_name(first)] = _encode(slots_to_wire(chunk))
    if old is None or old.migration_changes != new.migration_changes:
        documents["migration"] = _encode(dict(new.migration_changes))
    if new.skipped != ({} if old is None else old.skipped):
        documents["skipped"] = _encode(dict(new.skipped))
    if (old is None or old.moved is not new.moved) and new.moved:
        documents["moved"] = _encode(_by_time(new.moved))
    if new.leaving != ({} if old is None else old.leaving):
        documents["leaving"] = _encode([asdict(entry) for entry in new.leaving.values()])
    if new.joining != ({} if old is None else old.joining):
        documents["joining"] = _encode([asdict(entry) for entry in new.joining.values()])
    if new.pool != ({} if old is None else old.pool):
        documents["pool"] = _encode([asdict(entry) for entry in new.pool.values()])
    if new.placement != (Kept() if old is None else old.placement):
        documents["placement"] = _encode(new.placement.to_document())
    if new.promotions != ({} if old is None else old.promotions):
        documents["promotions"] = _encode({str(group): asdict(entry) for group, entry in new.promotions.items()})
    if new.speed is not None and (old is None or old.speed != new.speed):
        documents["speed"] = _encode(asdict(new.speed))
    if new.sentinels is not None and (old is None or old.sentinels != new.sentinels):
        documents["sentinels"] = _encode(list(new.sentinels))
    if new.priorities != ({} if old is None else old.priorities):
        documents["priorities"] = _encode(dict(new.priorities))
    if new.run_ids != ({} if old is None else old.run_ids):
        documents["run_ids"] = _encode(dict(new.run_ids))
    if new.differing != ({} if old is None else old.differing):
        documents["differing"] = _encode([asdict(entry) for entry in new.differing.values()])
    if new.data_ids != ({} if old is None else old.data_ids):
        documents["data"] = _encode(dict(new.data_ids))
    if new.protection_lifted != (None if old is None else old.protection_lifted):
        documents["protection"] = _encode(asdict(new.protection_lifted)) if new.protection_lifted else None
    fences = new.last_fence, new.marked, new.came
    if fences != ((0, {}, {}) if old is None else (old.last_fence, old.marked, old.came)):
        marked = {server: asdict(one) for server, one in new.marked.items()}
        documents["fences"] = _encode({"last": new.last_fence, "marked": marked, "came": dict(new.came)})
    if old is None or old.offsets is not new.offsets:
        before, after = _offsets({} if old is None else old.offsets), _offsets(new.offsets)
        changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        documents |= {name: _encode(after[name]) if name in after else None for name in changed}
    documents |= event_records.differences(old.events if old else (), new.events)
    _differ(documents, "proxies/{:08d}", {} if old is None else old.proxies, new.proxies)
    _differ(documents, "fenced/{}", {} if old is None else old.fenced, new.fenced)
    return documents


def _fences(documents: Mapping[str, Any], servers: set[str]) -> dict[str, Any]:
    """The fields of the state that are about fences."""
    found = [raw for name, raw in documents.items() if name.startswith("fenced/")]
    if any("number" not in raw for raw in found):
        # A version before this one has stored at which servers each is up, and not at which process of theirs. It is
        # put up again; who stands down is not sure to watch anybody.
        unfinished = sorted((raw for raw in found if not servers <= {*raw["at"]}), key=lambda raw: int(raw["proxy_id"]))
        entries = [
            Fenced(raw["instance"], raw["proxy_id"], number, raw.get("stand_down"))
            for number, raw in enumerate(unfinished, 1)
        ]
        last, marked, came = len(entries), {}, dict.fromkeys(servers, len(entries))
    else:
        entries = [made(Fenced, raw) for raw in found]
        said = documents.get("fences", {"last": 0, "marked": {}, "came": {}})
        last, came = int(said["last"]), {str(server): int(number) for server, number in said["came"].items()}
        marked = {str(server): made(Marked, one) for server, one in said["marked"].items()}
    return {
        "fenced": {entry.instance: entry for entry in entries},
        "last_fence": last,
        "marked": marked,
        "came": came,
    }


def _differ(documents: dict[str, bytes | None], name: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> None:
    if old is new:
        return
    for key in old.keys() - new.keys():
        documents[name.format(key)] = None
    for key, value in new.items():
        if old.get(key) != value:
            documents[name.format(key)] = _encode(asdict(value))


def _offsets(offsets: Mapping[int, Noted]) -> dict[str, list[dict[str, Any]]]:
    """The documents that hold them, by name."""
    documents: dict[str, list[dict[str, Any]]] = {}
    for number, noted in sorted(offsets.items()):
        name = f"offsets/{number // OFFSETS_A_DOCUMENT:04d}"
        documents.setdefault(name, []).append({"group": number, **asdict(noted)})
    return documents


def _by_time(moved: Mapping[int, float]) -> dict[str, str]:
    together: dict[float, list[int]] = {}
    for slot, at in moved.items():
        together.setdefault(at, []).append(slot)
    return {repr(at): ranges.show(sorted(slots)) for at, slots in together.items()}


def _slots_name(first: int) -> str:
    return f"slots/{first // SLOTS_A_DOCUMENT:04d}"


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_sorted_set).encode()


def _sorted_set(value: Any) -> list[str]:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")
