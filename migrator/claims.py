"""Claims on keys that are copied in pieces: while a claim is held, no command on the key runs at the target.

The scripts that move keys treat a claimed key as present at the source, even if it has expired there meanwhile
(**absent-first**). Otherwise a client could create it again at the target, and the last step of the copy would replace
the new key. A claim is a field of the hash :data:`slots.reserved.STATE` at the source. It is given back in the same
step that deletes the key there. A claim outlives the permit that it was made with (:mod:`slots.permits`), because
copying takes long. When a call begins, it removes the claims of earlier calls.
"""

from __future__ import annotations

import secrets
from enum import Enum

from migrator.connection import Connection
from migrator.steps import run
from slots.replies import integer
from slots.reserved import IN_PIECES, STATE
from slots.scripts import load

_CLAIM = load("claim")
_HELD = load("claim_held")


class Claimed(Enum):
    """The answer to a request for a claim."""

    HELD = b"held"
    ABSENT = b"absent"
    TAKEN = b"taken"


def claimant() -> str:
    """A name for the claims of one mover, unique among all."""
    return IN_PIECES + secrets.token_hex(8)


async def claim(source: Connection, permit: str, database: int, key: bytes, mover: str) -> Claimed | None:
    """Claim a key, if it is there and not claimed yet. None if the permit does not hold."""
    said = await run(source, _CLAIM, (2, STATE, key, permit, database, mover))
    if said is None:
        return None
    with source.understood("EVALSHA"):
        return Claimed(said)


async def is_held(source: Connection, permit: str, database: int, key: bytes, mover: str) -> bool | None:
    """Whether the claim is still there: a flush by a client removes it. None if the permit does not hold."""
    said = await run(source, _HELD, (2, STATE, key, permit, database, mover))
    if said is None:
        return None
    with source.understood("EVALSHA"):
        return bool(integer(said))
