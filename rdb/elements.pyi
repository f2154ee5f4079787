from typing import NamedTuple

NEVER: int

Id = tuple[int, int]

class Scored(NamedTuple):
    member: bytes
    score: float

class Field(NamedTuple):
    name: bytes
    value: bytes
    deadline_ms: int

class Entry(NamedTuple):
    id: Id
    fields: list[bytes]

class Counters(NamedTuple):
    entries: int
    last_id: Id
    first_id: Id | None
    most_deleted_id: Id | None
    entries_added: int | None

class Group(NamedTuple):
    name: bytes
    last_id: Id
    entries_read: int | None

class Pending(NamedTuple):
    id: Id
    delivered_ms: int
    deliveries: int

class Consumer(NamedTuple):
    name: bytes
    seen_ms: int
    active_ms: int | None

class Owned(NamedTuple):
    id: Id

Element = bytes | Scored | Field | Entry | Counters | Group | Pending | Consumer | Owned
