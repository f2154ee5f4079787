"""Claims on keys that we take to the target ourselves: while one is held, nobody runs a command on it there.

The scripts that move keys take a claimed key for one that is at the source, even when it has expired there meanwhile
(**absent-first**): else a client could make it anew at the target, and the last step of the copy would replace that.
A claim is a field of the hash :data:`slots.moving.STATE` at the source and is given back in the same atomic step in
which the key is deleted there. Claims of earlier calls are dropped once the connections of those are ended,
and with them the permit.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum

from migrator.connection import Connection
from slots.connections import BY_EFFECTS
from slots.moving import LOOK_AT, STATE, UNLINK, UNSETTLED, places
from slots.replies import NotUnderstood, integer, items

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

_TAKE_AND_DUMP = (
    BY_EFFECTS
    + LOOK_AT
    + """
local state, permit, database, token = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local most_elements, most_bytes, enough_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
redis.call('SELECT', '0')
if redis.call('HGET', state, 'permit') ~= permit then return {err = 'UNSETTLED the permit has to be renewed'} end
redis.call('HDEL', state, '')  -- a write that is let through at maxmemory, see slots/moving.py

local function deadline_of(key)
  local deadline = redis.pcall('PEXPIRETIME', key)
  if type(deadline) == 'number' then return deadline end
  local left = redis.call('PTTL', key)  -- before Redis 7
  if left < 0 then return left end
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000) + left
end

local big, taken, payloads, deadlines, size, done = {}, {}, {}, {}, 0, 0
for index = 2, #KEYS do
  if size >= enough_bytes then break end
  local key, field = KEYS[index], 'claim:' .. database .. ':' .. KEYS[index]
  done = index - 1
  redis.call('SELECT', '0')
  local claimed = redis.call('HEXISTS', state, field) == 1
  redis.call('SELECT', database)
  local bytes, elements = look_at(key, most_elements)
  if claimed then
    big[#big + 1] = done
  elseif bytes then
    if bytes > most_bytes or elements > most_elements then
      big[#big + 1] = done
    else
      local payload = redis.call('DUMP', key)
      if payload then
        taken[#taken + 1] = done
        payloads[#payloads + 1] = payload
        deadlines[#deadlines + 1] = deadline_of(key)
        size = size + bytes
        redis.call('SELECT', '0')
        redis.call('HSET', state, field, token)
      end
    end
  end
end
return {done, size, big, taken, payloads, deadlines}
"""
)

_RELEASE = (
    UNLINK
    + """
local state, database, token, delete = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local released = 0
for index = 2, #KEYS do
  local field = 'claim:' .. database .. ':' .. KEYS[index]
  redis.call('SELECT', '0')
  if redis.call('HGET', state, field) == token then
    released = released + 1
    if delete == '1' then
      redis.call('SELECT', database)
      unlink(KEYS[index])
      redis.call('SELECT', '0')
    end
    redis.call('HDEL', state, field)
  end
end
return released
"""
)

_HELD = """
redis.call('SELECT', '0')
local held = 0
for index = 2, #KEYS do
  if redis.call('HGET', KEYS[1], 'claim:' .. ARGV[1] .. ':' .. KEYS[index]) == ARGV[2] then held = held + 1 end
end
return held
"""

_DROP = """
redis.call('SELECT', '0')
local dropped = false
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'claim:' then
    redis.call('HDEL', KEYS[1], field)
    dropped = true
  end
end
if dropped then
  redis.call('HDEL', KEYS[1], 'permit')
  redis.call('HSET', KEYS[1], 'unsettled', ARGV[1])
end
"""


class Claimed(Enum):
    """What came of asking for a claim."""

    HELD = b"held"
    ABSENT = b"absent"
    TAKEN = b"taken"
    UNSETTLED = b"unsettled"


@dataclass(frozen=True, slots=True)
class Dumped:
    """Keys that were claimed and serialized.

    Attributes:
        looked_at: how many of the keys, from the first on, were looked at; those not named below are absent.
        size: bytes of memory of the claimed ones at the source.
        big: places (from 0) of those that are too big, or claimed by others.
        keys, payloads, deadlines: of those claimed: name, what DUMP gave, and when it expires, in milliseconds since
            1970, or -1.
    """

    looked_at: int
    size: int
    big: tuple[int, ...]
    keys: list[bytes]
    payloads: list[bytes]
    deadlines: list[int]


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
        with self._source.understood("EVAL"):
            return Claimed(said)

    async def take_and_dump(
        self, database: int, keys: list[bytes], permit: str, most_elements: int, most_bytes: int, enough_bytes: int
    ) -> Dumped | None:
        """Claim keys that are there, small and nobody's, and have them serialized in the same step.

        None if the ``permit`` does not hold. Once there are ``enough_bytes``, the rest is left for another call.
        """
        arguments = (permit, database, self._token, most_elements, most_bytes, enough_bytes)
        try:
            said = await self._source.call("EVAL", _TAKE_AND_DUMP, 1 + len(keys), STATE, *keys, *arguments)
        except self._source.refused as error:
            if error.reply.startswith(UNSETTLED):
                return None
            raise
        with self._source.understood("EVAL"):
            return _dumped(said, keys)

    async def hold(self, database: int, *keys: bytes) -> bool:
        """Whether all claims are there still. A client that flushes the source takes them along with the keys."""
        held = await self._source.call("EVAL", _HELD, 1 + len(keys), STATE, *keys, database, self._token)
        with self._source.understood("EVAL"):
            return integer(held) == len(keys)

    async def release(self, database: int, *keys: bytes, delete: bool) -> bool:
        """Give claims back, and UNLINK the keys in the same step if they have moved. False if one was lost before."""
        arguments = (*keys, database, self._token, "1" if delete else "0")
        released = await self._source.call("EVAL", _RELEASE, 1 + len(keys), STATE, *arguments)
        with self._source.understood("EVAL"):
            return integer(released) == len(keys)


def _dumped(reply: object, keys: list[bytes]) -> Dumped:
    """What :data:`_TAKE_AND_DUMP` gave for these keys. Raises NotUnderstood."""
    done, size, big, taken, payloads, deadlines = items(reply, 6)
    if integer(done) > len(keys):
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    found = places(taken, done)
    if not all(isinstance(payload, bytes) for payload in items(payloads, len(found))):
        raise NotUnderstood(f"it answers DUMP with what is no payload: {payloads!r:.50}")
    return Dumped(
        done,
        integer(size),
        places(big, done),
        [keys[place] for place in found],
        payloads,
        [integer(deadline, least=-1) for deadline in items(deadlines, len(found))],
    )


async def drop_claims(source: Connection) -> None:
    """Drop all claims: of calls whose connections are ended, at both servers.

    With them goes the permit: a copy may be a key at the target already, and who was told before that there is none is
    not to delete the one at the source (:data:`slots.moving.DELETE`).
    """
    await source.call("EVAL", _DROP, 1, STATE, secrets.token_hex(8))
