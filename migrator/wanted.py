"""Hears which big keys clients wait for: proxies add them to the list :data:`slots.reserved.WANTED` at the source.

**bounded**: at most :data:`MOST_HEARD` keys are taken off the list at a time. :data:`slots.moving.MOST_WANTED` bounds
its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import hiredis

from migrator.connection import Connection, pack
from slots.reserved import WANTED

LISTEN_SECONDS = 1
"""How long one request to the list waits."""
MOST_HEARD = 200
TAKE = pack("LPOP", WANTED, MOST_HEARD)
TAKE_FROM_OLD = pack("LRANGE", WANTED, 0, MOST_HEARD - 1) + pack("LTRIM", WANTED, MOST_HEARD, -1)
"""The same for servers before Redis 6.2, whose LPOP has no count. No other process takes anything off the list, and
proxies add to its other end. A transaction would be refused by a server that is out of memory."""

ENTRY = re.compile(rb"(\d{1,9}):(.*)", re.DOTALL)
"""Of the list: the number of the database, and the key."""

Place = tuple[int, bytes]
"""Database and key."""


class WantedList:
    """The keys that clients ask for.

    Args:
        listening: to the source; a reply to it is waited for longer than to others.
        is_ours: says whether a key of a database belongs to the slots that are moved.
    """

    def __init__(self, listening: Connection, is_ours: Callable[[int, bytes], bool]) -> None:
        self._listening = listening
        self._is_ours = is_ours
        self._limit = LISTEN_SECONDS + listening.reply_seconds
        self._has_count = True

    async def next(self) -> list[Place]:
        """Listen for a while; give the keys that were asked for. Raises the errors of the connection."""
        entries = await self._taken()
        if not entries:
            heard = await self._listening.call("BLPOP", WANTED, LISTEN_SECONDS, limit=self._limit)
            entries = [] if heard is None else [heard[1]]
        places: dict[Place, None] = {}
        for entry in entries:
            # Whoever may write at the server may have put in something else.
            written = ENTRY.fullmatch(entry)
            if written is not None:
                place = int(written[1]), written[2]
                if self._is_ours(*place):
                    places[place] = None
        return list(places)

    async def _taken(self) -> list[bytes] | None:
        """Entries of the list, :data:`MOST_HEARD` at most; None or nothing if it is empty."""
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
