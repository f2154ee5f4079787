"""Reads the sets of one request at their owners, each at one moment: see :mod:`proxy.commands.keyreads`."""

from collections.abc import Iterable

from proxy.commands.keyreads import WRONG_TYPE, KeyReads
from proxy.engine.outcomes import Answered


class Sets(KeyReads):
    """The sets of one request."""

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


def _no_error(reply: bytes) -> bytes:
    if reply.startswith(b"-"):
        raise Answered(reply)
    return reply
