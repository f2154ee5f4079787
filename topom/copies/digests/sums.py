"""Digests of keys added up to digests of slots, and what differs between two servers. Pure.

A slot's digest is the sum, modulo 2^128, of the digests of its keys: it does not depend on the order in which they are
met. A key's digest is a hash of database, key, type, content and deadline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Self

from topom.cluster.differing import SlotSum

MODULUS = 1 << 128
MOST_NAMED = 100
"""How many differences are named, and how many keys that were not compared; the others are only counted."""
CORE_TYPES = frozenset({"string", "list", "set", "zset", "hash", "stream"})
NONE = "none"
DEADLINE_SLACK_MS = 20
"""How far apart deadlines may be if a server only tells the time that is left (before 7.0)."""
EXPIRY_SLACK_MS = 1000
"""How long after a deadline servers may disagree on whether the key is there."""


class Difference(StrEnum):
    """What differs in a key."""

    MISSING = "missing"  # the replica lacks it
    EXTRA = "extra"  # only the replica has it
    TYPE = "type"
    VALUE = "value"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Looked:
    """A key as one server has it.

    ``type`` is what TYPE says, ``"none"`` if there is no such key; ``deadline`` is in milliseconds since 1970, -1 for
    none; ``content`` is the digest of what is in the key, ``""`` if that cannot be read in one piece; ``length`` counts
    elements, or bytes of a string; ``bytes`` counts bytes of memory.
    """

    type: str
    deadline: int = -1
    content: str = ""
    length: int = 0
    bytes: int = 0

    @property
    def there(self) -> bool:
        """Whether the server has the key."""
        return self.type != NONE


ABSENT = Looked(NONE)


def key_digest(database: int, key: bytes, looked: Looked) -> int:
    """A key's part in the digest of its slot, 128 bits; 0 for one that is not there."""
    if not looked.there:
        return 0
    head = f"{database} {len(key)} {looked.type} {looked.content} {looked.deadline} ".encode()
    return int.from_bytes(blake2b(head + key, digest_size=16).digest())


def compare(master: Looked, replica: Looked, now_ms: int, exact_deadlines: bool = True) -> Difference | None:
    """What differs in a key; None if nothing does.

    A replica does not delete what expires, it waits for its master to do so. Clocks differ, too. So a key that is due
    counts as gone.

    Args:
        now_ms: the later of both servers' clocks.
        exact_deadlines: whether both servers tell deadlines, and not only the time that is left.
    """
    if not (master.there and replica.there):
        one = master if master.there else replica
        if not one.there or (one.deadline >= 0 and one.deadline <= now_ms + EXPIRY_SLACK_MS):
            return None
        return Difference.MISSING if master.there else Difference.EXTRA
    if master.type != replica.type:
        return Difference.TYPE
    if master.content != replica.content:
        return Difference.VALUE
    slack = 0 if exact_deadlines else DEADLINE_SLACK_MS
    both = master.deadline >= 0 and replica.deadline >= 0
    if master.deadline != replica.deadline and not (both and abs(master.deadline - replica.deadline) <= slack):
        return Difference.DEADLINE
    return None


@dataclass(frozen=True, slots=True)
class Named:
    """A key that is named to operators. ``key`` is text: bytes that are not UTF-8 stand as ``\\xNN``."""

    slot: int
    database: int
    key: str
    what: str

    @classmethod
    def of(cls, slot: int, database: int, key: bytes, what: str) -> Self:
        """Name a key as it is at the server; a long one by its beginning."""
        return cls(slot, database, key[:256].decode(errors="backslashreplace"), what)


@dataclass(slots=True)
class Tally:
    """What a check has found so far: one :class:`SlotSum` a slot, and bounded lists of keys.

    ``uncompared`` counts keys that could not be compared: they are written all the time, or only a module can compare
    their type. ``extra`` counts those of the differences that are keys which only the replica has.
    """

    slots: dict[int, SlotSum] = field(default_factory=dict)
    differences: int = 0
    named: list[Named] = field(default_factory=list)
    uncompared: int = 0
    uncompared_named: list[Named] = field(default_factory=list)
    extra: int = 0

    @property
    def keys(self) -> int:
        """Keys compared so far."""
        return sum(slot.keys for slot in self.slots.values())

    def same(self, slot: int, database: int, key: bytes, master: Looked) -> None:
        """A key that both have alike, or that neither has any more."""
        digest = key_digest(database, key, master)
        self._add(slot, digest, digest)

    def differs(self, slot: int, database: int, key: bytes, master: Looked, replica: Looked, what: Difference) -> None:
        """A key that the servers do not have alike."""
        self._add(slot, key_digest(database, key, master), key_digest(database, key, replica))
        self.differences += 1
        self.extra += what is Difference.EXTRA
        if len(self.named) < MOST_NAMED:
            self.named.append(Named.of(slot, database, key, what))

    def skip(self, slot: int, database: int, key: bytes, why: str) -> None:
        """A key that could not be compared."""
        self.uncompared += 1
        if len(self.uncompared_named) < MOST_NAMED:
            self.uncompared_named.append(Named.of(slot, database, key, why))

    def _add(self, slot: int, master: int, replica: int) -> None:
        found = self.slots.setdefault(slot, SlotSum())
        found.keys += 1
        found.master = (found.master + master) % MODULUS
        found.replica = (found.replica + replica) % MODULUS


def summary(slots: Mapping[int, SlotSum]) -> list[tuple[int, int, str, str]]:
    """Slot, keys, the master's and the replica's digest in hexadecimal, by ascending slot."""
    return [
        (slot, found.keys, f"{found.master:032x}", f"{found.replica:032x}") for slot, found in sorted(slots.items())
    ]
