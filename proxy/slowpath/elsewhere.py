"""Requests that touch keys in another database than the session's.

The engine looks for a request's keys in the session's database. Those in others are seen to here, by the same rule:
**absent-first**, a request goes to the target of a migration only after each of its keys, in the database that it is
in, is known to be absent from the source. They are looked for there each time, for such a request may take one away.
What is known of them is kept with the session until that request is done, or it would never be.

What such a request does has to be seen by what the session sends next in another database, which goes over another
connection; so it is sent once everything before is answered, and nothing is sent behind it before its reply is there
(**in-order**).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from proxy.engine.backend import Backend
from proxy.engine.router import MIGRATING, Router
from proxy.engine.session import AGAIN, Session, Waiting
from proxy.slowpath.state import state_of

Finish = Callable[[bytes], bytes]
"""Told of the reply as soon as it is there, also when the client has gone; gives the one for the client."""


def cleared(router: Router, session: Session, slot: int, keys: Iterable[tuple[int, bytes]]) -> Waiting | None:
    """None if keys (each with its database) of a slot are out of the way, else what to wait for before looking again.

    To be called within the ``then`` of a :class:`proxy.engine.outcomes.Cleared`, for the request at the front.
    """
    if slot < 0:
        return None
    state, _, migration = router.route(slot)
    if state != MIGRATING:
        return None
    known = session.taken, migration
    wanted = list(keys)
    if not wanted or state_of(session).elsewhere == known:
        return None
    return Waiting(_moved(session, known, router.mover.move(slot, wanted)))


async def _moved(session: Session, known: tuple[int, int], moved: "asyncio.Future[bytes | None]") -> Any:
    error = await moved
    if error is not None:
        return error
    # one-way: this holds for as long as the migration is the same.
    state_of(session).elsewhere = known
    return AGAIN


def send(router: Router, slot: int, backend: Backend, payload: bytes, before: int, finish: Finish) -> Waiting:
    """Send requests in one piece, the reply to the last of which is the session's; ``before`` replies are dropped.

    To be called within ``then``, as :func:`cleared`.
    """
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def done(reply: bytes) -> None:
        if slot >= 0:
            # drained: the server has answered, or the connection is known to be lost.
            router.loop.release_slot(slot)
        given = finish(reply)
        if not answered.done():
            answered.set_result(given)

    if slot >= 0:
        router.loop.hold_slot(slot)
    for _ in range(before):
        backend.call(payload, _drop)
        payload = b""
    backend.call(payload, done)
    return Waiting(_reply(answered))


def as_it_came(reply: bytes) -> bytes:
    """The reply for the client where nothing is to be done about it."""
    return reply


async def _reply(answered: "asyncio.Future[bytes]") -> bytes:
    return await answered


def _drop(reply: bytes) -> None:
    """A reply that nobody asked for."""
