from collections.abc import Callable

NOTHING: int
FIRST: int
STREAMS: int
IN_ERROR: int

class Prefix:
    text: bytes
    changed: Callable[[list[bytes]], list[bytes]]
    def __init__(self, text: bytes, naming: bytes, changed: Callable[[list[bytes]], list[bytes]]) -> None: ...
    def hide_each(self, reply: bytes, numbers: dict[int, int]) -> bytes: ...
