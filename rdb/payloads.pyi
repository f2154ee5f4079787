from collections.abc import Iterator
from typing import NamedTuple, Protocol

class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class Restorable(NamedTuple):
    database: int
    key: bytes
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    payload: bytes | None

class Payloads(Iterator[Restorable]):
    @property
    def version(self) -> int: ...
    def __init__(self, file: _Readable, name: str, most: int, size: int | None = None) -> None: ...
    def __next__(self) -> Restorable: ...
