from collections.abc import Iterable

from proxy.engine.session import Session

def deliver(sessions: Iterable[Session], resp2: bytes, resp3: bytes) -> None: ...
