"""Takes from the first key that has something, for a request whose keys are of several slots.

The keys are looked at one by one, in the request's order, with a pop that does not wait: LPOP for BLPOP, and LMPOP of
this one key for LMPOP. A pop goes the way of every command about its key: it waits for a locked slot, and in a
migration until the key has left the source (**absent-first**, **drained**). A pop whose outcome is unknown ends the
request with its error: nothing is ever taken for it a second time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.commands import replies
from proxy.commands.blocking.keywait import LIST, SORTED_SET
from proxy.engine.backend import command
from proxy.engine.outcomes import clear
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots import commands

MOST_KEYS = 1000
NOTHING = (b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"*0\r\n")
"""Replies of pops that have found nothing."""
NO_TYPE = b"+none\r\n"


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


POPS = {
    b"BLPOP": Pop(b"LPOP", LIST, _with_key),
    b"BRPOP": Pop(b"RPOP", LIST, _with_key),
    b"BZPOPMIN": Pop(b"ZPOPMIN", SORTED_SET, _with_key_and_score),
    b"BZPOPMAX": Pop(b"ZPOPMAX", SORTED_SET, _with_key_and_score),
    b"BLMPOP": Pop(b"LMPOP", LIST, counted=True),
    b"BZMPOP": Pop(b"ZMPOP", SORTED_SET, counted=True),
    b"LMPOP": Pop(b"LMPOP", LIST, counted=True),
    b"ZMPOP": Pop(b"ZMPOP", SORTED_SET, counted=True),
}


class PassedOnError(Exception):
    """The client gets a long reply as it comes."""


class FirstKey:
    """One request.

    Args:
        router: the worker's.
        session: whose request it is.
        argv: the request.
        stopped: whether nothing is to be taken for it any more.
        at_front: whether it is at the front of its session, which is owed nothing, when it takes.
    """

    def __init__(
        self,
        router: Router,
        session: Session,
        argv: Sequence[bytes],
        stopped: Callable[[], bool] = lambda: False,
        at_front: bool = False,
    ) -> None:
        places = commands.key_positions(commands.find(argv), argv)
        self.pop = POPS[argv[0].upper()]
        self.keys = list(dict.fromkeys(argv[place] for place in places))
        self._router = router
        self._session = session
        self._options = argv[places[-1] + 1 :]
        self._stopped = stopped
        self._passes_on = at_front and self.pop.reply is _as_it_is

    async def first(self, leaves_to_others: Callable[[bytes], bool] = lambda key: False) -> bytes:
        """The reply: what the first key that has something gives, or an error, or one of :data:`NOTHING`.

        Args:
            leaves_to_others: whether others come first at a key. Then it is only seen whether it has the right type.

        Raises:
            Answered: a key was not let through.
            PassedOnError: the reply is on its way.
        """
        said = NOTHING[0]
        for key in self.keys:
            if self._stopped():
                break
            if leaves_to_others(key):
                kind = await self._ask(key, [b"TYPE", key])
                if kind in (NO_TYPE, b"+%b\r\n" % self.pop.kind):
                    continue
            said = await self.take(key)
            if said not in NOTHING:
                break
        return said

    async def take(self, key: bytes) -> bytes:
        """The reply: what one key gives, or an error, or one of :data:`NOTHING`. Raises Answered likewise."""
        pop = self.pop
        said = await self._ask(key, [pop.name, b"1", key, *self._options] if pop.counted else [pop.name, key])
        return said if said.startswith(b"-") or said in NOTHING else pop.reply(key, said)

    async def _ask(self, key: bytes, request: Sequence[bytes]) -> bytes:
        """The reply to a request about one key, once its way is free; of nothing, if it was stopped before."""
        slot, address = await clear([key])
        # It has not been sent, so nothing is taken for a client that is gone.
        if self._stopped():
            return NOTHING[0]
        backend = self._router.shared(self._session, address)
        payload = command(tuple(request))
        if not self._passes_on:
            return await slotrequests.send(self._router, slot, backend, payload, 0, slotrequests.as_it_came)
        name = self.pop.name.decode().lower()
        said = await slotrequests.pass_on(self._router, slot, backend, payload, self._session, name)
        if not isinstance(said, bytes):
            raise PassedOnError
        return said
