"""Reads and checks the output of ``codis-admin --config-dump`` of Codis 3: groups with their servers, slots, proxies.

States of actions are Codis's own words: ``pending``, ``preparing``, ``prepared``, ``migrating`` and ``finished`` for
slots, ``preparing``, ``prepared`` and ``finished`` for the promotion of a server; empty for none.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slots.address import split

NUMBER_OF_SLOTS = 1024
SLOT_FUNCTION = "crc32"
"""Codis's values, which are fixed."""
MOST_BYTES = 64 * 1024 * 1024
"""A larger file is not a dump."""

SLOT_STATES = frozenset({"", "pending", "preparing", "prepared", "migrating", "finished"})


class DumpInvalid(ValueError):
    """The file is not a dump of Codis 3. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class CodisServer:
    """A Redis server. ``syncing`` is the state of Codis's attempt to make it a replica; empty if there was none."""

    address: str
    datacenter: str
    syncing: str
    replica_reads: bool


@dataclass(frozen=True, slots=True)
class CodisGroup:
    """A group, its master first. ``promoting`` is the state of a promotion under way."""

    id: int
    servers: tuple[CodisServer, ...]
    promoting: str
    out_of_sync: bool


@dataclass(frozen=True, slots=True)
class CodisSlot:
    """A slot. ``group_id`` is 0 if it has none; ``target_id`` counts only if ``state`` is not empty."""

    id: int
    group_id: int
    state: str
    target_id: int


@dataclass(frozen=True, slots=True)
class CodisProxy:
    """A proxy: its addresses for clients and for administration."""

    address: str
    admin: str
    product: str
    datacenter: str


@dataclass(frozen=True, slots=True)
class Dump:
    """A whole dump. ``slots`` has all of them, by id; those that the file leaves out have no group."""

    groups: tuple[CodisGroup, ...]
    slots: tuple[CodisSlot, ...]
    proxies: tuple[CodisProxy, ...]
    others: tuple[str, ...]
    """Names of the other parts of the file, such as ``sentinel``."""


def load(path: Path) -> Dump:
    """The dump in a file. Raises :class:`DumpInvalid`."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DumpInvalid(f"{path} is larger than {MOST_BYTES >> 20} MiB: it is no dump of Codis")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DumpInvalid(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DumpInvalid):
            raise
        raise DumpInvalid(f"{path} is not JSON: {error}; give it what 'codis-admin --config-dump' prints") from error
    return read(document)


def read(document: Any) -> Dump:
    """The dump in a parsed document. Raises :class:`DumpInvalid`."""
    if not isinstance(document, Mapping) or not isinstance(document.get("group"), list):
        older = isinstance(document, Mapping) and "servers" in document
        convert = "; it is one of Codis 2: convert it with 'codis-admin --config-convert'" if older else ""
        raise DumpInvalid(f"this is no dump of Codis 3, which is an object with group, slots and proxy{convert}")
    try:
        groups = tuple(_group(raw) for raw in document["group"])
        given = [_slot(raw) for raw in document.get("slots") or ()]
        proxies = tuple(_proxy(raw) for raw in document.get("proxy") or ())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DumpInvalid(
            f"the dump cannot be read: {error!r}; make another one with 'codis-admin --config-dump'"
        ) from error
    _require_once("group", (group.id for group in groups))
    _require_once("server", (server.address for group in groups for server in group.servers))
    _require_once("slot", (slot.id for slot in given))
    by_id = {slot.id: slot for slot in given}
    wrong = [slot for slot in by_id if not 0 <= slot < NUMBER_OF_SLOTS]
    if wrong:
        raise DumpInvalid(f"the dump has a slot {wrong[0]}; those of Codis are 0-{NUMBER_OF_SLOTS - 1}")
    strange = [slot for slot in given if slot.state not in SLOT_STATES]
    if strange:
        raise DumpInvalid(f"slot {strange[0].id} is in state {strange[0].state!r}, which this version does not know")
    slots = tuple(by_id.get(slot, CodisSlot(slot, 0, "", 0)) for slot in range(NUMBER_OF_SLOTS))
    others = tuple(sorted(set(document) - {"group", "slots", "proxy"}))
    return Dump(tuple(sorted(groups, key=lambda group: group.id)), slots, proxies, others)


def _group(raw: Mapping[str, Any]) -> CodisGroup:
    promoting = (raw.get("promoting") or {}).get("state") or ""
    servers = tuple(_server(one) for one in raw.get("servers") or ())
    return CodisGroup(_whole(raw["id"]), servers, str(promoting), bool(raw.get("out_of_sync")))


def _server(raw: Mapping[str, Any]) -> CodisServer:
    address = raw["server"]
    if not isinstance(address, str) or not address:
        raise ValueError(f"a server without an address: {dict(raw)}")
    split(address, lowest_port=1)
    syncing = (raw.get("action") or {}).get("state") or ""
    return CodisServer(address, str(raw.get("datacenter") or ""), str(syncing), bool(raw.get("replica_group")))


def _slot(raw: Mapping[str, Any]) -> CodisSlot:
    action = raw.get("action") or {}
    state = str(action.get("state") or "")
    target = _whole(action["target_id"]) if state else 0
    return CodisSlot(_whole(raw["id"]), _whole(raw.get("group_id") or 0), state, target)


def _proxy(raw: Mapping[str, Any]) -> CodisProxy:
    named = (str(raw.get(name) or "") for name in ("proxy_addr", "admin_addr", "product_name", "datacenter"))
    return CodisProxy(*named)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


T = TypeVar("T", int, str)


def _require_once(kind: str, names: Iterable[T]) -> None:
    seen: set[T] = set()
    for name in names:
        if name in seen:
            raise DumpInvalid(f"the dump has {kind} {name} twice; make another one with 'codis-admin --config-dump'")
        seen.add(name)
