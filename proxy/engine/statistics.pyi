from collections.abc import Callable

from proxy.engine.session import Session

TICK_MICROSECONDS: float
OTHER: str

def bucket_limits() -> list[int]: ...

class Statistics:
    on: bool
    def number(self, name: str) -> int: ...
    def watch_slow(
        self, microseconds: float, on_slow: Callable[[str, float, int, Session | None, str | None], None]
    ) -> None: ...
    def read(self) -> dict[str, tuple[int, int, float, list[int]]]: ...
    def reset(self) -> None: ...
