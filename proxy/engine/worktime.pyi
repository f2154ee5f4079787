from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Given = TypeVar("Given")

class WorkTime:
    clock: Callable[[], int] | None
    def task(self, steps: Coroutine[Any, Any, Given]) -> Coroutine[Any, Any, Given]: ...
    def turn(self, user: int) -> int: ...
