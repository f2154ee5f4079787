import socket

from proxy.engine.connection import ClientConnection
from proxy.engine.router import Router
from proxy.slowpath.connection import ClientInfo

ANY_SERVER: object
QUIT: object

class Session(ClientConnection):
    gated: bool
    database: int
    protocol: int
    info: ClientInfo | None
    last_command: bytes | None
    def __init__(self, router: Router, sock: socket.socket, peer: str, id: int) -> None: ...
    @property
    def id(self) -> int: ...
    def wake(self, cleared: int = ...) -> None: ...
    def fail(self, error: bytes) -> None: ...
