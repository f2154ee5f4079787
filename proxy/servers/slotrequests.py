"""Requests that count for a slot until their server has answered (**drained**), whatever becomes of their client."""

from collections.abc import Callable

from proxy.engine.backend import Backend
from proxy.engine.outcomes import Outcome, Reply
from proxy.engine.passing import Passing
from proxy.engine.router import Router
from proxy.engine.session import Session

Finish = Callable[[bytes], bytes]
"""Called with the reply as soon as it comes, even if the client has gone; gives the client's reply."""


def send(
    router: Router, slot: int, backend: Backend, payload: bytes, before: int, finish: Finish, most: int = 0
) -> Reply[bytes]:
    """Send requests in one piece, at once. Gives what ``finish`` makes of the last reply; ``before`` replies are
    dropped. ``most``: the most bytes of the reply, as :meth:`Backend.call` has it.

    drained: it is called in the step that found the slot's way free, and counts for the slot until it is answered.

    Raises:
        MemoryError: nothing was sent.
    """
    answered: Reply[bytes] = Reply(loop=router.loop.event_loop)

    # Not in the session's coroutine: the client may leave, and this has to be done all the same.
    def done(reply: bytes) -> None:
        if slot >= 0:
            # drained: the server has answered, or the connection is known to be lost.
            router.loop.release_slot(slot)
        try:
            given = finish(reply)
        except Exception as error:
            answered.fail(error)
        else:
            answered.give(given)

    if slot >= 0:
        router.loop.hold_slot(slot)
    try:
        backend.call(payload, done, before, most)
    except MemoryError:
        # Nothing was sent.
        if slot >= 0:
            router.loop.release_slot(slot)
        raise
    return answered


def pass_on(router: Router, slot: int, backend: Backend, payload: bytes, session: Session, name: str) -> Reply[Outcome]:
    """Likewise for the request at the front of a session, which is owed nothing, and whose command has this name. Gives
    the reply; or NO_REPLY, if it is a long one, and so goes to the client as it comes."""
    answered: Reply[Outcome] = Reply(loop=router.loop.event_loop)

    def done(reply: Outcome) -> None:
        # drained: the server has run it, though a part of its reply may be on its way.
        if slot >= 0:
            router.loop.release_slot(slot)
        answered.give(reply)

    if slot >= 0:
        router.loop.hold_slot(slot)
    try:
        backend.call(payload, Passing(session, router.loop.statistics.number(name), done))
    except MemoryError:
        # Nothing was sent.
        if slot >= 0:
            router.loop.release_slot(slot)
        raise
    return answered


def as_it_came(reply: bytes) -> bytes:
    """The reply for the client, unchanged."""
    return reply
