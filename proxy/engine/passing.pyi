from collections.abc import Callable

from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session

class Passing:
    def __init__(self, session: Session, number: int, heard: Callable[[Outcome], None]) -> None: ...
    def __call__(self, reply: bytes) -> None: ...
