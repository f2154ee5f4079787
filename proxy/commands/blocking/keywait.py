"""One key that clients of a worker wait for over several slots, and one client that waits for keys."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.commands.blocking.waiter import UNBLOCKED, Waiter
from proxy.engine.outcomes import Reply

LIST = b"list"
SORTED_SET = b"zset"
STREAM = b"stream"


class WaitedKey:
    """One key, for clients that wait for the same kind of content."""

    __slots__ = ("asked", "database", "kind", "looks", "may_hold", "name", "slot", "taker", "told_by", "waits")

    def __init__(self, database: int, kind: bytes, name: bytes, slot: int) -> None:
        self.database = database
        self.kind = kind
        self.name = name
        self.slot = slot
        self.waits: dict[KeyWait, None] = {}
        """In the order in which they began."""
        self.told_by: str | None = None
        """The server that tells of the next change."""
        self.asked = 0
        """How often a server was asked to."""
        self.looks = 0
        """How often one has confirmed it."""
        self.may_hold = False
        self.taker: KeyWait | None = None
        """Whose turn it is to look."""

    @property
    def is_read(self) -> bool:
        """Whether clients read it and take nothing. Then all of them look, and there are no turns."""
        return self.kind == STREAM


class KeyWait:
    """One client that waits for keys, in its order."""

    __slots__ = ("changed", "failed", "is_over", "keys", "looks", "turn", "waiter")

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.keys: list[WaitedKey] = []
        self.turn: WaitedKey | None = None
        """The key that the client is to look at now, and may take from."""
        self.changed: dict[WaitedKey, None] = {}
        """The keys that the client is to read now."""
        self.looks = 0
        self.failed: bytes | None = None
        """The error with which the wait ends."""
        self.is_over = False
        """Whether its time is over."""

    def take_changed(self) -> dict[WaitedKey, None]:
        """The keys to read. What changes from now on counts for the next time."""
        changed, self.changed = self.changed, {}
        return changed

    @contextmanager
    def limited(self, event_loop: asyncio.AbstractEventLoop, deadline: float | None) -> Iterator[None]:
        """Have it end at its deadline."""
        timer = None if deadline is None else event_loop.call_at(deadline, self._time_is_over)
        try:
            yield
        finally:
            self.waiter.parked = None
            if timer is not None:
                timer.cancel()

    async def look_out(self, event_loop: asyncio.AbstractEventLoop) -> bytes | None:
        """Wait until there is a key to look at: None. If the wait is over before, the client's reply."""
        waiter = self.waiter
        while True:
            if waiter.stopped:
                return UNBLOCKED
            if self.failed is not None:
                return self.failed
            if self.is_over:
                return waiter.request.nothing(waiter.session.protocol)
            if self.turn is not None or self.changed:
                return None
            waiter.parked = Reply(loop=event_loop)
            await waiter.parked
            waiter.parked = None

    def _time_is_over(self) -> None:
        self.is_over = True
        self.wake()

    def wake(self) -> None:
        """Have it look at its attributes."""
        if self.waiter.parked is not None:
            self.waiter.parked.give(True)
