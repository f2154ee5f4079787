from proxy.engine.session import Session
from proxy.servers.ownconnections import OwnConnection

class Watch:
    connection: OwnConnection | None
    database: int
    moved: bool
    kept: bool
    busy: bool
    over: bool
    replica_reads: bool
    since: float
    def __init__(self, session: Session, connection: OwnConnection, slot: int, key: bytes) -> None: ...
    @property
    def session(self) -> Session: ...
    @property
    def slot(self) -> int: ...
    @property
    def key(self) -> bytes: ...
    def holds(self) -> bool: ...
