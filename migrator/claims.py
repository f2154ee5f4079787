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
from slots import moving
from slots.moving import DROP
from slots.replies import integer
from slots.reserved import IN_PIECES, STATE
from slots.scripts import NOT_PERMITTED, load

_CLAIM = load("claim")
_HELD = load("claim_held")


class Claimed(Enum):
    """The answer to a request for a claim, or to a look at it."""

    HELD = b"held"
    ABSENT = b"absent"
    TAKEN = b"taken"
    NOT_PERMITTED = b"not permitted"


class Claims:
    """The claims that one connection to the source asks for. Each request carries the permit that holds."""

    def __init__(self, source: Connection) -> None:
        self._source = source
        self._claimant = IN_PIECES + secrets.token_hex(8)

    async def take(self, database: int, key: bytes, permit: str) -> Claimed:
        """Claim a key, if it is there and not claimed yet."""
        said = await self._call("EVAL", _CLAIM.text, 2, STATE, key, permit, database, self._claimant)
        if said is None:
            return Claimed.NOT_PERMITTED
        with self._source.understood("EVAL"):
            return Claimed(said)

    async def look(self, database: int, key: bytes, permit: str) -> Claimed:
        """Whether the claim is still there: HELD, ABSENT or NOT_PERMITTED. A flush by a client removes it."""
        said = await self._call("EVAL", _HELD.text, 2, STATE, key, permit, database, self._claimant)
        if said is None:
            return Claimed.NOT_PERMITTED
        with self._source.understood("EVAL"):
            return Claimed.HELD if integer(said) else Claimed.ABSENT

    async def release(self, database: int, key: bytes, permit: str, *, delete: bool) -> bool:
        """Give the claim back. If the key has moved, delete it in the same step. False if the permit no longer
        holds."""
        arguments = moving.drop_arguments(
            permit, database, self._claimant, [key], check=False, deletes=1 if delete else 0
        )
        said = await self._call("EVAL", DROP.text, *arguments)
        if said is None:
            return False
        with self._source.understood("EVAL"):
            moving.dropped(said, 1)
        return True

    async def _call(self, *command: str | bytes | int) -> object:
        """The reply; None if the permit does not hold."""
        try:
            reply: object = await self._source.call(*command)
        except self._source.refused as error:
            if error.reply.startswith(NOT_PERMITTED):
                return None
            raise
        return reply
