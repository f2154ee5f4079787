"""Requests that touch keys in another database than the session's.

The engine looks for a request's keys in the session's database only. **absent-first**: so while their slot moves, such
a request is answered with TRYAGAIN, and nothing is run.

The effects of such a request have to be visible to the session's next request in that other database, which uses
another connection. So the request is sent once everything before it is answered, and nothing is sent behind it before
its reply has come (**in-order**).
"""

import asyncio
from collections.abc import Callable

from proxy.engine.backend import Backend
from proxy.engine.router import MIGRATING, Router

MOVES = (
    b"-TRYAGAIN keys in another database cannot be looked for while their slot moves to another server; "
    b"nothing was run\r\n"
)

Finish = Callable[[bytes], bytes]
"""Called with the reply as soon as it comes, even if the client has gone; gives the client's reply."""


def moves(router: Router, slot: int) -> bool:
    """Whether keys of the slot may be at its source."""
    return slot >= 0 and router.route(slot)[0] == MIGRATING


async def send(router: Router, slot: int, backend: Backend, payload: bytes, before: int, finish: Finish) -> bytes:
    """Send requests in one piece, at once. Gives what ``finish`` makes of the last reply; ``before`` replies are
    dropped.

    drained: it is called in the step that found the slot's way free, and counts for the slot until it is answered.
    """
    answered: asyncio.Future[bytes] = router.loop.event_loop.create_future()

    # Not in the session's coroutine: the client may leave, and this has to be done all the same.
    def done(reply: bytes) -> None:
        if slot >= 0:
            # drained: the server has answered, or the connection is known to be lost.
            router.loop.release_slot(slot)
        given = finish(reply)
        if not answered.done():
            answered.set_result(given)

    if slot >= 0:
        router.loop.hold_slot(slot)
    backend.call(payload, done, before)
    return await answered


def as_it_came(reply: bytes) -> bytes:
    """The reply for the client, unchanged."""
    return reply
