from collections.abc import Iterator
from typing import NamedTuple, Protocol

from migrator.stream.batches import Batch
from migrator.stream.words import Words
from rdb.elements import Element
from slots.keyslots import KeySlots

class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class BigKey(NamedTuple):
    copy: int
    database: int
    name: bytes
    type: str
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    fields_expire: bool

class SnapshotFilter(Iterator[Batch | BigKey]):
    most_keys: int
    most_work: int
    withheld_until_ms: int
    noted_until_ms: int
    @property
    def version(self) -> int: ...
    @property
    def stream_database(self) -> int: ...
    @property
    def keys_read(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    def __init__(
        self,
        file: _Readable,
        name: str,
        key_slots: KeySlots,
        wanted: bytearray,
        *,
        most_bytes: int,
        most_keys: int,
        big_bytes: int,
        most_work: int,
        big_work: int,
        placeholder_ms: int,
        size: int | None = None,
        words: Words | None = None,
    ) -> None: ...
    def __next__(self) -> Batch | BigKey: ...
    def elements(self) -> Iterator[Element]: ...
