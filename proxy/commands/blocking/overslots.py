"""BLPOP and its like for keys of several slots: they wait without taking, and then take from one key.

XREAD waits likewise, and takes nothing (:mod:`proxy.commands.blocking.streamsoverslots`).

A request takes from the first of its keys that has something (:mod:`proxy.commands.blocking.firstkey`).

If no key gives anything, the client waits (:mod:`proxy.commands.blocking.waitedkeys`), and nothing is under way for it.
When its turn comes to look at a key, it looks, and waits again if there is nothing. So what was pushed stays at its
server until a client that is there is about to get it, and a proxy that dies takes nothing along.

The client of a worker that has waited longest comes first. So a request that finds others waiting for a key leaves it
to them, once it has seen that the key has the right type.

**bounded**: a request has :data:`proxy.commands.blocking.firstkey.MOST_KEYS` keys.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from proxy.commands import replies
from proxy.commands.blocking.firstkey import MOST_KEYS, NOTHING, POPS, FirstKey, PassedOnError
from proxy.commands.blocking.keywait import KeyWait
from proxy.commands.blocking.streamsoverslots import StreamsOverSlots
from proxy.commands.blocking.waitedkeys import FULL, NOT_NOW, FullError, WaitedKeys
from proxy.commands.blocking.waiter import UNBLOCKED, Waiter
from proxy.commands.family import Decided
from proxy.commands.keyreads import WRONG_TYPE, Held, are_apart
from proxy.commands.services import Services
from proxy.engine.outcomes import NO_REPLY, Answered, Outcome, nothing_owed
from proxy.engine.refusals import LEFT
from proxy.engine.session import Session

READ = b"XREAD"


class Taking:
    """A request that looks at its keys, or waits to: see :class:`proxy.commands.blocking.waiter.Running`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._unblocked: asyncio.Future[bool] = loop.create_future()

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self._unblocked.done()

    def stop(self, reason: bytes) -> None:
        """A pop that is under way is not given up. Its outcome decides."""

    async def unblocked(self) -> bool:
        """Whether it was ended because it was stopped. Waits until that is known."""
        return await asyncio.shield(self._unblocked)

    def end(self, unblocked: bool) -> None:
        """It has come to its end."""
        self._unblocked.set_result(unblocked)


class OverSlots:
    """The requests of one worker.

    Args:
        services: the worker's parts.
        held: what all requests over several slots keep.
    """

    def __init__(self, services: Services, held: Held) -> None:
        self._router = services.router
        self.keys = WaitedKeys(services)
        self.streams = StreamsOverSlots(services, held, self.keys)

    def takes(self, database: int, name: bytes, keys: Sequence[bytes]) -> bool:
        """Whether a request is one of these: its keys are of several slots, and it can wait for them."""
        return (name.upper() in POPS or name.upper() == READ) and are_apart(self._router, database, keys)

    def take_now(self, session: Session, argv: list[bytes]) -> Decided:
        """LMPOP and ZMPOP: they do not wait."""
        looking = FirstKey(self._router, session, argv, at_front=True)
        if not self.takes(session.database, argv[0], looking.keys):
            return looking.keys
        if len(looking.keys) > MOST_KEYS:
            name = argv[0].upper().decode()
            return replies.refused_over_slots(name, f"the proxy looks at {MOST_KEYS} keys at most")
        return self._take_now(looking)

    async def _take_now(self, looking: FirstKey) -> Outcome:
        # in-order: a long reply goes to the client as it comes.
        await nothing_owed()
        try:
            return await looking.first()
        except PassedOnError:
            return NO_REPLY

    async def take(self, waiter: Waiter) -> bytes:
        """Take from the first key that has something, or read the streams; the client's reply, or UNBLOCKED if the
        waiter was stopped.

        Raises:
            Answered: a key was not let through.
        """
        taking = Taking(self._router.loop.event_loop)
        waiter.commands = [taking]
        reply = b""
        try:
            reply = await (self.streams.wait(waiter) if waiter.request.argv[0].upper() == READ else self._take(waiter))
        finally:
            taking.end(reply == UNBLOCKED)
        return reply

    async def _take(self, waiter: Waiter) -> bytes:
        session, argv = waiter.session, waiter.request.argv
        looking = FirstKey(self._router, session, argv, lambda: waiter.stopped)
        keys, kind = looking.keys, looking.pop.kind
        if len(keys) > MOST_KEYS:
            name = argv[0].upper().decode()
            return replies.refused_over_slots(name, f"the proxy waits for at most {MOST_KEYS} keys")
        said = await looking.first(partial(self.keys.is_waited_for, session.database, kind))
        if said not in NOTHING:
            return said
        if waiter.stopped:
            return UNBLOCKED
        try:
            wait = self.keys.add(waiter, kind, keys)
        except FullError:
            return FULL
        try:
            return await self._wait(waiter, wait, looking)
        finally:
            self.keys.remove(wait)

    async def _wait(self, waiter: Waiter, wait: KeyWait, looking: FirstKey) -> bytes:
        session, event_loop = waiter.session, self._router.loop.event_loop
        with wait.limited(event_loop, waiter.request.deadline):
            while True:
                over = await wait.look_out(event_loop)
                if over is not None:
                    return over
                key = wait.turn
                if key is None:
                    continue
                if not self.keys.can_be_asked(session, key):
                    self.keys.has_to_look_later(wait)
                    continue
                try:
                    said = await looking.take(key.name)
                except Answered as answered:
                    if session.closed or answered.reply == LEFT:
                        raise
                    # The key was not let through, and may be later.
                    self.keys.has_to_look_later(wait)
                    continue
                if said.startswith(NOT_NOW):
                    self.keys.has_to_look_later(wait)
                    continue
                if not said.startswith(b"-") and said not in NOTHING:
                    self.keys.has_looked(wait)
                    return said
                # As in Redis, a key of another type is none for those who wait.
                if said.startswith(b"-") and not said.startswith(WRONG_TYPE):
                    return said
                self.keys.has_looked(wait)
