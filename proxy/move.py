"""One key on its way to its slot's target, and who waits for it; see :mod:`proxy.migrating`."""

import asyncio
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
    """Where a migrating slot's keys come from.

    ``epoch``, ``beginning`` and ``min_replicas`` are those of :class:`slots.table.Action`: no two actions have the same
    origin (**by-action**).
    """

    address: str
    epoch: int = 0
    beginning: Beginning = UNKNOWN_BEGINNING
    min_replicas: int = 0


@dataclass(eq=False, slots=True)
class Move:
    """One key on its way, and the sessions that wait for it.

    ``big_since`` is when it was found to go in pieces, or 0; ``asked_at`` when the migrator was asked for it last;
    ``read_at`` where it may be read meanwhile. ``busy_since`` is when it was found that somebody else moves it by
    ``busy_permit``; ``refused`` why it could not be moved when it was tried last. ``asked``: the source has been asked,
    or is being; ``later`` are those who want to hear what it says after that.
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
        """The source has yet to be asked, or once more: what it says then is of use to all who wait by now."""
        self.asked = False
        self.waiters += self.later
        self.later.clear()


class Sleeper(Protocol):
    """What waits for keys to be moved: a session, or what stands for a part of its request."""

    @property
    def session(self) -> "Session | None":
        """The session whose request at the front waits as it stands, if it is that."""

    def wake(self, cleared: int) -> None:
        """All keys are absent from their sources, by the table of the generation ``cleared``."""

    def fail(self, error: bytes) -> None:
        """A key could not be moved."""

    def big(self, origin: Origin, leave: Callable[[], bool]) -> None:
        """A key goes in pieces from ``origin``, where it may be read. ``leave()`` says if it waits, and ends that."""


class Errand:
    """Keys that are moved for something else than the request at the front of a session as it stands."""

    session = None

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        """None once all keys are absent from their source, or the error reply."""

    def wake(self, cleared: int) -> None:
        """All keys are absent."""
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: bytes) -> None:
        """A key could not be moved."""
        if not self.done.done():
            self.done.set_result(error)

    def big(self, origin: Origin, leave: Callable[[], bool]) -> None:
        """It waits."""


@dataclass(eq=False, slots=True)
class Waiter:
    """Who waits, and how many of the keys it waits for are still to be moved."""

    sleeper: Sleeper
    generation: int
    left: int
    over: bool = False
    told: bool = False

    def leave(self) -> bool:
        """Wait no longer; false if that was over already."""
        was_over, self.over = self.over, True
        return not was_over
