"""Reads the sets of one request at their owners, each at one moment: see :mod:`proxy.commands.keyreads`."""

from collections.abc import Iterable

from proxy.commands.keyreads import WRONG_TYPE, Held, KeyReads
from proxy.engine.outcomes import Answered
from proxy.engine.router import Router
from proxy.engine.session import Session


class Sets(KeyReads):
    """The sets of one request. The arguments are the same."""

    def __init__(self, router: Router, session: Session, name: str, held: Held) -> None:
        super().__init__(router, session, name, held)
        self.without_scores: set[bytes] = set()
        """The keys of sorted sets that have a set."""

    async def sets(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The replies with all members of each key. Raises Answered with the first error."""
        asked = {key: await self.ask(key, [b"SMEMBERS", key]) for key in dict.fromkeys(keys)}
        return {key: _no_error(await reply) for key, reply in asked.items()}

    async def sorted_sets(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The replies with all members and scores of each key, or, of those that have a set, with the members. Raises
        Answered likewise."""
        asked = {key: await self.ask(key, [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]) for key in dict.fromkeys(keys)}
        said: dict[bytes, bytes] = {}
        for key, reply in asked.items():
            said[key] = await reply
            if said[key].startswith(WRONG_TYPE):
                self.without_scores.add(key)
                said[key] = await (await self.ask(key, [b"SMEMBERS", key]))
            _no_error(said[key])
        return said


def _no_error(reply: bytes) -> bytes:
    if reply.startswith(b"-"):
        raise Answered(reply)
    return reply
