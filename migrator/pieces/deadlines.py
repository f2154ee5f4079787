"""Reads when a key expires, to the millisecond, from servers with PEXPIRETIME and from older ones."""

from __future__ import annotations

import hiredis

from migrator.connection import Connection, pack
from migrator.errors import unknown_command

NEVER = -1

TRIES = 5
"""How many times an older server is asked again because its clock went on by a millisecond meanwhile."""


async def read_deadline(server: Connection, name: bytes) -> int | None:
    """Milliseconds since 1970 at which key ``name`` expires, :data:`NEVER`, or None if there is no such key.

    Redis before 7.0 has no PEXPIRETIME. There the remaining time is read between two readings of the clock. If both
    show the same millisecond, the sum is exact.
    """
    (reply,) = await server.send(pack("PEXPIRETIME", name), 1)
    if isinstance(reply, int):
        return None if reply == -2 else reply
    if not unknown_command(str(reply)):
        raise server.refusal(reply)
    deadline = NEVER
    for _ in range(TRIES):
        replies = await server.send(pack("TIME") + pack("PTTL", name) + pack("TIME"), 3)
        for each in replies:
            if isinstance(each, hiredis.ReplyError):
                raise server.refusal(each)
        before, left, after = replies
        if left < 0:
            return None if left == -2 else NEVER
        deadline = milliseconds(before) + left
        if milliseconds(before) == milliseconds(after):
            break
    return deadline


def milliseconds(clock: list[bytes]) -> int:
    """The reply of TIME, in milliseconds since 1970."""
    return int(clock[0]) * 1000 + int(clock[1]) // 1000
