from typing import Protocol

from rdb.errors import RdbError
from slots.rules import SlotRule

ALLOCATORS: tuple[str, ...]
KEY_BYTES: int
MOST_MODULE_TYPES: int

class _Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class Scanner:
    error: RdbError | None
    types: list[str]
    @property
    def version(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def __init__(
        self,
        file: _Readable,
        name: str,
        size: int | None = None,
        checksum: bool = True,
        function: str = "crc32",
        number_of_slots: int = 1024,
        allocator: str = "jemalloc",
        rows: int = 8192,
        rules: tuple[SlotRule, ...] = (),
    ) -> None: ...
    def batch(self) -> dict[str, bytes]: ...
