"""Makes a whole copy the key, in one atomic step at the target.

This is the key's *place* (docs/moving-keys.md), and it needs the permit that holds. It checks once more that the copy
is there and whole, because the copy may have expired or been evicted since. A key that the target has under the same
name is stale, unless the target's copy counts for more (:mod:`slots.beginning`). The stale key is removed first, by
UNLINK, because RENAME would free it on the spot.
"""

from __future__ import annotations

from migrator.connection import Connection
from migrator.errors import CopyLost
from migrator.pieces.copying import Copied
from migrator.pieces.deadlines import NEVER
from slots.connections import BY_EFFECTS
from slots.moving import HOLDS, STATE
from slots.replies import one_of

SCRIPT = (
    BY_EFFECTS
    + HOLDS
    + """
local temporary, name = KEYS[2], KEYS[3]
local kind, length_command, least, most, deadline = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
redis.call('SELECT', '0')
if not holds('accepts', ARGV[6], '0') then return 'unsettled' end
redis.call('SELECT', ARGV[7])
if ARGV[8] == '1' and redis.call('EXISTS', name) == 1 then
  redis.call('UNLINK', temporary)
  return 'done'
end
if redis.call('TYPE', temporary).ok ~= kind then return 'lost' end
local length = redis.call(length_command, temporary)
if length < least or length > most then return 'lost' end
redis.call('UNLINK', name)
if deadline ~= '-1' then
  local clock = redis.call('TIME')
  if clock[1] * 1000 + math.floor(clock[2] / 1000) >= tonumber(deadline) then
    redis.call('UNLINK', temporary)
    return 'expired'
  end
end
redis.call('RENAME', temporary, name)
if deadline == '-1' then redis.call('PERSIST', name) else redis.call('PEXPIREAT', name, deadline) end
return 'done'
"""
)


async def finish(
    target: Connection,
    database: int,
    name: bytes,
    temporary: bytes,
    copied: Copied,
    permit: str,
    *,
    keeps_target: bool,
) -> bool:
    """Make ``temporary`` key ``name`` with its TTL. If the key has expired meanwhile, neither name exists afterwards.

    False if the permit does not hold: nothing was changed. Otherwise the next step is to drop the key at the source.

    Args:
        database: of the key.
        keeps_target: whether a key that the target already has stays unchanged.

    Raises:
        CopyLost: the copy is gone or not whole; nothing was changed.
        TargetUnavailable: whether it happened is unknown. The source still has the key. Copying it again is right in
            both cases, once nothing sent before can run at the target.
        TargetRefused: see there.
    """
    said = await target.call(
        "EVAL",
        SCRIPT,
        3,
        STATE,
        temporary,
        name,
        copied.kind,
        copied.length_command,
        copied.least,
        copied.most,
        copied.deadline,
        permit,
        database,
        int(keeps_target),
    )
    with target.understood("EVAL"):
        # Only a reply of "done" allows the key to be deleted at the source.
        one_of(said, b"done", b"lost", b"expired", b"unsettled")
    if said == b"lost":
        raise CopyLost(
            f"the copy of {copied.kind.decode()} {name!r} at target {target.address} was gone or no longer whole when "
            "it was to become the key; somebody deleted it, or the target evicted it because it is at its maxmemory"
        )
    return bool(said != b"unsettled")


assert NEVER == -1, "the script knows it by this number"
