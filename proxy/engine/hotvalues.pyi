from collections.abc import Callable

MOST_VALUES: int

class HotValues:
    until: float
    on_old: Callable[[int, bytes], None]
    def __init__(self) -> None: ...
    @property
    def asked(self) -> int: ...
    @property
    def answered(self) -> int: ...
    def ask(self) -> int: ...
    def put(
        self,
        database: int,
        key: bytes,
        slot: int,
        changes: int,
        ruling: int,
        number: int,
        until: float,
        reply: bytes | None,
    ) -> bool: ...
    def drop(self, database: int, key: bytes) -> None: ...
    def clear(self) -> None: ...
