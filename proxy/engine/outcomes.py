"""What a handler of the slow path gives for a request, and what it may wait for before it does.

A handler reads from top to bottom. It is a plain function that gives an :data:`Outcome` at once, or a coroutine that
waits first: ``await clear(keys)`` until the keys' slot lets them through, ``await unlocked(slots)`` until slots are not
locked, ``await settled(refusal)`` until slots that move allow it, ``await nothing_owed()`` until everything before it
is answered, or for any future. The request stays at the front of its session's input meanwhile, and nothing behind it
is looked at (**in-order**). The engine runs a coroutine itself, as far as it can, and goes on with it where it waited
(:mod:`proxy.engine.handlers`). It has no task: what needs one, such as ``asyncio.timeout``, has to be in one of its
own. If the client leaves, the coroutine is cancelled.
"""

import asyncio
import enum
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from typing import Any, Final, TypeVar

Content = TypeVar("Content")


class Decision(enum.Enum):
    """An outcome without a value."""

    ANY_SERVER = "send the request unchanged to any server"
    AFTER_OWED = "call the handler again once everything owed to the session has been answered (**in-order**)"
    NO_REPLY = "the request is finished; all its replies have been given"
    ASKED = "a server was asked, and the engine goes on once it has answered"


ANY_SERVER: Final = Decision.ANY_SERVER
AFTER_OWED: Final = Decision.AFTER_OWED
NO_REPLY: Final = Decision.NO_REPLY
ASKED: Final = Decision.ASKED

GATED = 1
"""Bit of a session's ``attention``: it has not authenticated."""
IN_TRANSACTION = 2
"""Bit of a session's ``attention``: between MULTI and EXEC."""
SUBSCRIBED = 4
"""Bit of a session's ``attention``: a RESP2 session with subscriptions."""
LIMITED = 8
"""Bit of a session's ``attention``: its user may not use its database."""
TRACKED = 32
"""Bit of a session's ``attention``: it tracks the keys that it reads (CLIENT TRACKING)."""
CACHED = 64
"""Bit of a session's ``attention``: its GETs of hot keys may be answered by the worker (``cached_reads``)."""

MUTED = 1
"""A session's ``muted``: replies are dropped."""
MUTED_ONCE = 3
"""A session's ``muted``: the next request's reply is dropped."""


class Unit:
    """Requests that go in one piece to the server of a slot. The last reply is the session's.

    absent-first, drained: a handler gives it in the same step in which :func:`clear` gave it ``slot`` and ``address``.
    ``before`` replies come before the session's and are dropped.
    """

    __slots__ = ("address", "before", "payload", "slot")

    def __init__(self, slot: int, address: str, payload: bytes, before: int = 0) -> None:
        self.slot = slot
        self.address = address
        self.payload = payload
        self.before = before


class Later:
    """The request has its place in the replies, for a reply that is never muted; ``coroutine`` gives it.

    The session goes on meanwhile. The coroutine has a task, and runs to its end even if the client leaves.
    """

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, bytes]) -> None:
        self.coroutine = coroutine


class Channel:
    """A channel of pub/sub, by whose slot a request or a transaction goes."""

    __slots__ = ("name",)

    def __init__(self, name: bytes) -> None:
        self.name = name


class Last:
    """A reply, after which the connection is closed once everything owed is sent."""

    __slots__ = ("reply",)

    def __init__(self, reply: bytes) -> None:
        self.reply = reply


Way = list[bytes] | Channel
"""What a request goes by: its keys, or its channel."""
Outcome = bytes | Way | Unit | Later | Last | Decision
"""A reply; what to route the unchanged request by; requests to send; or a decision."""


class Condition:
    """What the coroutine of a handler waits for: something that only the engine knows."""

    __slots__ = ()


class NothingOwed(Condition):
    """Everything owed to the session is answered."""

    __slots__ = ()

    def __await__(self) -> Generator[Condition, None, None]:
        yield self


class Clear(Condition):
    """The way of keys, or of a channel, is free."""

    __slots__ = ("database", "reads", "size", "way")

    def __init__(
        self, way: Sequence[bytes] | Channel, size: int, database: int | None, reads: Sequence[bytes] | None
    ) -> None:
        self.way = way
        self.size = size
        self.database = database
        self.reads = reads

    def __await__(self) -> Generator[Condition, tuple[int, str], tuple[int, str]]:
        return (yield self)


class Unlocked(Condition):
    """No slot of some is locked."""

    __slots__ = ("slots",)

    def __init__(self, slots: Callable[[], Collection[int]]) -> None:
        self.slots = slots

    def __await__(self) -> Generator[Condition, None, None]:
        yield self


class Settled(Condition):
    """Nothing refuses the request."""

    __slots__ = ("refusal",)

    def __init__(self, refusal: Callable[[], bytes | None]) -> None:
        self.refusal = refusal

    def __await__(self) -> Generator[Condition, None, None]:
        yield self


def clear(
    way: Sequence[bytes] | Channel,
    size: int = 0,
    database: int | None = None,
    reads: Sequence[bytes] | None = None,
) -> Clear:
    """Wait until the slot of the keys or the channel lets them through; gives it and the address of its server.

    absent-first, drained: then the slot is not locked and, in a migration, every key is absent from the source. That is
    so until the handler waits again. Without keys the slot is -1, and the address is that of any server. ``size`` is in
    bytes, if more is sent than the request at the front. ``database`` is that of the keys, if it is not the session's;
    then they are not looked for at a source, see :mod:`proxy.commands.databases.elsewhere`.
    ``reads`` is the request that the handler sends then, if it is another one than that at the front: if the keys can
    be read where they are, Answered brings its reply.

    Raises:
        Answered: the keys are in several slots, or of no server; or they were not let through in time.
    """
    return Clear(way, size, database, reads)


def unlocked(slots: Callable[[], Collection[int]]) -> Unlocked:
    """Wait while any of the slots that ``slots`` gives is locked, as a request for a key of it does.

    It is called again whenever the session is woken, so it may give others under another table.

    Raises Answered: one was locked for too long.
    """
    return Unlocked(slots)


def settled(refusal: Callable[[], bytes | None]) -> Settled:
    """Wait while ``refusal`` gives an error: why the request cannot run while slots move. It is called again whenever
    the session is woken.

    Raises Answered: it was refused for as long as a locked slot is waited for; with that error.
    """
    return Settled(refusal)


def nothing_owed() -> NothingOwed:
    """Wait until everything owed to the session is answered (**in-order**)."""
    return NothingOwed()


class Reply(asyncio.Future[Content]):
    """The reply to a request of the proxy's own, or what becomes of it.

    A handler that awaits it goes on in the turn in which it comes, once all replies of that turn are given out.
    """

    session: Any = None
    """The session whose handler awaits it."""

    def give(self, reply: Content) -> None:
        """It has come; who asked may have gone."""
        if not self.done():
            self.set_result(reply)
            self._tell()

    def fail(self, error: Exception) -> None:
        """It has come, and nothing could be made of it."""
        if not self.done():
            self.set_exception(error)
            self._tell()

    def cancel(self, msg: Any | None = None) -> bool:
        """Nobody waits for it any more; false if it has come."""
        if not super().cancel(msg):
            return False
        self._tell()
        return True

    def _tell(self) -> None:
        if self.session is not None:
            self.session.reply_came()


class Answered(Exception):
    """The request was answered otherwise: its keys cannot be let through, or were read where they are.

    A handler may catch it to tidy up, and raises it again.

    Attributes:
        reply: the session's reply.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply
