"""A worker's slow log: the newest requests that took long, for SLOWLOG.

A request's arguments are gone when its reply comes. So an entry names the command, its slot, the server that answered,
and the client. As in Redis, the time for which a command waits does not make it slow. How long such a command was at
work besides is not known, so it is left out. **bounded**: the oldest entry goes when a new one has no room.
"""

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from proxy.engine.session import Session
from slots import commands

WAITING = frozenset(
    name.lower() for name, row in commands.table().items() if "blocking" in row.flags or row.timeout is not None
)
"""Commands that may wait on a connection of their own. The engine does not know which server answered them."""
MOST_ENTRIES = 128
"""How many slow requests a worker keeps: as many as Redis does by default."""


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One request that took long.

    ``at`` is the time of the answer, in seconds since 1970. ``slot`` is -1 if there is none. ``server`` is empty if the
    proxy answered, or several servers did.
    """

    id: int
    at: float
    microseconds: int
    command: str
    slot: int
    server: str
    client: str
    client_name: str

    def to_wire(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


class SlowLog:
    """The newest slow requests of one worker.

    Args:
        first_id, step: its ids are ``first_id``, ``first_id + step`` and so on, the same in no two workers.
    """

    def __init__(self, first_id: int = 0, step: int = 1) -> None:
        self._entries: deque[SlowRequest] = deque(maxlen=MOST_ENTRIES)
        self._next_id = first_id
        self._step = step

    def note(self, command: str, microseconds: float, slot: int, session: Session | None, server: str | None) -> None:
        """Add one; called by the engine."""
        if server is None and command in WAITING:
            return
        state = session.state if session is not None else None
        self._entries.appendleft(
            SlowRequest(
                id=self._next_id,
                at=time.time(),
                microseconds=int(microseconds),
                command=command,
                slot=slot,
                server=server or "",
                client=session.peer if session is not None else "",
                client_name=state.name.decode(errors="replace") if state is not None else "",
            )
        )
        self._next_id += self._step

    def newest(self, count: int | None = None) -> list[SlowRequest]:
        """The newest first; all of them without ``count``."""
        return list(self._entries)[:count]

    def reset(self) -> None:
        """Forget them all."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
