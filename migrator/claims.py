"""Claims on keys that go in pieces: while one is held, nobody runs a command on the key at the target.

The scripts that move keys take a claimed key for one that is at the source, even when it has expired there meanwhile
(**absent-first**): else a client could make it anew at the target, and the last step of the copy would replace that.
A claim is a field of the hash :data:`slots.moving.STATE` at the source and is given back in the same atomic step in
which the key is deleted there. Claims of earlier calls are dropped once the connections of those are ended.
"""

from __future__ import annotations

import secrets
from enum import Enum

from migrator.connection import Connection
from slots.moving import STATE, UNSETTLED

_CLAIM = """
local state, key, permit, database, token = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
redis.call('SELECT', '0')
if redis.call('HGET', state, 'permit') ~= permit then return {err = 'UNSETTLED the permit has to be renewed'} end
redis.call('SELECT', database)
if redis.call('EXISTS', key) == 0 then return 'absent' end
redis.call('SELECT', '0')
redis.call('HDEL', state, '')  -- a write that is let through at maxmemory, see slots/moving.py
if redis.call('HSETNX', state, 'claim:' .. database .. ':' .. key, token) == 0 then return 'taken' end
return 'held'
"""

_RELEASE = """
local state, key, database, token, delete = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local field = 'claim:' .. database .. ':' .. key
redis.call('SELECT', '0')
if redis.call('HGET', state, field) ~= token then return 0 end
if delete == '1' then
  redis.call('SELECT', database)
  redis.call('UNLINK', key)
  redis.call('SELECT', '0')
end
redis.call('HDEL', state, field)
return 1
"""

_HELD = """
redis.call('SELECT', '0')
return redis.call('HGET', KEYS[1], 'claim:' .. ARGV[1] .. ':' .. KEYS[2]) == ARGV[2] and 1 or 0
"""

_DROP = """
redis.call('SELECT', '0')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'claim:' then redis.call('HDEL', KEYS[1], field) end
end
"""


class Claimed(Enum):
    """What came of asking for a claim."""

    HELD = b"held"
    ABSENT = b"absent"
    TAKEN = b"taken"
    UNSETTLED = b"unsettled"


class Claims:
    """The claims that one connection to the source asks for."""

    def __init__(self, source: Connection) -> None:
        self._source = source
        self._token = secrets.token_hex(8)

    async def take(self, database: int, key: bytes, permit: str) -> Claimed:
        """Claim a key, if it is there and nobody else has claimed it; it needs the ``permit`` that holds."""
        try:
            said = await self._source.call("EVAL", _CLAIM, 2, STATE, key, permit, database, self._token)
        except self._source.refused as error:
            if error.reply.startswith(UNSETTLED):
                return Claimed.UNSETTLED
            raise
        return Claimed(said)

    async def hold(self, database: int, key: bytes) -> bool:
        """Whether the claim is there still. A client that flushes the source takes it along with the keys."""
        return bool(await self._source.call("EVAL", _HELD, 2, STATE, key, database, self._token))

    async def release(self, database: int, key: bytes, *, delete: bool) -> bool:
        """Give a claim back, and UNLINK the key in the same step if it has moved. False if it was lost before."""
        return bool(
            await self._source.call("EVAL", _RELEASE, 2, STATE, key, database, self._token, "1" if delete else "0")
        )


async def drop_claims(source: Connection) -> None:
    """Drop all claims: of calls whose connections are ended, at both servers."""
    await source.call("EVAL", _DROP, 1, STATE)
