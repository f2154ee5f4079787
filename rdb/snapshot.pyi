from collections.abc import Iterator
from typing import NamedTuple, Protocol

from rdb.elements import Element

class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class SnapshotKey(NamedTuple):
    database: int
    name: bytes
    type: str | None
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    payload: bytes | None

class Snapshot(Iterator[SnapshotKey]):
    @property
    def version(self) -> int: ...
    def __init__(self, file: _Readable, name: str, most: int, size: int | None = None) -> None: ...
    def __next__(self) -> SnapshotKey: ...
    def elements(self) -> Iterator[Element]: ...
