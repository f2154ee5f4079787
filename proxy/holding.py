"""Requests for locked slots: each stays at the front of its session's input until the lock is gone.

**drained** rests on this: while a slot is locked nothing new is sent for it. **bounded**: a session holds one
request and what its socket buffer takes behind it, for as long as ``lock_hold_seconds``; then the request is
answered ``-TRYAGAIN``. An acknowledged lock is not given up when the time is over, because topom may have handed
the slot on by then; only the waiting is. Who has left by the time of being let go has nothing run
(:mod:`proxy.engine.session`).
"""

import time
from collections.abc import Callable

from proxy.engine.session import Session

STOOD_DOWN = (
    "is not served by this proxy, which hears no topom and not from all of the group's replicas that the group still "
    "has the same master"
)
FENCED_OFF = "is not served by this proxy, which was fenced off the servers and waits for topom to take it on anew"


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
        """What is said of such a slot."""
        self._held: dict[Session, tuple[float, int]] = {}

    def hold(self, session: Session, slot: int) -> None:
        """Hold the request at the front of ``session``; called by the engine, which stops reading from it."""
        self._held[session] = (time.monotonic() + self._limit, slot)

    def release(self) -> None:
        """Have every held request looked at again; one whose slot is still locked comes back."""
        held, self._held = self._held, {}
        for session, (deadline, _) in held.items():
            waiting = session.taken
            session.wake()
            if session in self._held and session.taken == waiting:
                # bounded: it is the same request, and tables may come faster than its time runs out.
                self._held[session] = (deadline, self._held[session][1])

    def expire(self) -> None:
        """Answer those that were held too long; the worker calls this a few times a second."""
        now = time.monotonic()
        late = [(session, slot) for session, (deadline, slot) in self._held.items() if deadline <= now]
        for session, slot in late:
            del self._held[session]
            why = self.stood_down if self.is_stood_down(slot) else "is locked while it changes hands"
            session.fail(f"-TRYAGAIN slot {slot} {why}, for more than {self._limit:g} s; nothing was run\r\n".encode())

    def forget_closed(self) -> None:
        """Drop sessions whose clients have gone."""
        for session in [session for session in self._held if session.closed]:
            del self._held[session]

    def __len__(self) -> int:
        return len(self._held)
