"""BLPOP and its like for keys of several slots: they wait without taking, and then take from one key.

A request looks at its keys one by one, in its order, with a pop that does not wait (LPOP for BLPOP), and ends with the
first that gives something. A pop goes the way of every command about its key: it waits for a locked slot, and in a
migration until the key has left the source (**absent-first**, **drained**). A pop whose outcome is unknown ends the
request with its error: nothing is ever taken for it a second time.

If no key gives anything, the client waits (:mod:`proxy.commands.blocking.waitedkeys`), and nothing is under way for it.
When its turn comes to look at a key, it looks, and waits again if there is nothing. So what was pushed stays at its
server until a client that is there is about to get it, and a proxy that dies takes nothing along.

The client of a worker that has waited longest comes first. So a request that finds others waiting for a key leaves it
to them, once it has seen that the key has the right type.

**bounded**: a request has :data:`MOST_KEYS` keys.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.commands import replies
from proxy.commands.blocking.waitedkeys import FULL, FullError, KeyWait, WaitedKeys
from proxy.commands.blocking.waiter import UNBLOCKED, Waiter
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Answered, Reply, clear
from proxy.engine.refusals import LEFT
from proxy.servers import slotrequests
from slots import commands

MOST_KEYS = 1000
WRONG_TYPE = b"-WRONGTYPE "
LIST = b"list"
SORTED_SET = b"zset"
NOTHING = (b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"*0\r\n")
"""Replies of pops that have found nothing."""
NO_TYPE = b"+none\r\n"
NOT_NOW = (b"-BUSY ", b"-LOADING ", b"-MASTERDOWN ", b"-MISCONF ", b"-NOREPLICAS ", b"-READONLY ")
"""Errors by which a server says that it has run nothing, and may later. As in Redis, who waits goes on waiting."""


def _with_key(key: bytes, said: bytes) -> bytes:
    """The reply of BLPOP, from that of LPOP."""
    return b"*2\r\n" + replies.bulk(key) + said


def _with_key_and_score(key: bytes, said: bytes) -> bytes:
    """The reply of BZPOPMIN, from that of ZPOPMIN."""
    return b"*3\r\n" + replies.bulk(key) + said.removeprefix(b"*2\r\n")


def _as_it_is(key: bytes, said: bytes) -> bytes:
    return said


@dataclass(frozen=True, slots=True)
class Pop:
    """How a command takes from one key without waiting: by which command, of which type, and what its reply becomes."""

    name: bytes
    kind: bytes
    reply: Callable[[bytes, bytes], bytes] = _as_it_is
    counted: bool = False
    """Whether it has options behind its keys, and the number of keys before them."""

    def request(self, argv: Sequence[bytes], last: int, key: bytes) -> list[bytes]:
        """The pop from one key; ``last`` is the place of the last key in ``argv``."""
        return [self.name, b"1", key, *argv[last + 1 :]] if self.counted else [self.name, key]


POPS = {
    b"BLPOP": Pop(b"LPOP", LIST, _with_key),
    b"BRPOP": Pop(b"RPOP", LIST, _with_key),
    b"BZPOPMIN": Pop(b"ZPOPMIN", SORTED_SET, _with_key_and_score),
    b"BZPOPMAX": Pop(b"ZPOPMAX", SORTED_SET, _with_key_and_score),
    b"BLMPOP": Pop(b"LMPOP", LIST, counted=True),
    b"BZMPOP": Pop(b"ZMPOP", SORTED_SET, counted=True),
}


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
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self.keys = WaitedKeys(services)

    def takes(self, database: int, name: bytes, keys: Sequence[bytes]) -> bool:
        """Whether a request is one of these: its keys are of several slots, and it can wait for them."""
        return name.upper() in POPS and len({self._router.slot_of_key(database, key) for key in keys}) > 1

    async def take(self, waiter: Waiter) -> bytes:
        """Take from the first key that has something; the client's reply, or UNBLOCKED if the waiter was stopped.

        Raises:
            Answered: a key was not let through.
        """
        taking = Taking(self._router.loop.event_loop)
        waiter.commands = [taking]
        reply = b""
        try:
            reply = await self._take(waiter)
        finally:
            taking.end(reply == UNBLOCKED)
        return reply

    async def _take(self, waiter: Waiter) -> bytes:
        session, argv = waiter.session, waiter.request.argv
        pop = POPS[argv[0].upper()]
        places = commands.key_positions(commands.find(argv), argv)
        keys = list(dict.fromkeys(argv[place] for place in places))
        if len(keys) > MOST_KEYS:
            name = argv[0].upper().decode()
            return replies.refused_over_slots(name, f"the proxy waits for at most {MOST_KEYS} keys")
        last = places[-1]
        for key in keys:
            if waiter.stopped:
                return UNBLOCKED
            request = pop.request(argv, last, key)
            if self.keys.is_waited_for(session.database, pop.kind, key):
                kind = await self._ask(waiter, key, [b"TYPE", key])
                if kind in (NO_TYPE, b"+%b\r\n" % pop.kind):
                    continue
            said = await self._ask(waiter, key, request)
            if said not in NOTHING:
                return said if said.startswith(b"-") else pop.reply(key, said)
        if waiter.stopped:
            return UNBLOCKED
        try:
            wait = self.keys.add(waiter, pop.kind, keys)
        except FullError:
            return FULL
        try:
            return await self._wait(waiter, wait, pop, last)
        finally:
            self.keys.remove(wait)

    async def _wait(self, waiter: Waiter, wait: KeyWait, pop: Pop, last: int) -> bytes:
        session, request = waiter.session, waiter.request
        event_loop = self._router.loop.event_loop
        timer = None if request.deadline is None else event_loop.call_at(request.deadline, wait.time_is_over)
        try:
            while True:
                if waiter.stopped:
                    return UNBLOCKED
                if wait.failed is not None:
                    return wait.failed
                if wait.is_over:
                    return request.nothing(session.protocol)
                key = wait.turn
                if key is None:
                    waiter.parked = Reply(loop=event_loop)
                    await waiter.parked
                    waiter.parked = None
                    continue
                address = self.keys.owner(key)
                backend = None if address is None else self._router.shared(session, address)
                if backend is None or not backend.open() or not backend.is_ready:
                    self.keys.has_to_look_later(wait)
                    continue
                try:
                    said = await self._ask(waiter, key.name, pop.request(request.argv, last, key.name))
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
                    return pop.reply(key.name, said)
                # As in Redis, a key of another type is none for those who wait.
                if said.startswith(b"-") and not said.startswith(WRONG_TYPE):
                    return said
                self.keys.has_looked(wait)
        finally:
            waiter.parked = None
            if timer is not None:
                timer.cancel()

    async def _ask(self, waiter: Waiter, key: bytes, request: Sequence[bytes]) -> bytes:
        """The reply to a request about one key, once its way is free; of nothing, if the waiter was stopped before."""
        slot, address = await clear([key])
        # It has not been sent, so nothing is taken for a client that is gone.
        if waiter.stopped:
            return NOTHING[0]
        backend = self._router.shared(waiter.session, address)
        return await slotrequests.send(self._router, slot, backend, command(tuple(request)), 0, slotrequests.as_it_came)
