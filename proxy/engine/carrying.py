"""Goes on with the coroutine of a handler that has to wait, in a task.

The engine runs a coroutine itself until it waits (:mod:`proxy.engine.decisions`). Here it is carried on from there. A
wish is granted in the step that goes on with the coroutine. So what a handler sends next goes out in the same step that
saw the way of its keys free (**absent-first**, **drained**).
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol

from proxy.engine.outcomes import Outcome, Wish


class Waits(Protocol):
    """The part of a session that is needed here."""

    def take_turn(self) -> "asyncio.Future[None]":
        """A future that is done when the session is woken. It raises Answered if the request was answered."""

    def grant(self, wish: Wish) -> Any:
        """What ``wish`` gives if it can be granted now. Else None; then the session will be woken."""

    def watch_for_leaving(self, watched: bool) -> None:
        """Whether to notice that the client hangs up."""


@types.coroutine
def carry(
    session: Waits, coroutine: Coroutine[Any, Any, Outcome], awaited: Any, turn: "asyncio.Future[None] | None" = None
) -> Generator[Any, Any, Outcome]:
    """Go on with a handler.

    Args:
        session: the handler's session.
        coroutine: the handler, which has begun.
        awaited: what it waits for: a wish or a future.
        turn: for a wish that the session could not grant: what wakes the session.

    Raises:
        What the handler raises.
    """
    while True:
        step: Callable[[], Any]
        try:
            if isinstance(awaited, Wish):
                given = yield from _granted(session, awaited, turn)
            else:
                session.watch_for_leaving(True)
                given = yield awaited
                session.watch_for_leaving(False)
        except BaseException as error:
            session.watch_for_leaving(False)
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, given)
        turn = None
        try:
            awaited = step()
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome


def _granted(session: Waits, wish: Wish, turn: "asyncio.Future[None] | None") -> Generator[Any, Any, Any]:
    while True:
        if turn is not None:
            yield from turn
        turn = session.take_turn()
        given = session.grant(wish)
        if given is not None:
            return given
