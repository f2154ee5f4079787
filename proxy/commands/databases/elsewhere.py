"""Requests that touch keys in another database than the session's.

The engine looks for a request's keys in the session's database only. **absent-first**: so while their slot moves, such
a request is answered with TRYAGAIN, and nothing is run.

The effects of such a request have to be visible to the session's next request in that other database, which uses
another connection. So the request is sent once everything before it is answered, and nothing is sent behind it before
its reply has come (**in-order**).
"""

from proxy.engine.router import MIGRATING, Router

MOVES = (
    b"-TRYAGAIN keys in another database cannot be looked for while their slot moves to another server; "
    b"nothing was run\r\n"
)


def moves(router: Router, slot: int) -> bool:
    """Whether keys of the slot may be at its source."""
    return slot >= 0 and router.route(slot)[0] == MIGRATING
