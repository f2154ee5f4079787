"""A trial: a key of our own goes to the target as all others will, by the source or carried by us.

Nothing else tells so surely whether the source reaches the target and may log in there, whether the target can read
what this source writes (a server reads no RDB version newer than its own), and whether it takes writes at all: not
while it is full, read-only, cannot save to its disk or misses replicas.

The key is made and goes within one script, so no client of the source sees it. At the target it is deleted at once,
and expires soon if that could not be done.
"""

from __future__ import annotations

import re
import secrets

from migrator.connection import Connection
from migrator.errors import MigrationError, SourceRefused, TargetRefused, TargetUnavailable
from migrator.transfer import FROM_TARGET
from slots.access import ServerAccess
from slots.connections import BY_EFFECTS

TRIAL_PREFIX = "__slotferry:trial:"
"""What the names of trial keys begin with."""
MIGRATE_SECONDS = 0.5
"""What the source is told to wait for the target: it serves nobody meanwhile."""
EXPIRY_SECONDS = 10
"""After which a trial key is gone, whatever happens."""
# What Redis 6 puts before what it says to a script itself.
_IN_SCRIPT = re.compile(r"^@user_script: \d+: -?")

# A source that is full refuses SET as the first write of a script, and lets a script that has written go on: so it
# begins with DEL, which is never refused for memory. A full source is the one that slots are moved away from.
SCRIPT = (
    BY_EFFECTS
    + """
local answer = redis.pcall('DEL', KEYS[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('SET', KEYS[1], '', 'EX', ARGV[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('MIGRATE', unpack(ARGV, 2))
redis.pcall('DEL', KEYS[1])
return answer
"""
)


async def try_a_key(source: Connection, target: Connection, where: tuple[str, int], access: ServerAccess) -> None:
    """Have the source move a key to the target, in database 0, and delete it there.

    Args:
        source, target: connections to both, in database 0.
        where: host and port of the target, as the source reaches it.

    Raises:
        TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: as moving keys would.
    """
    key = f"{TRIAL_PREFIX}{secrets.token_hex(8)}"
    milliseconds = int(MIGRATE_SECONDS * 1000)
    migrate: tuple[str | int, ...] = (*where, "", 0, milliseconds, *access.migrate_login, "KEYS", key)
    try:
        await source.call("EVAL", SCRIPT, 1, key, EXPIRY_SECONDS, *migrate)
    except SourceRefused as error:
        raise _failure(source.address, target.address, error.reply, access) from None
    await target.call("DEL", key)


CARRY = """
local answer = redis.pcall('DEL', KEYS[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('SET', KEYS[1], '', 'EX', ARGV[1])
if type(answer) == 'table' and answer.err then return answer end
answer = redis.pcall('DUMP', KEYS[1])
redis.pcall('DEL', KEYS[1])
return answer
"""


async def try_carrying(source: Connection, target: Connection) -> None:
    """Carry a key from the source to the target, in database 0, and delete it there.

    Raises:
        TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: as moving keys would.
    """
    key = f"{TRIAL_PREFIX}{secrets.token_hex(8)}"
    payload: bytes = await source.call("EVAL", CARRY, 1, key, EXPIRY_SECONDS)
    await target.call("RESTORE", key, EXPIRY_SECONDS * 1000, payload)
    await target.call("DEL", key)


def _failure(source: str, target: str, text: str, access: ServerAccess) -> MigrationError:
    text = _IN_SCRIPT.sub("", text)
    hint = "; with TLS, every server needs tls-cluster yes" if access.tls is not None else ""
    if text.startswith(FROM_TARGET):
        return TargetRefused(target, text.removeprefix(FROM_TARGET))
    if text.startswith("IOERR"):
        return TargetUnavailable(
            f"source {source} cannot bring a key to target {target} within {MIGRATE_SECONDS:g} s; both have to reach "
            f"each other by the addresses in the group's list of servers{hint} ({text})"
        )
    return SourceRefused(source, text)
