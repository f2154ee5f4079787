"""Reads the sets of one request at their owners, each at one moment.

Each key goes the way of every command: it waits for a locked slot, and in a migration until the key has left the
source (**absent-first**, **drained**). If it goes in pieces, or the target is full, it is read at the source.

**bounded**: a request keeps :data:`MOST_BYTES` of replies, and all requests of a worker together
:data:`MOST_BYTES_TOGETHER`. What is more is not kept; an error takes its place.
"""

from collections.abc import Iterable

from proxy.commands import replies
from proxy.engine.backend import command
from proxy.engine.outcomes import Answered, Reply, clear
from proxy.engine.refusals import too_large
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.servers import slotrequests

MOST_BYTES = 16_777_216
MOST_BYTES_TOGETHER = 67_108_864
MOST_KEYS = 1000
"""The most keys of a request: so many questions may be under way for it."""
WRONG_TYPE = b"-WRONGTYPE "
FULL = replies.error(
    f"TRYAGAIN other requests over several slots hold {MOST_BYTES_TOGETHER} bytes of sets at the proxy; nothing was run"
)


def too_many_bytes(name: str) -> bytes:
    """The error for sets that are too large together."""
    return replies.refused_over_slots(
        name, f"the proxy reads at most {MOST_BYTES} bytes of elements, and there are more"
    )


class Held:
    """What all requests of a worker keep."""

    def __init__(self) -> None:
        self.bytes = 0


class Sets:
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

    def __enter__(self) -> "Sets":
        return self

    def __exit__(self, *_: object) -> None:
        # What comes later is not kept.
        self._over = True
        self._held.bytes -= self.bytes

    async def sets(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The replies with all members of each key. Raises Answered with the first error."""
        asked = {key: await self.ask(key, [b"SMEMBERS", key]) for key in dict.fromkeys(keys)}
        return {key: _no_error(await reply) for key, reply in asked.items()}

    async def sorted_sets(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The replies with all members and scores of each key; those of a set are 1. Raises Answered likewise."""
        asked = {key: await self.ask(key, [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]) for key in dict.fromkeys(keys)}
        said: dict[bytes, bytes] = {}
        for key, reply in asked.items():
            said[key] = await reply
            if said[key].startswith(WRONG_TYPE):
                # It takes a set, too, and makes a sorted set of it, which costs the server more.
                said[key] = await (await self.ask(key, [b"ZUNION", b"1", key, b"WITHSCORES"]))
            _no_error(said[key])
        return said

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
        instead = too_large(address, MOST_BYTES)

        def keep(reply: bytes) -> bytes:
            return too_many_bytes(self._name) if reply == instead else self._keep(reply)

        return slotrequests.send(self._router, slot, backend, command(tuple(request)), 0, keep, MOST_BYTES)

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


def _no_error(reply: bytes) -> bytes:
    if reply.startswith(b"-"):
        raise Answered(reply)
    return reply
