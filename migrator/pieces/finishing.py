"""Makes a copy that is whole the key, in one atomic step at the target.

It looks once more whether the copy is there and whole: it may have expired or been evicted since. Whatever the
target has under the key's name is stale and goes first, by UNLINK, for RENAME would free it on the spot.
"""

from __future__ import annotations

from migrator.connection import Connection
from migrator.errors import CopyLost
from migrator.pieces.copying import Copied
from migrator.pieces.deadlines import NEVER
from slots.replies import one_of

SCRIPT = """
local temporary, name = KEYS[1], KEYS[2]
local kind, length_command, least, most, deadline = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
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


async def finish(target: Connection, name: bytes, temporary: bytes, copied: Copied) -> bool:
    """Make ``temporary`` key ``name`` with its TTL. False if it has expired meanwhile: then neither is there.

    Either way the key at the source is to be deleted next, with UNLINK.

    Raises:
        CopyLost: the copy is not there any more or not whole; nothing was changed.
        TargetUnavailable: whether it happened is unknown. The source has the key still; copying it again is right
            in both cases, once nothing sent before can run at the target.
        TargetRefused: see there.
    """
    said = await target.call(
        "EVAL",
        SCRIPT,
        2,
        temporary,
        name,
        copied.kind,
        copied.length_command,
        copied.least,
        copied.most,
        copied.deadline,
    )
    with target.understood("EVAL"):
        # What is not said to be done is not deleted at the source.
        one_of(said, b"done", b"lost", b"expired")
    if said == b"lost":
        raise CopyLost(
            f"the copy of {copied.kind.decode()} {name!r} at target {target.address} was gone or no longer whole when "
            "it was to become the key; somebody deleted it, or the target evicted it because it is at its maxmemory"
        )
    return bool(said == b"done")


assert NEVER == -1, "the script knows it by this number"
