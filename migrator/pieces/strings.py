"""Strings: read by ranges, written by one SET whose bytes come in pieces.

A server that receives a large argument allocates room for all of it once and reads into it what has arrived, a
little in each turn of its event loop; the argument then becomes the value without being copied. So no command is
long, and others are served in between. Building a string by commands is not so cheap, measured with 64 MB on
Redis 7.0: APPEND has the string grow and now and then copied as a whole (43 ms), SETRANGE at the far end first
zeroes all of it (45 ms); the SET takes less than 1 ms, and no turn longer than the piece it reads.

Where a replica or an append-only file follows, the server copies the command for them when it is complete, as it
does with a client's own SET of that size.

There is nothing at the target before the last byte is there, so nothing has to be renewed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import hiredis

from migrator.connection import pack
from migrator.errors import KeyGone
from migrator.pieces.piece import Key


async def send(key: Key) -> None:
    """Write a string under the temporary name, with the expiry.

    Raises:
        KeyGone: the string is not as long any more as it was. The connection to the target stays usable.
    """
    short = False

    async def parts() -> AsyncIterator[bytes]:
        nonlocal short
        expiry = pack("PX", key.cutter.settings.expiry_milliseconds).partition(b"\r\n")[2]
        yield b"*5\r\n" + pack("SET", key.temporary).partition(b"\r\n")[2] + b"$%d\r\n" % key.length
        start = 0
        while start < key.length:
            size = min(key.length - start, key.cutter.size(key.pace.batch_bytes))
            await key.pace.admit(0, size)
            part = b""
            if not short:
                (part,) = await key.ask(("GETRANGE", key.name, start, start + size - 1))
                key.cutter.read(1, size, key.held)
            # The command has been announced with its length: it is completed, and its key dropped.
            short = short or len(part) < size
            yield part.ljust(size, b"\0")
            start += size
        yield b"\r\n" + expiry

    reply = await key.target.stream(parts())
    if isinstance(reply, hiredis.ReplyError):
        raise key.target.refusal(reply)
    if short:
        raise KeyGone(f"key {key.name!r} expired or was evicted at source {key.source.address} while it was copied")
