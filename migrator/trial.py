"""A trial: a key of our own goes from the source to the target, the same way as all others.

Nothing else shows so surely whether the target can read the source's format, because a server reads no RDB version
newer than its own. It also shows whether the target takes writes at all: it does not while it is full, read-only,
unable to save to its disk, or short of replicas. It also has to know UNLINK, which came with Redis 4.

At each server the key is made and deleted in one step, so no client sees or counts it. Should a target make it without
deleting it, it soon expires.
"""

from __future__ import annotations

import secrets

import hiredis

from migrator.connection import Connection, pack
from migrator.errors import Refusal, TargetRefused
from slots.reserved import TRIAL
from slots.scripts import load

EXPIRY_SECONDS = 10
"""Seconds after which a trial key expires."""

_TRIAL = load("trial")


async def try_a_key(source: Connection, target: Connection) -> None:
    """Move a key of our own from the source to the target, in database 0, and delete it there.

    Raises:
        TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: as moving keys would.
    """
    key = TRIAL + secrets.token_hex(8).encode()
    payload = await source.call("EVAL", _TRIAL.text, 1, key, EXPIRY_SECONDS)
    with source.understood("DUMP"):
        # Anything else would look as if the target could not read it.
        if not isinstance(payload, bytes):
            raise TypeError(f"{payload!r:.50} is no payload")
    restore, delete = pack("RESTORE", key, EXPIRY_SECONDS * 1000, payload), pack("UNLINK", key)
    *queued, ran = await target.send(b"".join((pack("MULTI"), restore, delete, pack("EXEC"))), 4)
    for reply in (*queued, *(ran if isinstance(ran, list) else [ran])):
        if isinstance(reply, hiredis.ReplyError):
            raise target.refusal(reply)
    # Only what surely ran shows that the target takes writes.
    with target.understood("EXEC"):
        restored, deleted = ran
        if restored != b"OK" or deleted != 1:
            raise ValueError(f"{ran!r:.50} does not say that a key was made and deleted")


async def reads_payloads(source: Connection, target: Connection) -> bool:
    """Whether the target reads the source's format. Raises as :func:`try_a_key` for any other reason."""
    try:
        await try_a_key(source, target)
    except TargetRefused as error:
        if error.refusal is not Refusal.VERSION:
            raise
        return False
    return True
