"""Holds requests for locked slots: each stays at the front of its session's input until the lock is gone.

So it does requests that may touch keys that they do not name, until their slot has moved
(:mod:`proxy.commands.scripting.unnamed`).

**drained** rests on this: while a slot is locked, nothing new is sent for it. **bounded**: a session holds one request,
and the bytes behind it in its socket buffer, for ``lock_hold_seconds``. Then the request is answered ``-TRYAGAIN``.
That ends the wait, but not an acknowledged lock, for topom may have handed the slot on by then. If the client has left
when its request is let go, nothing is run (:mod:`proxy.engine.session`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from proxy.engine.session import Session

STOOD_DOWN = (
    "is not served by this proxy: it hears no topom, and not all replicas of the group say that the proxy is not fenced"
)
FENCED_OFF = "is not served by this proxy: it was fenced off the servers, and waits until topom registers it again"


@dataclass(slots=True)
class Held:
    """A request for a locked slot.

    Attributes:
        stage: the session's, which changes with what it waits for.
        deadline: when it is answered with an error.
        slot: the slot.
        refusal: the error then, if it is not for a lock.
        waits: whether it waits; false while it is looked at again.
    """

    stage: int
    deadline: float
    slot: int
    refusal: bytes | None
    waits: bool = True


class Holding:
    """The sessions whose request at the front is for a locked slot.

    Args:
        limit_seconds: how long a request is held.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self.is_stood_down: Callable[[int], bool] = lambda slot: False
        """Whether a slot is locked because the proxy may not use its group for now."""
        self.stood_down = STOOD_DOWN
        """The clause about such a slot in the error."""
        self._held: dict[Session, Held] = {}

    def hold(self, session: Session, slot: int, refusal: bytes | None = None) -> None:
        """Hold the request at the front of ``session``; called by the engine, which stops reading from it.

        Without ``refusal``, ``slot`` is locked.
        """
        known = self._held.get(session)
        # bounded: the same request keeps its deadline, for tables may come faster than its time ends.
        if known is not None and known.stage == session.stage:
            known.slot, known.refusal, known.waits = slot, refusal, True
        else:
            self._held[session] = Held(session.stage, time.monotonic() + self._limit, slot, refusal)

    def release(self) -> None:
        """Have every held request looked at again; if its slot is still locked, it comes back."""
        for session, held in list(self._held.items()):
            if held.waits and held.stage == session.stage:
                held.waits = False
                session.wake()

    def expire(self) -> None:
        """Answer requests that were held for too long; the worker calls this a few times a second."""
        now = time.monotonic()
        for session, held in list(self._held.items()):
            if session.stage != held.stage:
                del self._held[session]
            elif held.waits and held.deadline <= now:
                del self._held[session]
                if held.refusal is not None:
                    session.fail(held.refusal)
                    continue
                why = self.stood_down if self.is_stood_down(held.slot) else "is locked while it changes hands"
                limit = f"{self._limit:g}"
                session.fail(f"-TRYAGAIN slot {held.slot} {why}, for more than {limit} s; nothing was run\r\n".encode())

    def forget_closed(self) -> None:
        """Drop sessions whose clients have gone."""
        for session in [session for session in self._held if session.closed]:
            del self._held[session]

    def __len__(self) -> int:
        return sum(held.waits for held in self._held.values())
