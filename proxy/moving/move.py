"""One key on its way to its slot's target, and the sessions that wait for it; see :mod:`proxy.moving.migrating`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from slots.beginning import UNKNOWN as UNKNOWN_BEGINNING
from slots.beginning import Beginning

if TYPE_CHECKING:
    from proxy.engine.session import Session

MoveKey = tuple[int, int, bytes]
"""Number of the migration, database, key."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a migrating slot's keys.

    ``epoch``, ``beginning`` and ``min_replicas`` are those of :class:`slots.slot.Action`. No two actions have the same
    origin (**by-action**).
    """

    address: str
    epoch: int = 0
    beginning: Beginning = UNKNOWN_BEGINNING
    min_replicas: int = 0


@dataclass(eq=False, slots=True)
class Move:
    """One key on its way, and the sessions that wait for it.

    ``big_since``: when it was found to go in pieces, or 0. ``asked_at``: when the migrator was last asked for it.
    ``read_at``: where it may be read meanwhile. ``busy_since``: when another mover was found to move it, by
    ``busy_permit``. ``refused``: why the last try failed. ``asked``: whether the source has been asked, or is being
    asked. ``later``: the sessions that need an answer of the source to a later question.
    """

    slot: int
    identity: MoveKey
    deadline: float
    waiters: list["Waiter"] = field(default_factory=list)
    big_since: float = 0.0
    asked_at: float = 0.0
    read_at: Origin | None = None
    busy_since: float = 0.0
    busy_permit: str = ""
    refused: bytes = b""
    asked: bool = False
    later: list["Waiter"] = field(default_factory=list)

    def ask_again(self) -> None:
        """Note that the source has to be asked, or asked again. That answer will serve all sessions that wait by
        now."""
        self.asked = False
        self.waiters += self.later
        self.later.clear()


class Sleeper(Protocol):
    """Waits for keys to be moved: a session, or an object for a part of its request."""

    @property
    def session(self) -> "Session | None":
        """The session, if its request at the front waits unchanged; else None."""

    def wake(self, cleared: int) -> None:
        """All keys are absent from their sources, by the table of the generation ``cleared``."""

    def fail(self, error: bytes) -> None:
        """A key could not be moved."""

    def big(self, origin: Origin, leave: Callable[[], bool]) -> None:
        """A key goes in pieces from ``origin``, where it may be read. ``leave()`` ends the wait, and says whether there
        was one."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A waiting session, with the number of its keys that are still to be moved."""

    sleeper: Sleeper
    generation: int
    left: int
    over: bool = False
    told: bool = False

    def leave(self) -> bool:
        """Stop waiting; false if the wait was already over."""
        was_over, self.over = self.over, True
        return not was_over
