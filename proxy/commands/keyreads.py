"""Reads the keys of one request over several slots at their owners, each at one moment.

Each key goes the way of every command: it waits for a locked slot, and in a migration until the key has left the
source (**absent-first**, **drained**). If it goes in pieces, or the target is full, it is read at the source, if its
command may run there.

**bounded**: a request keeps :data:`MOST_BYTES` of replies, of one reply also no more than
``session_output_limit_bytes``, and all requests of a worker together :data:`MOST_BYTES_TOGETHER`. What is more is not
kept; an error takes its place.
"""

from collections.abc import Iterable
from typing import Self

from proxy.commands import replies
from proxy.engine.backend import command
from proxy.engine.outcomes import Answered, Reply, clear
from proxy.engine.refusals import TOO_LARGE
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.servers import slotrequests

MOST_BYTES = 16_777_216
MOST_BYTES_TOGETHER = 67_108_864
MOST_KEYS = 1000
"""The most keys of a request: so many questions may be under way for it."""
WRONG_TYPE = b"-WRONGTYPE "
FULL = replies.error(
    f"TRYAGAIN other requests over several slots hold {MOST_BYTES_TOGETHER} bytes at the proxy; nothing was run"
)


def too_many_bytes(name: str, most: int = MOST_BYTES) -> bytes:
    """The error for replies that have more than ``most`` bytes."""
    return replies.refused_over_slots(name, f"the proxy reads at most {most} bytes for it, and there are more")


def too_many_keys(name: str) -> bytes:
    """The error for a request with more than :data:`MOST_KEYS`."""
    return replies.refused_over_slots(name, f"the proxy reads at most {MOST_KEYS} keys")


def are_apart(router: Router, database: int, keys: Iterable[bytes]) -> bool:
    """Whether keys are of several slots."""
    return len({router.slot_of_key(database, key) for key in keys}) > 1


class Held:
    """What all requests of a worker keep."""

    def __init__(self) -> None:
        self.bytes = 0


class KeyReads:
    """The replies of one request, within the bounds; a context manager that gives up what is kept.

    Args:
        router: the worker's.
        session: whose request it is.
        name: the request's command.
        held: what all requests keep.
    """

    def __init__(self, router: Router, session: Session, name: str, held: Held) -> None:
        self._router = router
        self._session = session
        self._name = name
        self._held = held
        self._over = False
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What comes later is not kept.
        self._over = True
        self._held.bytes -= self.bytes

    async def ask(self, key: bytes, request: list[bytes]) -> Reply[bytes]:
        """Send a request about one key, once its way is free. Raises Answered if it is not."""
        try:
            slot, address = await clear([key], reads=request)
        except Answered as answered:
            if answered.reply.startswith(b"-") and not answered.reply.startswith(WRONG_TYPE):
                raise
            # It was read at its source.
            there: Reply[bytes] = Reply(loop=self._router.loop.event_loop)
            there.give(self._keep(answered.reply))
            return there
        backend = self._router.shared(self._session, address)
        most = min(MOST_BYTES, self._router.options.own_reply_bytes)

        def keep(reply: bytes) -> bytes:
            # Nothing was taken, and what is computed may be small: the client keeps its connection.
            return too_many_bytes(self._name, most) if reply.startswith(TOO_LARGE) else self._keep(reply)

        return slotrequests.send(self._router, slot, backend, command(tuple(request)), 0, keep, most)

    def _keep(self, reply: bytes) -> bytes:
        """The reply, or an error where there is no room for it."""
        if self._over:
            return b""
        if self.bytes + len(reply) > MOST_BYTES:
            return too_many_bytes(self._name)
        if self._held.bytes + len(reply) > MOST_BYTES_TOGETHER:
            return FULL
        self.bytes += len(reply)
        self._held.bytes += len(reply)
        return reply
