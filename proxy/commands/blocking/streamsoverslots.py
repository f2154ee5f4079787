"""XREAD of streams of several slots: each stream is read at its owner, and the proxy joins the replies.

A stream's read goes the way of every command about one key, with its own id (:mod:`proxy.commands.keyreads`). Where
something is wrong with several, the error is that of the first one, as in Redis.
"""

from collections.abc import Iterable, Sequence

from proxy.commands.blocking.blockingrequest import nothing_came
from proxy.commands.blocking.streamreads import StreamRead
from proxy.commands.keyreads import Held, KeyReads
from proxy.commands.services import Services
from proxy.engine.session import Session

NAME = "XREAD"
NOTHING = (b"*-1\r\n", b"_\r\n")
"""Replies about one stream without such entries."""
ONE_STREAM = (b"*1\r\n", b"%1\r\n")
"""The beginnings of replies with entries of one stream."""


def joined(said: Iterable[bytes], protocol: int) -> bytes | None:
    """The client's reply from those about one stream each: the entries, or the first error. None if there are none."""
    found = []
    for reply in said:
        if reply in NOTHING:
            continue
        if not reply.startswith(ONE_STREAM):
            return reply
        found.append(reply[len(ONE_STREAM[0]) :])
    if not found:
        return None
    return b"%b%d\r\n%b" % (b"%" if protocol == 3 else b"*", len(found), b"".join(found))


class StreamsOverSlots:
    """The requests of one worker.

    Args:
        services: the worker's parts.
        held: what all requests of the worker keep.
    """

    def __init__(self, services: Services, held: Held) -> None:
        self._router = services.router
        self._held = held

    async def read(self, session: Session, argv: Sequence[bytes], how: StreamRead) -> bytes:
        """XREAD without BLOCK.

        Raises:
            Answered: a key was not let through.
        """
        with KeyReads(self._router, session, NAME, self._held) as reads:
            asked = [await reads.ask(argv[key], how.of_one(argv, key)) for key in how.keys]
            reply = joined([await said for said in asked], session.protocol)
        return nothing_came(session.protocol) if reply is None else reply
