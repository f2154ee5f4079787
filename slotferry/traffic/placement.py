"""Checks where the keys are: each has to be on exactly one server, the right one by the slot table.

The servers are asked directly, not through the proxies, and only while no slot moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from slotferry.traffic.content import PREFIX, index_of, name_of
from slotferry.traffic.keys import Keys
from slots.keyslots import KeySlots
from slots.rules import SlotRule, rules_from_wire, rules_to_wire

_SCAN_COUNT = 1000
_KEPT_TEXTS = 10


@dataclass(frozen=True)
class Layout:
    """Which server owns which slot."""

    function: str
    owners: Sequence[str]
    """For each slot, ``host:port`` of the master that owns it; empty for an offline slot."""
    servers: Sequence[str]
    """All masters to check."""
    password: str | None = None
    rules: tuple[SlotRule, ...] = ()

    @classmethod
    def from_api(cls, status: Mapping[str, Any], slots: Mapping[str, Any], password: str | None = None) -> "Layout":
        """From topom's answers to ``/status`` and ``/slots``."""
        masters = {g["id"]: g["servers"][0]["address"] for g in status["groups"] if g["servers"]}
        owners = [masters.get(slot["group_id"], "") for slot in slots["slots"]]
        rules = rules_from_wire(status["slot_rules"])
        return cls(status["slot_function"], owners, sorted(masters.values()), password, rules)

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "function": self.function,
            "owners": list(self.owners),
            "servers": list(self.servers),
            "password": self.password,
            "rules": rules_to_wire(self.rules),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Layout":
        """The reverse of :meth:`to_wire`."""
        rules = rules_from_wire(wire["rules"])
        return cls(wire["function"], wire["owners"], wire["servers"], wire["password"], rules)


@dataclass
class Placement:
    """The result of the check."""

    keys: int = 0
    """Keys of this process found on the servers, each counted once."""
    wrong: int = 0
    """Keys on a wrong server, in a wrong database, on several servers, missing, or present though deleted."""
    texts: list[str] = field(default_factory=list)
    """The first of these, in words."""

    def note(self, text: str) -> None:
        """Count a wrong key."""
        self.wrong += 1
        if len(self.texts) < _KEPT_TEXTS:
            self.texts.append(text)


async def check_placement(keys: Keys, layout: Layout) -> Placement:
    """Look at every server of ``layout`` for the keys of this process.

    Raises:
        redis.RedisError: when a server does not answer.
    """
    found = Placement()
    seen: dict[int, str] = {}
    for server in layout.servers:
        host, _, port = server.rpartition(":")
        for database in keys.databases:
            async with Redis(host=host, port=int(port), db=database, password=layout.password) as client:
                await _look(client, server, database, keys, layout, seen, found)
    for index, may_be, has_to_be in keys.present():
        if index in seen:
            found.keys += 1
            if not may_be:
                found.note(f"{name_of(index).decode()} is on {seen[index]} though it was deleted")
        elif has_to_be:
            found.note(f"{name_of(index).decode()} is on no server")
    return found


async def _look(
    client: Redis, server: str, database: int, keys: Keys, layout: Layout, seen: dict[int, str], found: Placement
) -> None:
    cursor = 0
    key_slots = KeySlots(layout.function, len(layout.owners), layout.rules)
    here: set[int] = set()  # SCAN may give a key twice
    while True:
        cursor, found_names = await client.scan(cursor, match=PREFIX.decode() + "*", count=_SCAN_COUNT)
        names = [name.encode() if isinstance(name, str) else name for name in found_names]
        for name, slot in zip(names, key_slots.slots_of(database, names), strict=True):
            index = index_of(name)
            if index is None or not keys.mine(index) or index in here:
                continue
            here.add(index)
            if index in seen:
                found.note(f"{name.decode()} is on {seen[index]} and on {server}")
            elif layout.owners[slot] != server:
                owner = layout.owners[slot] or "nobody"
                found.note(f"{name.decode()} is on {server}, but its slot {slot} belongs to {owner}")
            elif keys.database_of(index) != database:
                found.note(f"{name.decode()} is in database {database} instead of {keys.database_of(index)}")
            seen[index] = server
        if cursor == 0:
            return
