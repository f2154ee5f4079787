from collections.abc import Callable
from typing import NamedTuple

TICK_MICROSECONDS: float
OTHER: str
NOBODY: str
LARGE: int
MANY: int
TELL_LENGTHS: frozenset[str]

class Noted(NamedTuple):
    why: str
    command: str
    database: int
    slot: int
    key: bytes
    length: int
    user: str
    client: str
    client_name: bytes
    server: str | None
    microseconds: float
    slow: bool
    bytes_in: int
    bytes_out: int
    elements: int

def bucket_limits() -> list[int]: ...

class Statistics:
    def number(self, name: str) -> int: ...
    @property
    def slow_requests(self) -> int: ...
    def tick(self) -> None: ...
    def watch(self, microseconds: float, on_notable: Callable[[Noted], None]) -> None: ...
    def user_number(self, name: str) -> int: ...
    def take_users(self) -> dict[str, tuple[int, int, int, int]]: ...
    def read(self) -> dict[str, tuple[int, int, float, list[int], int, int]]: ...
    def reset(self) -> None: ...
