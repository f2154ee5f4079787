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
from migrator.steps import run
from slots.replies import one_of
from slots.reserved import STATE
from slots.scripts import load

_FINISH = load("finish")


async def finish(
    target: Connection,
    permit: str,
    database: int,
    name: bytes,
    temporary: bytes,
    copied: Copied,
    *,
    keeps_target: bool,
) -> bool | None:
    """Make ``temporary`` key ``name`` with its TTL. If the key has expired meanwhile, neither name exists afterwards.

    True, and the next step is to drop the key at the source. None if the permit does not hold: nothing was changed.

    Args:
        database: of the key.
        keeps_target: whether a key that the target already has stays unchanged.

    Raises:
        CopyLost: the copy is gone or not whole; nothing was changed.
        TargetUnavailable: whether it happened is unknown. The source still has the key. Copying it again is right in
            both cases, once nothing sent before can run at the target.
        TargetRefused: see there.
    """
    whole = (copied.kind, copied.length_command, copied.least, copied.most, copied.deadline)
    said = await run(target, _FINISH, (3, STATE, temporary, name, *whole, permit, database, int(keeps_target)))
    if said is None:
        return None
    with target.understood("EVALSHA"):
        # Only a reply of "done" allows the key to be deleted at the source.
        one_of(said, b"done", b"lost", b"expired")
    if said == b"lost":
        raise CopyLost(
            f"the copy of {copied.kind.decode()} {name!r} at target {target.address} was gone or no longer whole when "
            "it was to become the key; somebody deleted it, or the target evicted it because it is at its maxmemory"
        )
    return True


assert NEVER == -1, "the script knows it by this number"
