"""Requests that touch keys in another database than the session's.

The engine looks for a request's keys in the session's database. This module looks for keys in other databases, by the
same rule. **absent-first**: a request goes to the target of a migration only after each of its keys, in the key's own
database, is known to be absent from the source. The keys are looked for each time, for such a request may remove one.
The session keeps the result until that request is done, or the request would be looked at for ever.

The effects of such a request have to be visible to the session's next request in that other database, which uses
another connection. So the request is sent once everything before it is answered, and nothing is sent behind it before
its reply has come (**in-order**).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from proxy.commands.state import state_of
from proxy.engine.backend import Backend
from proxy.engine.router import MIGRATING, Router
from proxy.engine.session import AGAIN, Session, Waiting

Finish = Callable[[bytes], bytes]
"""Called with the reply as soon as it comes, even if the client has gone; gives the client's reply."""


def cleared(router: Router, session: Session, slot: int, keys: Iterable[tuple[int, bytes]]) -> Waiting | None:
    """None if keys (each with its database) of a slot are known to be absent from its source. Else what to wait for
    before the next look.

    Call it within the ``then`` of a :class:`proxy.engine.outcomes.Cleared`, for the request at the front.
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
    # one-way: this holds while the migration is the same.
    state_of(session).elsewhere = known
    return AGAIN


def send(router: Router, slot: int, backend: Backend, payload: bytes, before: int, finish: Finish) -> Waiting:
    """Send requests in one piece. The last reply is the session's; ``before`` replies are dropped.

    Call it within ``then``, as :func:`cleared`.
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
    """The reply for the client, unchanged."""
    return reply


async def _reply(answered: "asyncio.Future[bytes]") -> bytes:
    return await answered


def _drop(reply: bytes) -> None:
    """Drop a reply that no client waits for."""
