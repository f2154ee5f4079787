import socket
from collections.abc import Callable

from proxy.commands.state import SessionState
from proxy.engine.connection import ClientConnection
from proxy.engine.outcomes import AFTER_OWED as AFTER_OWED
from proxy.engine.outcomes import AGAIN as AGAIN
from proxy.engine.outcomes import ANY_SERVER as ANY_SERVER
from proxy.engine.outcomes import GATED as GATED
from proxy.engine.outcomes import IN_TRANSACTION as IN_TRANSACTION
from proxy.engine.outcomes import LIMITED as LIMITED
from proxy.engine.outcomes import MUTED as MUTED
from proxy.engine.outcomes import MUTED_ONCE as MUTED_ONCE
from proxy.engine.outcomes import NO_REPLY as NO_REPLY
from proxy.engine.outcomes import QUIT as QUIT
from proxy.engine.outcomes import SUBSCRIBED as SUBSCRIBED
from proxy.engine.outcomes import Cleared as Cleared
from proxy.engine.outcomes import Unit as Unit
from proxy.engine.outcomes import Waiting as Waiting
from proxy.engine.router import Router
from proxy.moving.move import Origin

class Session(ClientConnection):
    attention: int
    read_only: bool
    runs_no_code: bool
    replica_reads: bool
    muted: int
    database: int
    protocol: int
    state: SessionState | None
    last_command: str | None
    def __init__(self, router: Router, sock: socket.socket, peer: str, id: int) -> None: ...
    @property
    def id(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def lane(self) -> int: ...
    @property
    def session(self) -> Session: ...
    def wake(self, cleared: int = ...) -> None: ...
    def fail(self, error: bytes) -> None: ...
    def complete(self, reply: bytes) -> None: ...
    def big(self, origin: Origin, leave: Callable[[], bool]) -> None: ...
    def front(self) -> tuple[list[bytes], bytes] | None: ...
    def answer(self, data: bytes) -> None: ...
    def push(self, data: bytes) -> None: ...
