"""A trial: a key of our own goes from the source to the target as all others will.

Nothing else tells so surely whether the target can read what this source writes (a server reads no RDB version newer
than its own), and whether it takes writes at all: not while it is full, read-only, cannot save to its disk or misses
replicas.

The key is made and goes within one script, so no client of the source sees it. At the target it is deleted at once,
and expires soon if that could not be done.
"""

from __future__ import annotations

import secrets

from migrator.connection import Connection
from slots.connections import BY_EFFECTS

TRIAL_PREFIX = "__slotferry:trial:"
"""What the names of trial keys begin with."""
EXPIRY_SECONDS = 10
"""After which a trial key is gone, whatever happens."""

# A source that is full refuses SET as the first write of a script, and lets a script that has written go on: so it
# begins with DEL, which is never refused for memory. A full source is the one that slots are moved away from.
SCRIPT = (
    BY_EFFECTS
    + """
local answer = redis.pcall('DEL', KEYS[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('SET', KEYS[1], '', 'EX', ARGV[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('DUMP', KEYS[1])
redis.pcall('DEL', KEYS[1])
return answer
"""
)


async def try_a_key(source: Connection, target: Connection) -> None:
    """Move a key of our own from the source to the target, in database 0, and delete it there.

    Raises:
        TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: as moving keys would.
    """
    key = f"{TRIAL_PREFIX}{secrets.token_hex(8)}"
    payload: bytes = await source.call("EVAL", SCRIPT, 1, key, EXPIRY_SECONDS)
    await target.call("RESTORE", key, EXPIRY_SECONDS * 1000, payload)
    await target.call("DEL", key)
