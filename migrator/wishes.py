"""Hears which keys clients wait for: proxies write them down at the source, in the list :data:`slots.moving.WANTED`.

Where keys are carried (:mod:`migrator.carrying`) clients ask for small ones, too, and for many: all that were asked for
while the last ones were on their way are carried together. None of them waits for a big one, which goes in pieces.

**bounded**: :data:`MOST_HEARD` keys are taken off the list at a time, and carried in steps of :data:`STEP_BYTES`; the
list's own length is bounded by :data:`slots.moving.MOST_WANTED`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby

import hiredis

from migrator.carrying import Carrier
from migrator.connection import Connection, pack
from migrator.progress import Progress
from slots.moving import WANTED

LISTEN_SECONDS = 1
"""How long one look at the list lasts."""
MOST_HEARD = 200
TAKE = pack("LPOP", WANTED, MOST_HEARD)
TAKE_FROM_OLD = pack("LRANGE", WANTED, 0, MOST_HEARD - 1) + pack("LTRIM", WANTED, MOST_HEARD, -1)
"""The same for servers before Redis 6.2, whose LPOP has no count. Nobody else takes anything off the list, and proxies
add to its other end; a transaction would be refused by a server that is out of memory."""
STEP_BYTES = 512 * 1024
"""Bytes after which a step takes no more keys: the source serves nobody else while it serializes them."""

Place = tuple[int, bytes]
"""Database and key."""


class Wishes:
    """What clients ask for.

    Args:
        listening: to the source; a reply to it is waited for longer than to others.
        source: to the source as well, over which ``carrier`` reads.
        carrier: carries the small keys among them; None where proxies move these themselves.
        is_ours: says whether a key belongs to the slots that are moved.
        progress: is told what is carried.
        under_way: what is moved now, by whomever; done with when the event is set.
    """

    def __init__(
        self,
        listening: Connection,
        source: Connection,
        carrier: Carrier | None,
        is_ours: Callable[[bytes], bool],
        progress: Progress,
        under_way: dict[Place, asyncio.Event],
    ) -> None:
        self._listening = listening
        self._source = source
        self._carrier = carrier
        self._is_ours = is_ours
        self._progress = progress
        self._under_way = under_way
        self._limit = LISTEN_SECONDS + listening.reply_seconds
        self._has_count = True

    async def next_big(self) -> list[Place]:
        """Listen for a while, and carry what is small; give the keys that have to go in pieces, or do so already.

        Raises what :meth:`migrator.carrying.Carrier.move` does.
        """
        places = await self._heard()
        if self._carrier is None:
            return places
        big = [place for place in places if place in self._under_way]
        mine = sorted(place for place in places if place not in self._under_way)
        # Who finds one of them meanwhile waits for it: the scan is not to go over it again and again.
        done = asyncio.Event()
        self._under_way.update(dict.fromkeys(mine, done))
        try:
            for database, some in groupby(mine, key=lambda place: place[0]):
                big += [(database, key) for key in await self._carry(database, [key for _, key in some])]
        finally:
            for place in mine:
                del self._under_way[place]
            done.set()
        return big

    async def _heard(self) -> list[Place]:
        entries = await self._taken()
        if not entries:
            heard = await self._listening.call("BLPOP", WANTED, LISTEN_SECONDS, limit=self._limit)
            entries = [] if heard is None else [heard[1]]
        places: dict[Place, None] = {}
        for entry in entries:
            database, _, key = entry.partition(b":")
            if self._is_ours(key):
                places[int(database), key] = None
        return list(places)

    async def _taken(self) -> list[bytes] | None:
        """What is on the list, :data:`MOST_HEARD` entries at most; None or nothing if it is empty."""
        if self._has_count:
            (said,) = await self._listening.send(TAKE, 1)
            if not isinstance(said, hiredis.ReplyError):
                entries: list[bytes] | None = said
                return entries
            if "wrong number of arguments" not in str(said):
                raise self._listening.refusal(said)
            self._has_count = False
        for reply in (replies := await self._listening.send(TAKE_FROM_OLD, 2)):
            if isinstance(reply, hiredis.ReplyError):
                raise self._listening.refusal(reply)
        taken: list[bytes] = replies[0]
        return taken

    async def _carry(self, database: int, keys: list[bytes]) -> list[bytes]:
        assert self._carrier is not None
        await self._source.select(database)
        big: list[bytes] = []
        while keys:
            moved, _ = await self._carrier.move(database, keys, STEP_BYTES)
            self._progress.moved(moved.moved, moved.bytes)
            big += [keys[place] for place in moved.big]
            keys = keys[moved.looked_at :]
        return big
