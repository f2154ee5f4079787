"""Claims on keys that are copied in pieces: while one is held, nobody runs a command on the key at the target.

The scripts that move keys take a claimed key for one that is at the source, even when it has expired there meanwhile
(**absent-first**): else a client could make it anew at the target, and the last step of the copy would replace that.
A claim is a field of the hash :data:`slots.moving.STATE` at the source and is given back in the same step in which the
key is deleted there. It outlives the permit under which it was made (:mod:`slots.permits`), for copying takes long;
those of earlier calls go when a call begins.
"""

from __future__ import annotations

import secrets
from enum import Enum

from migrator.connection import Connection
from slots import moving
from slots.moving import DROP, HOLDS, IN_PIECES, SELECT, STATE, UNSETTLED
from slots.replies import integer

_CLAIM = (
    SELECT
    + HOLDS
    + """
local key, permit, database, claimant = KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if not holds('permit', permit, '0') then return unsettled() end
redis.call('SELECT', database)
if redis.call('EXISTS', key) == 0 then return 'absent' end
redis.call('SELECT', '0')
redis.call('HDEL', state, '')  -- a write that is let through at maxmemory, see slots/moving.py
if redis.call('HSETNX', state, 'claim:' .. database .. ':' .. key, claimant) == 0 then return 'taken' end
return 'held'
"""
)
_HELD = (
    SELECT
    + HOLDS
    + """
if not holds('permit', ARGV[1], '0') then return unsettled() end
return redis.call('HGET', state, 'claim:' .. ARGV[2] .. ':' .. KEYS[2]) == ARGV[3] and 1 or 0
"""
)


class Claimed(Enum):
    """What came of asking for a claim, or of looking at it."""

    HELD = b"held"
    ABSENT = b"absent"
    TAKEN = b"taken"
    UNSETTLED = b"unsettled"


class Claims:
    """The claims that one connection to the source asks for. Each is asked for by the permit that holds."""

    def __init__(self, source: Connection) -> None:
        self._source = source
        self._claimant = IN_PIECES + secrets.token_hex(8)

    async def take(self, database: int, key: bytes, permit: str) -> Claimed:
        """Claim a key, if it is there and nobody else has claimed it."""
        said = await self._call("EVAL", _CLAIM, 2, STATE, key, permit, database, self._claimant)
        if said is None:
            return Claimed.UNSETTLED
        with self._source.understood("EVAL"):
            return Claimed(said)

    async def look(self, database: int, key: bytes, permit: str) -> Claimed:
        """Whether the claim is there still: HELD, ABSENT or UNSETTLED. A flush by a client takes it away."""
        said = await self._call("EVAL", _HELD, 2, STATE, key, permit, database, self._claimant)
        if said is None:
            return Claimed.UNSETTLED
        with self._source.understood("EVAL"):
            return Claimed.HELD if integer(said) else Claimed.ABSENT

    async def release(self, database: int, key: bytes, permit: str, *, delete: bool) -> bool:
        """Give the claim back, and delete the key in the same step if it has moved. False if the permit is another."""
        arguments = moving.drop_arguments(
            permit, database, self._claimant, [key], check=False, deletes=1 if delete else 0
        )
        said = await self._call("EVAL", DROP.text, *arguments)
        if said is None:
            return False
        with self._source.understood("EVAL"):
            moving.dropped(said, 1)
        return True

    async def _call(self, *command: str | bytes | int) -> object:
        """The reply; None if the permit does not hold."""
        try:
            reply: object = await self._source.call(*command)
        except self._source.refused as error:
            if error.reply.startswith(UNSETTLED):
                return None
            raise
        return reply
