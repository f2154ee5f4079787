from collections.abc import Collection, Mapping

from proxy.backends import BackendOptions
from proxy.engine.absent import AbsentKeys
from proxy.engine.backend import Backend
from proxy.engine.requests import Loop
from proxy.engine.session import Session
from proxy.holding import Holding
from proxy.migrating import KeyMover
from proxy.settings import ProxySettings
from proxy.slowpath.dispatch import SlowPath
from slots.commands import Command

OFFLINE: int
OPEN: int
LOCKED: int
MIGRATING: int

class Router:
    slow_path: SlowPath
    mover: KeyMover
    holding: Holding
    sessions: set[Session]
    gated: bool
    def __init__(
        self,
        loop: Loop,
        slot_function: str,
        databases: int,
        options: BackendOptions,
        settings: ProxySettings,
        commands: Mapping[str, Command],
    ) -> None: ...
    @property
    def loop(self) -> Loop: ...
    @property
    def absent(self) -> AbsentKeys: ...
    @property
    def options(self) -> BackendOptions: ...
    @property
    def databases(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def shared_backends(self) -> list[Backend]: ...
    def slot_of_key(self, key: bytes) -> int: ...
    def server_index(self, address: str) -> int: ...
    def shared_backend(self, address: str, database: int = ..., protocol: int = ...) -> Backend: ...
    def keep_servers(self, addresses: Collection[str]) -> None: ...
    def set_route(self, slot: int, state: int, address: str | None, migration: int) -> None: ...
    def open_route(self, slot: int) -> None: ...
    def route(self, slot: int) -> tuple[int, str | None, int]: ...
    def next_generation(self) -> None: ...
    def any_address(self) -> str | None: ...
