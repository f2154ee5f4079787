"""The steps by which a key moves: *take* at its source, *place* at its target, *drop* at its source.

Movers are the migrator, which scans, and the proxies, which move a key that a client waits for. Both run the scripts of
this module, and no others. docs/moving-keys.md says how the steps uphold **absent-first** and **one-way**. Each script
first checks that the permit it is given holds (:mod:`slots.permits`). If not, it changes nothing and answers
:data:`UNSETTLED`.

A key above a bound is not taken but reported: the migrator moves it in pieces, under a claim of its own. A proxy that
needs such a key adds it to the list :data:`WANTED`.

The scripts check the run id (**run-id**) only where an argument says so. For a single key, INFO costs more than all the
rest, and a connection never outlives the server process that it leads to.

A server at its maxmemory refuses a script's first write if that may take memory. It lets a script go on that has
already written. So scripts at a source begin with a write that is allowed, because keys have to leave a full source.
Scripts that place keys do not begin so.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slots.connections import BY_EFFECTS, FENCED, RedisClient
from slots.replies import NotUnderstood, integer, items, one_of
from slots.reserved import RESERVED as RESERVED

STATE = RESERVED + b"moving"
"""Hash in database 0 of a server. ``permit``: the permit by which keys leave it. ``accepts``: the permit by which keys
come. ``claim:database:key``: a claim on a key that is on its way from here; the value names the mover. It also has the
fields of flushes (:mod:`slots.flushes`)."""
WANTED = RESERVED + b"wanted"
"""List in database 0 of a source: ``database:key`` of keys that go in pieces and that clients wait for."""
LEADER = RESERVED + b"leader"
"""Hash in database 0 of a server. ``term``: the newest term of a topom whose migrator has used the server. ``alone``:
the term in which the connections of all other topoms' migrators were ended."""
SWEPT = RESERVED + b"swept"
"""Hash in database 0 of a server. ``swept``: the life in which the server was swept. ``data``: the id of its data.
``token``: random, of a sweep under way (:mod:`migrator.sweep`)."""
RESERVED_KEYS = (STATE, WANTED, FENCED, LEADER, SWEPT)
OUTLAST_FLUSH = (STATE, FENCED, LEADER, SWEPT)
"""Keys that survive a client's flush: a process that comes late has to find them."""
MOST_WANTED = 10_000
"""The most entries of :data:`WANTED`. A key that is not in the list moves when its turn comes."""
IN_PIECES = "pieces "
"""The prefix of claims by which the migrator moves a key in pieces."""
MOST_KEYS = 2000
"""The most keys of one call: scripts pass the keys on as arguments, and Lua allows 8,000 arguments at most."""

UNSETTLED = "UNSETTLED"
"""The prefix of a script's refusal when the permit does not hold."""

SELECT = BY_EFFECTS + "redis.call('SELECT', '0')\n"
HOLDS = """
local state = KEYS[1]
local run_id_in = {permit = '^(%w+) ', accepts = '^%w+ (%w+) '}
local function holds(field, permit, check)
  if redis.call('HGET', state, field) ~= permit then return false end
  if check ~= '1' then return true end
  return string.match(permit, run_id_in[field]) == string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
local function unsettled()
  return {err = 'UNSETTLED the permit to move keys has to be renewed'}
end
local function plain(error)
  -- Redis 6 puts the place in the script before its own errors.
  return (string.gsub(error, '^@user_script: ?%d*:? ?%-?', ''))
end
"""
"""For scripts whose first key is :data:`STATE`: whether a permit holds at this server, as ``permit`` or as ``accepts``.
``check`` is ``1`` to compare the run id in it, ``0`` if that was done over this connection."""

UNLINK = """
local function unlink(key)
  local gone = redis.pcall('UNLINK', key)
  if type(gone) == 'table' then redis.call('DEL', key) end
end
"""
"""For scripts that run at sources, which may be older than Redis 4 and have no UNLINK."""

LOOK_AT = """
local lengths = {hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN'}
local function guess(key)
  local kind, some = redis.call('TYPE', key).ok, nil
  if kind == 'none' then return nil end
  if kind == 'string' then return redis.call('STRLEN', key) + 64, 0 end
  local length = redis.call(lengths[kind], key)
  if kind == 'hash' then some = redis.call('HSCAN', key, '0', 'COUNT', '5')[2]
  elseif kind == 'list' then some = redis.call('LRANGE', key, '0', '4')
  elseif kind == 'set' then some = redis.call('SRANDMEMBER', key, '5')
  else some = redis.call('ZRANGE', key, '0', '4') end
  local size = 0
  for _, part in ipairs(some) do size = size + #part end
  local seen = kind == 'hash' and #some / 2 or #some
  return 64 + length * (math.ceil(size / math.max(seen, 1)) + 32), length
end
local function look_at(key, most_elements)
  local bytes = redis.pcall('MEMORY', 'USAGE', key)
  if not bytes then return nil end
  if type(bytes) == 'table' then
    if string.find(bytes.err, 'nknown Redis command', 1, true) then return guess(key) end
    bytes = redis.call('MEMORY', 'USAGE', key)  -- which raises it
  end
  if bytes <= most_elements then return bytes, 0 end
  local length = lengths[redis.call('TYPE', key).ok]
  length = length and redis.call(length, key) or 0
  if length > 5 and length <= most_elements and length <= 2000 then
    bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  end
  return bytes, length
end
"""
"""For scripts: a key's bytes and number of elements, found in constant time for a key of any size; nil for an absent
key.

An element takes more than a byte, so the elements of a key of few bytes are not counted. The bytes are estimated from
five elements. If there are not many more than five, all are looked at, because one may be larger than all the others. A
server older than Redis 4 cannot tell the bytes; there they are guessed from some of the elements.
"""


def _read(name: str) -> str:
    return (Path(__file__).parent / f"{name}.lua").read_text(encoding="utf-8")


class Script:
    """A script, with the digest by which EVALSHA names it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode()).hexdigest()


TAKE = Script(BY_EFFECTS + HOLDS + LOOK_AT + _read("take"))
"""At a source: claims the keys that are there, small and not claimed, and gives their content.

KEYS are :data:`STATE` and the keys. ARGV: permit; check (:data:`HOLDS`); database; the mover, which becomes the value
of the claims; most elements and most bytes of a small key; bytes after which the rest is left for another call; ``1``
to ask for big keys in :data:`WANTED`, else ``0``; :data:`MOST_WANTED`. The reply is described by :class:`Taken`.
"""
PLACE = Script(BY_EFFECTS + HOLDS + _read("place"))
"""At a target: stores the keys with the content that their source had.

KEYS are :data:`STATE` and the keys. ARGV: permit; check; database; ``1`` if a copy that the target already has counts
for more (:mod:`slots.beginning`), else ``0``. Then follow, for each key, its payload and its deadline in milliseconds
since 1970, or -1. The reply gives the places (from 1) of the keys that were not stored, each with its error: the other
keys may have been placed.
"""
DROP = Script(BY_EFFECTS + HOLDS + UNLINK + _read("drop"))
"""At a source: gives back the claims on keys, and deletes the keys that have moved, which come first.

KEYS are :data:`STATE` and the keys. ARGV: permit; check; database; the mover; how many of the keys are deleted. Keys on
which the mover has no claim any more are left alone. The reply says how many claims there were, and how many keys were
deleted.
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one call of :data:`TAKE` found.

    Attributes:
        looked_at: how many of the keys, from the first on, were looked at. Keys not named below are absent.
        size: bytes of memory at the source of those taken.
        busy: places (from 0) of keys that others are moving.
        big: places of keys that have to go in pieces, or already do.
        keys, payloads, deadlines: of those taken: name, what DUMP gave, and when it expires, in milliseconds since
            1970, or -1.
        places: places of those taken.
        refused: places of those that the server could not give, and why.
    """

    looked_at: int
    size: int
    busy: tuple[int, ...]
    big: tuple[int, ...]
    places: tuple[int, ...]
    keys: list[bytes]
    payloads: list[bytes]
    deadlines: list[int]
    refused: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, reply: object, keys: Sequence[bytes]) -> "Taken":
        """Read a reply for these keys. Raises NotUnderstood."""
        looked_at, size, busy, big, taken, payloads, deadlines, *refusals = items(reply, 9)
        most = integer(looked_at)
        errors = refused(refusals, most)
        elsewhere, in_pieces, found = (places(part, most) for part in (busy, big, taken))
        named = (*elsewhere, *in_pieces, *found, *errors)
        if most > len(keys) or len({*named}) < len(named):
            # absent-first: a key that is not named counts as absent.
            raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
        if not all(isinstance(payload, bytes) for payload in items(payloads, len(found))):
            raise NotUnderstood(f"its answer to DUMP is not a payload: {payloads!r:.50}")
        return cls(
            most,
            integer(size),
            elsewhere,
            in_pieces,
            found,
            [keys[place] for place in found],
            payloads,
            [integer(deadline, least=-1) for deadline in items(deadlines, len(found))],
            errors,
        )


def refused(reply: object, keys: int) -> dict[int, bytes]:
    """Places (from 0) of the keys that a server refused, and why; ``keys`` keys were sent. Raises NotUnderstood."""
    said, errors = items(reply, 2)
    found = places(said, keys)
    whys = items(errors, len(found))
    if not all(isinstance(why, bytes) and why for why in whys):
        raise NotUnderstood(f"it does not say why it refuses a key: {errors!r:.50}")
    return dict(zip(found, whys, strict=True))


def dropped(reply: object, keys: int) -> int:
    """How many of ``keys`` claims there were at :data:`DROP`. Raises NotUnderstood."""
    said, _ = items(reply, 2)
    held = integer(said)
    if held > keys:
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    return held


def take_arguments(
    permit: str,
    database: int,
    mover: str,
    keys: Sequence[bytes],
    check: bool,
    *,
    most_elements: int,
    most_bytes: int,
    enough_bytes: int,
    wanted: bool,
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`TAKE`."""
    return (
        1 + len(keys),
        STATE,
        *keys,
        permit,
        int(check),
        database,
        mover,
        most_elements,
        most_bytes,
        enough_bytes,
        int(wanted),
        MOST_WANTED,
    )


def place_arguments(
    permit: str, database: int, taken: Taken, check: bool, *, keeps_target: bool
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`PLACE`."""
    values = (part for pair in zip(taken.payloads, taken.deadlines, strict=True) for part in pair)
    return (1 + len(taken.keys), STATE, *taken.keys, permit, int(check), database, int(keeps_target), *values)


def drop_arguments(
    permit: str, database: int, mover: str, keys: Sequence[bytes], check: bool, *, deletes: int
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`DROP`."""
    return (1 + len(keys), STATE, *keys, permit, int(check), database, mover, deletes)


DELETE = (
    BY_EFFECTS
    + HOLDS
    + UNLINK
    + """
local permit, database = ARGV[1], ARGV[2]
redis.call('SELECT', '0')
if not holds('permit', permit, '1') then return unsettled() end
for index = 2, #KEYS do
  if redis.call('HEXISTS', state, 'claim:' .. database .. ':' .. KEYS[index]) == 1 then
    return {err = 'CLAIMED a key is on its way'}
  end
end
redis.call('SELECT', database)
for index = 2, #KEYS do
  if ARGV[index + 1] == '1' and redis.call('EXISTS', KEYS[index]) == 1 then
    return {err = 'COPIED the target has a copy of a key that is here'}
  end
end
local there = {}
for index = 2, #KEYS do
  there[index - 1] = redis.call('EXISTS', KEYS[index])
  unlink(KEYS[index])
end
return there
"""
)
"""At a source: deletes the keys after the first, :data:`STATE`, in database ARGV[2]. It says for each if it was there.

It does so only by the permit ARGV[1], and if no key is claimed: then no attempt to move the keys is under way, and no
copy of them exists. The other arguments say for each key whether the target has it (``1``, else ``0``). A key that the
target has must not be here as well.
"""


KINDS = {WANTED: "list"}
"""The types of those :data:`RESERVED_KEYS` that are not hashes."""
ASIDE = RESERVED + b"aside:"
"""The prefix of names for keys of others that stood in the place of ours: they are kept under these names."""
_PUT_ASIDE = (
    SELECT
    + """
local found = {}
for index, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= ARGV[index + 1] then
    redis.call('RENAME', key, ARGV[1] .. string.sub(key, #ARGV[1] - #'aside:' + 1))
    found[#found + 1] = key
  end
end
return found
"""
)


async def put_aside(server: RedisClient) -> list[bytes]:
    """Rename keys that have a name of ours and a wrong type, which no Slotferry process has made; give those names.

    Nothing is lost. A process that needs such a key makes it again. Errors are those of ``server``.
    """
    kinds = [KINDS.get(key, "hash") for key in RESERVED_KEYS]
    said = await server.execute_command("EVAL", _PUT_ASIDE, len(RESERVED_KEYS), *RESERVED_KEYS, ASIDE, *kinds)
    return [one_of(key, *RESERVED_KEYS) for key in items(said)]


_OURS = {
    STATE: rb"permit|accepts|claim:.*|flush:.*",
    WANTED: rb"[0-9]+:.*",
    FENCED: rb"[0-9a-f]{32}",
    LEADER: rb"term|alone",
    SWEPT: rb"swept|data|token",
}
"""The pattern of the fields, or elements, of our keys."""
_SAMPLE = (
    SELECT
    + """
local found = {}
for index, key in ipairs(KEYS) do
  local kind, some = redis.call('TYPE', key).ok, {}
  if kind == 'hash' then
    local page = redis.call('HSCAN', key, '0', 'COUNT', '10')[2]
    for place = 1, #page, 2 do some[#some + 1] = page[place] end
  elseif kind == 'list' then some = redis.call('LRANGE', key, '0', '9') end
  found[index] = {kind, some}
end
return found
"""
)


async def strangers(server: RedisClient) -> list[bytes]:
    """Names of ours under which a server has data that no Slotferry process has made, judged by type and some fields.

    Errors are those of ``server``, and :class:`slots.replies.NotUnderstood`.
    """
    said = await server.execute_command("EVAL", _SAMPLE, len(RESERVED_KEYS), *RESERVED_KEYS)
    found = []
    for key, sample in zip(RESERVED_KEYS, items(said, len(RESERVED_KEYS)), strict=True):
        kind, some = items(sample, 2)
        ours = kind == KINDS.get(key, "hash").encode() and all(
            isinstance(part, bytes) and re.fullmatch(_OURS[key], part, re.DOTALL) for part in items(some)
        )
        if kind != b"none" and not ours:
            found.append(key)
    return found


def places(reply: object, most: int) -> tuple[int, ...]:
    """Places of keys counted from 0; servers count from 1. No place comes twice. Raises NotUnderstood."""
    found = tuple(integer(place, least=1) - 1 for place in items(reply))
    if len({*found}) < len(found) or max(found, default=-1) >= most:
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    return found
