"""How keys leave a source: the scripts that every mover runs there, and how an attempt of unknown outcome is settled.

Movers are the migrator, which scans, and the proxies, which move a key that a client waits for. Both run
:data:`MOVE` at the source, which moves what it is given in one MIGRATE, if the mover holds the *permit*.

**One-way** at its hardest: a MIGRATE whose outcome the source does not learn has left bytes on the way that the
target may read at any later time. If meanwhile the key moves by another attempt and a client deletes or changes it
there, that RESTORE would bring it back. So:

- The permit is the field ``permit`` of the hash :data:`STATE` in database 0 of the source: its run id, the target's
  address and run id, and a random part. Without it nothing moves. It does not outlive the server process that it was
  made for, however its data came back.
- The script that sees an attempt fail that way takes the permit away in the same atomic step. So does whoever else
  finds that the target may have a copy of a key that the source has.
- Whoever finds no permit settles (:func:`settle`): at the target it ends all connections that may be a MIGRATE's.
  What still comes in for them meets a closed connection. Then it grants a new permit, if none was granted or taken
  away meanwhile.

What was lost with the hash (a flush past the proxies, eviction, an older RDB file) costs another settling and nothing
else. A flush by a client withholds the permit until it is over at every server (:mod:`slots.flushes`).

A server that restarts in the middle may come back with keys as they were once. So the permit names the processes of
both ends: whoever holds it compares them with those that the slot's action began with, and tells the script whose copy
counts of a key on both servers (:mod:`slots.beginning`). The source looks in the step that moves whether it is the
process that the permit names (**run-id**). A target that has restarted is found by whoever settles next, the migrator
at the latest, whose connections to it are lost; until then it is taken for what it was, which matters only for a slot
on its way back whose source has restarted, too.

A key over a bound is not moved here but reported: the migrator moves it in pieces, under a *claim*, another field of
:data:`STATE`. While a key is claimed it counts as present at the source, though it may have expired there: so nobody
runs a command at the target before the one who claimed it is done (**absent-first**). Who settles ends the claimants'
connections at the target, too: a hash that was lost has taken claims with it. A proxy that needs the key says so in
the list :data:`WANTED`.

What is not covered: a packet that completes a connection's handshake only after the connections were looked at twice
(a minute after the loss of one, at most), and a reset that only the source sees, upon which MIGRATE repeats itself.
"""

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from slots.connections import BY_EFFECTS, FENCED, PREFIX, RedisClient, parse_client_list
from slots.flushes import KEEP_FLUSHES, STANDING, TAKEN_OVER_SECONDS
from slots.replies import NotUnderstood, integer, items, one_of, understood
from slots.reserved import RESERVED as RESERVED

log = structlog.get_logger()

STATE = RESERVED + b"moving"
"""Hash in database 0 of a source: ``permit``; ``unsettled``, random, of the attempt that took the permit away; a field
``claim:database:key`` for each key that goes in pieces, its value the claimant; and, at a target as well, the fields of
flushes (:mod:`slots.flushes`)."""
WRITING = f"{PREFIX}.migrator-writing."
"""What the names of connections begin with over which the migrator writes keys in pieces to a target."""
WANTED = RESERVED + b"wanted"
"""List in database 0 of a source: ``database:key`` of keys that clients wait for and that go in pieces."""
LEADER = RESERVED + b"leader"
"""Hash in database 0 of a server: the newest ``term`` of a topom whose migrator came here, and in which term those of
all others were ended (``alone``)."""
SWEPT = RESERVED + b"swept"
"""Hash in database 0 of a server: ``swept``, the life in which it was swept; ``data``, the id of the data that it has;
``token``, random, of a sweep under way (:mod:`migrator.sweep`)."""
RESERVED_KEYS = (STATE, WANTED, FENCED, LEADER, SWEPT)
OUTLAST_FLUSH = (STATE, FENCED, LEADER, SWEPT)
"""Those that a flush by a client does not take away: somebody may come late and has to find them."""
MOST_WANTED = 10_000
"""Entries of :data:`WANTED` at most; who is not on it is moved when its turn comes."""

UNSETTLED = "UNSETTLED"
"""What the scripts' refusals for want of the permit begin with."""

YOUNG_SECONDS = 1
"""A connection that has said nothing yet is given so long to say what it is."""
SETTLE_SECONDS = 5.0
"""How long ending a target's connections may take."""
LOOK_SECONDS = 0.02
MOST_TRIES = 10
MOST_FLUSH_WAITS = 3
"""How many times :data:`slots.flushes.TAKEN_OVER_SECONDS` flushes are waited for at most."""
MIGRATE_COMMANDS = {"NULL", "auth", "select", "restore", "restore-asking"}
"""Last commands that a connection of MIGRATE may have run; NULL stands for none."""

_SELECT = BY_EFFECTS + "redis.call('SELECT', '0')\n"
_BEGIN = (
    _SELECT
    + """
local function state(field)
  return redis.call('HGET', '__slotferry:moving', field) or ''
end
"""
)

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
  return bytes, length and redis.call(length, key) or 0
end
"""
"""For scripts: a key's bytes and elements, by a look that takes no time however big it is; nil for an absent one.

An element takes more than a byte, so a key of few bytes is not asked for its elements. A server older than Redis 4
cannot tell the bytes: there they are guessed by some of the elements.
"""

MOVE = BY_EFFECTS + UNLINK + LOOK_AT + (Path(__file__).parent / "moving.lua").read_text(encoding="utf-8")
"""Moves keys that are small, reports those that are not.

KEYS are the keys. ARGV: permit; ``1`` to compare it with the run id, ``0`` if that was done over this connection; host
and port of the target; database (which the connection has selected); milliseconds for a step of MIGRATE; most elements
and most bytes of a small key; bytes after which the rest is left for another call; a random token; ``1`` to ask for big
keys in :data:`WANTED`, else ``0``; whose copy counts of a key on both servers, ``source`` or ``target``;
:data:`MOST_WANTED`; then MIGRATE's option for logging in.

Gives how many of the keys, from the first on, it has looked at; how many of these it moved, and their bytes; and the
places (from 1) of those that are big. All others it has looked at are absent. Errors are
MIGRATE's own, and :data:`UNSETTLED`.

If the target has a key of that name (BUSYKEY), it is left from an attempt of unknown outcome, or one of the servers has
older data: see :mod:`slots.beginning` for whose copy counts.

A write comes before each one that a server at its maxmemory would refuse: from then on a script may write anything.
INFO costs more than all the rest for a single key; a connection does not outlive the server process it leads to.
"""

DELETE = (
    BY_EFFECTS
    + UNLINK
    + """
local permit, database = ARGV[1], ARGV[2]
redis.call('SELECT', '0')
if permit == '' or redis.call('HGET', KEYS[1], 'permit') ~= permit
  or string.sub(permit, 1, 40) ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') then
  return {err = 'UNSETTLED the permit to move keys from here has to be renewed'}
end
for index = 2, #KEYS do
  if redis.call('HEXISTS', KEYS[1], 'claim:' .. database .. ':' .. KEYS[index]) == 1 then
    return {err = 'CLAIMED a key is on its way in pieces'}
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
"""At a source: deletes the keys behind the first, :data:`STATE`, in database ARGV[2]; gives for each if it was there.

Only by the permit ARGV[1], and if none is claimed: then no attempt to move them is under way, nor any copy of them.
What follows in ARGV says of each key whether the target has it (``1``, else ``0``): none of those may be here as well.
"""

READ = (
    _BEGIN
    + """
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
if state('permit') == '' and state('unsettled') == '' then
  redis.call('HDEL', '__slotferry:moving', 'permit')
  redis.call('HSET', '__slotferry:moving', 'unsettled', ARGV[1])
end
return {run_id, state('permit'), state('unsettled')}
"""
)
"""Gives the server's run id, the permit and the token of the last attempt of unknown outcome.

Where there is neither, the token becomes ARGV[1]: a hash that gets lost twice does not look as if nothing had been.
"""

GRANT = (
    _BEGIN
    + """
if state('permit') ~= ARGV[1] or state('unsettled') ~= ARGV[2] then return state('permit') end
for _, field in ipairs(redis.call('HKEYS', '__slotferry:moving')) do
  if string.sub(field, 1, 6) == 'flush:' then return state('permit') end
end
redis.call('HDEL', '__slotferry:moving', 'permit')
redis.call('HSET', '__slotferry:moving', 'permit', ARGV[3])
return ARGV[3]
"""
)
"""Stores the permit ARGV[3] if ARGV[1] and ARGV[2] are still permit and token; gives the permit that holds.

None is granted while a flush stands there (:mod:`slots.flushes`).
"""


KINDS = {WANTED: "list"}
"""Types of the :data:`RESERVED_KEYS` that are no hashes."""
ASIDE = RESERVED + b"aside:"
"""What the names begin with under which somebody else's keys are put that stood where ours have to be."""
_PUT_ASIDE = (
    _SELECT
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
    """Rename keys of a wrong type under the names of ours, which no process of ours has made; give those names.

    Nothing is lost by that, and whoever needs the name makes the key anew. Errors are those of ``server``.
    """
    kinds = [KINDS.get(key, "hash") for key in RESERVED_KEYS]
    said = await server.execute_command("EVAL", _PUT_ASIDE, len(RESERVED_KEYS), *RESERVED_KEYS, ASIDE, *kinds)
    return [one_of(key, *RESERVED_KEYS) for key in items(said)]


_OURS = {
    STATE: rb"permit|unsettled|claim:.*|flush:.*",
    WANTED: rb"[0-9]+:.*",
    FENCED: rb"[0-9a-f]{32}",
    LEADER: rb"term|alone",
    SWEPT: rb"swept|data|token",
}
"""What the fields, or elements, of ours look like."""
_SAMPLE = (
    _SELECT
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
    """Names of ours under which a server has what no process of ours has made, by its type and some of its fields.

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


class NotSettled(Exception):
    """Connections of earlier attempts could not be ended at the target in time."""


class SameProcess(Exception):
    """Source and target are one server, under two names."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What one call of :data:`MOVE` did: see there."""

    looked_at: int
    moved: int
    bytes: int
    big: tuple[int, ...]

    @classmethod
    def of(cls, reply: object, keys: int) -> "Moved":
        """Read a reply for so many keys; the places of big ones count from 0 here. Raises NotUnderstood."""
        looked_at, moved, size, big = items(reply, 4)
        found = cls(integer(looked_at), integer(moved), integer(size), places(big, looked_at))
        if not found.moved + len(found.big) <= found.looked_at <= keys:
            # absent-first: what is not named counts as absent.
            raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
        return found


def places(reply: object, most: int) -> tuple[int, ...]:
    """Places of keys, which servers count from 1 on, from 0 on; none twice. Raises NotUnderstood."""
    found = tuple(integer(place, least=1) - 1 for place in items(reply))
    if len({*found}) < len(found) or max(found, default=-1) >= most:
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    return found


class Script:
    """A script and the digest that EVALSHA knows it by."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode()).hexdigest()


MOVE_SCRIPT = Script(MOVE)


def move_arguments(
    permit: str,
    target: tuple[str, int],
    database: int,
    milliseconds: int,
    *,
    check: bool,
    most_elements: int,
    most_bytes: int,
    enough_bytes: int,
    wanted: bool,
    keeps_target: bool,
    login: tuple[str, ...],
) -> tuple[str | int, ...]:
    """ARGV of :data:`MOVE`."""
    return (
        permit,
        "1" if check else "0",
        target[0],
        target[1],
        database,
        milliseconds,
        most_elements,
        most_bytes,
        enough_bytes,
        secrets.token_hex(8),
        "1" if wanted else "0",
        "target" if keeps_target else "source",
        MOST_WANTED,
        *login,
    )


def processes_of(permit: str) -> tuple[str, str]:
    """Run ids of the source and the target that a permit is for; empty for no permit."""
    parts = permit.split(" ")
    return (parts[0], parts[2]) if len(parts) == 4 else ("", "")


def run_id_of(said: object) -> str:
    """The run id in what a server said to INFO, as bytes or as redis-py has parsed it; empty if it said none."""
    if isinstance(said, Mapping):
        return str(said.get("run_id", ""))
    found = re.search(rb"run_id:(\w+)", said) if isinstance(said, bytes) else None
    return found[1].decode() if found else ""


async def settle(source: RedisClient, target: RedisClient, address: str) -> str:
    """See to it that nothing sent by an earlier MIGRATE can arrive at the target any more; give the permit that holds.

    Args:
        source: a client of the source.
        target: a client of the target.
        address: the target's ``host:port``, as the source is told it.

    Raises:
        NotSettled: it took longer than :data:`SETTLE_SECONDS`, others were at it all the time, or a server does not
            say who it is.
        SameProcess: see there.
        Errors of the clients.
    """
    for _ in range(MOST_TRIES):
        said = await source.execute_command("EVAL", READ, 0, secrets.token_hex(8))
        with _answers(f"the source of keys for {address}: "):
            run_id, permit, unsettled = (_text(part) for part in items(said, 3))
        target_run_id = run_id_of(await target.execute_command("INFO", "server"))
        if not run_id or not target_run_id:
            raise NotSettled(
                f"the source of keys for {address}, or that server itself, does not say what its run id is"
            )
        if run_id == target_run_id:
            # run-id: a key that is moved would be deleted.
            raise SameProcess(f"{address} is the server itself that keys are to leave, under another name")
        mine = f"{run_id} {address} {target_run_id} "
        if permit.startswith(mine):
            return permit
        # Not before the source was asked: what is withheld there later makes the grant fail.
        if await flushes_over(source, target):
            continue
        ended = await end_migrations(target)
        # run-id: the connections that were ended are those of the process that the permit names.
        if run_id_of(await target.execute_command("INFO", "server")) != target_run_id:
            continue
        granted = _text(
            await source.execute_command("EVAL", GRANT, 0, permit, unsettled, f"{mine}{secrets.token_hex(8)}")
        )
        if granted.startswith(mine):
            log.info("moving_settled", target=address, connections_ended=ended, attempt=unsettled)
            return granted
    raise NotSettled(
        f"the permit to move keys to {address} did not last in {MOST_TRIES} attempts: others failed as well, or "
        "the source evicts whatever it is given"
    )


@contextmanager
def _answers(who: str = "") -> Iterator[None]:
    """Raises NotSettled for a server that answers what none does; whoever asks says which one it is."""
    try:
        yield
    except NotUnderstood as error:
        raise NotSettled(f"{who}{error}; look at what is running there") from error


async def flushes_over(source: RedisClient, target: RedisClient) -> bool:
    """Return once no flush stands at either end, and say if one did; see :mod:`slots.flushes`.

    One that stands for too long is taken for dead, and taken away. Raises :class:`NotSettled` where there are others
    all the time.
    """
    began = time.monotonic()
    since: dict[bytes, float] = {}
    dead: list[bytes] = []
    while (now := time.monotonic()) - began < MOST_FLUSH_WAITS * TAKEN_OVER_SECONDS:
        standing: set[bytes] = set()
        for server in (target, source):
            said = await server.execute_command("EVAL", STANDING, 1, STATE, *dead)
            with _answers():
                standing.update(items(said))
        if dead:
            log.warning("flushes_taken_over", flushes=len(dead))
        if not standing:
            return bool(since)
        since = {field: since.get(field, now) for field in standing}
        dead = [field for field, first in since.items() if now - first >= TAKEN_OVER_SECONDS]
        if not dead:
            await asyncio.sleep(LOOK_SECONDS)
    raise NotSettled("clients flush the servers all the time, and no key moves meanwhile")


async def end_migrations(target: RedisClient) -> int:
    """End every connection at a target that may be that of a MIGRATE; say how many. Raises :class:`NotSettled`.

    Connections that clients make meanwhile do not hold it up: no MIGRATE of before can be among them.
    """
    with _answers():
        return await _end_migrations(target)


async def _end_migrations(target: RedisClient) -> int:
    ended = 0
    # By the second look the target has accepted whatever waited for that at the first: it does so once a turn.
    await _connections(target)
    newest = max((int(entry["id"]) for entry in await _connections(target)), default=0)
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                suspects = [
                    entry
                    for entry in await _connections(target)
                    if int(entry["id"]) <= newest and _may_be_migration(entry)
                ]
                if not suspects:
                    return ended
                old = [
                    entry
                    for entry in suspects
                    if entry.get("name") or entry.get("cmd") != "NULL" or int(entry["age"]) > YOUNG_SECONDS
                ]
                for entry in old:
                    ended += integer(await target.execute_command("CLIENT", "KILL", "ID", entry["id"]))
                if len(old) < len(suspects):
                    await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise NotSettled(
            f"connections from which keys may still arrive could not be ended within {SETTLE_SECONDS:g} s"
        ) from None


async def _connections(server: RedisClient) -> list[dict[str, str]]:
    listed = await server.execute_command("CLIENT", "LIST")
    with understood("CLIENT LIST"):
        # redis-py has parsed it
        entries = listed if isinstance(listed, list) else parse_client_list(listed.decode(errors="replace"))
        for entry in entries:
            int(entry["id"]), int(entry["age"])
    if not entries:
        # one-way: it lists the connection that asks at least.
        raise NotUnderstood("it answers CLIENT LIST with nobody")
    return entries


async def clear_source(source: RedisClient) -> None:
    """Take away what a migration has left at its source. Only when nobody moves keys from there."""
    await source.execute_command("EVAL", _CLEAR, 2, STATE, WANTED)


_CLEAR = _SELECT + "local state = KEYS[1]" + KEEP_FLUSHES + "return redis.call('DEL', KEYS[2])"


def _may_be_migration(entry: Mapping[str, str]) -> bool:
    # Replicas and subscribers have other last commands; every connection of ours has a name.
    name = entry.get("name") or ""
    return name.startswith(WRITING) or (not name and str(entry.get("cmd", "")) in MIGRATE_COMMANDS)


def _text(part: object) -> str:
    if isinstance(part, bytes):
        return part.decode(errors="replace")
    return "" if part is None else str(part)
