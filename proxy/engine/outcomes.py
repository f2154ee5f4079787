"""The outcomes of the slow path, besides a reply, a later reply, or the keys to route by."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

ANY_SERVER = object()
"""Send the request unchanged to any server."""
QUIT = object()
"""Say OK and close the connection once everything owed is sent."""
AFTER_OWED = object()
"""Look at the request again once everything owed to the session has been answered (**in-order**)."""
NO_REPLY = object()
"""The request is finished; all its replies have been given."""
AGAIN = object()
"""The result of a :class:`Waiting`'s coroutine that has the request looked at again."""

GATED = 1
"""Bit of a session's ``attention``: it has not authenticated."""
IN_TRANSACTION = 2
"""Bit of a session's ``attention``: between MULTI and EXEC."""
SUBSCRIBED = 4
"""Bit of a session's ``attention``: a RESP2 session with subscriptions."""
LIMITED = 8
"""Bit of a session's ``attention``: its user may not use its database."""

MUTED = 1
"""A session's ``muted``: replies are dropped."""
MUTED_ONCE = 3
"""A session's ``muted``: the next request's reply is dropped."""


class Cleared:
    """Wait until the keys' slot lets them through, then let ``then(session, slot, address)`` give the next outcome.

    absent-first, drained: ``then`` is called once the slot is not locked and, in a migration, every key is absent from
    the source. The call is part of that same step, and the requests that ``then`` sends count for the slot. Without
    keys the slot is -1, and the address is that of any server.
    """

    __slots__ = ("keys", "then")

    def __init__(self, keys: Sequence[bytes], then: Callable[[Any, int, str], Any]) -> None:
        self.keys = keys
        self.then = then


class Unit:
    """Several requests, sent in one piece to the server whose address ``then`` got.

    ``before`` of their replies are dropped, the next is the session's, ``after`` more are dropped.
    """

    __slots__ = ("after", "before", "payload")

    def __init__(self, payload: bytes, before: int, after: int = 0) -> None:
        self.payload = payload
        self.before = before
        self.after = after


class Waiting:
    """Keep the request at the front until ``coroutine`` gives its reply, or :data:`AGAIN`.

    If the client hangs up meanwhile, its session is closed and the coroutine cancelled.
    """

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
