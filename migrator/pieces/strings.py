"""Strings are read by ranges and written by one SET, whose bytes come in pieces.

A server that receives a large argument allocates room for all of it once. In each turn of its event loop it reads the
bytes that have arrived, and serves other clients in between. The argument then becomes the value without a copy. So no
command is long. To build a string by several commands is not so cheap, measured with 64 MB on Redis 7.0: APPEND makes
the string grow and copies it as a whole now and then (43 ms); SETRANGE at the far end first zeroes all of it (45 ms).
The SET takes less than 1 ms, and no turn is longer than the piece it reads.

If a replica or an append-only file follows, the server copies the complete command for them, as for a client's own SET
of that size. So replicas get all of it at once, and have time to confirm it by its size.

The target has nothing before the last byte is there, so no expiry has to be renewed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack

import hiredis

from migrator.connection import pack
from migrator.errors import KeyGone
from migrator.pieces.piece import Key


async def send(key: Key) -> None:
    """Write a string under the temporary name, with the expiry.

    Raises:
        KeyGone: the string has become shorter. The connection to the target stays usable.
    """
    short = False

    async def parts() -> AsyncIterator[bytes]:
        nonlocal short
        expiry = pack("PX", key.expiry_milliseconds(key.length)).partition(b"\r\n")[2]
        yield b"*5\r\n" + pack("SET", key.temporary).partition(b"\r\n")[2] + b"$%d\r\n" % key.length
        start = 0
        while start < key.length:
            size = min(key.length - start, key.cutter.size(key.pace.batch.bytes))
            await key.pace.admit(0, size)
            part = b""
            if not short:
                (part,) = await key.ask(("GETRANGE", key.name, start, start + size - 1))
                key.cutter.read(1, size, key.held)
            # The command's length was already announced: the command is completed, and its key dropped.
            short = short or len(part) < size
            yield part.ljust(size, b"\0")
            start += size
        owing.enter_context(key.confirmation.owing(key.length))
        yield b"\r\n" + expiry

    with ExitStack() as owing:
        reply = await key.target.stream(parts())
    if isinstance(reply, hiredis.ReplyError):
        raise key.target.refusal(reply)
    if short:
        raise KeyGone(f"key {key.name!r} expired or was evicted at source {key.source.address} while it was copied")
    await key.confirmation.wait(key.target, key.length)
