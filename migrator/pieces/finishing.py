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
from slots.replies import one_of
from slots.reserved import STATE
from slots.scripts import load

_FINISH = load("finish")


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
        _FINISH.text,
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
        one_of(said, b"done", b"lost", b"expired", b"not permitted")
    if said == b"lost":
        raise CopyLost(
            f"the copy of {copied.kind.decode()} {name!r} at target {target.address} was gone or no longer whole when "
            "it was to become the key; somebody deleted it, or the target evicted it because it is at its maxmemory"
        )
    return bool(said != b"not permitted")


assert NEVER == -1, "the script knows it by this number"
