"""WAIT and WAITAOF: asked of every master at once; the smallest count is the proxy's.

A server counts the replicas that have what the asking connection wrote. A session's writes go over shared connections,
so the asking one runs a PING first: after any command a connection stands for all that its server has run until then.
"""

import asyncio
from collections.abc import Sequence

import hiredis

from proxy.engine.backend import command
from proxy.ownconnections import OwnConnection
from proxy.slowpath import replies

PING = command(("PING",))


async def ask(connection: OwnConnection, request: bytes, seconds: float) -> bytes:
    """What one server answers to WAIT or WAITAOF."""
    _, reply = await asyncio.gather(connection.ask(PING), connection.ask(request, seconds))
    return reply


def smallest(said: Sequence[bytes]) -> bytes:
    """One reply for all of ``said``, none of which is an error: the smallest of each number."""
    counted = []
    for reply in said:
        reader = hiredis.Reader()
        reader.feed(reply)
        counts = reader.gets()
        counted.append(counts if isinstance(counts, list) else [counts])
    numbers = [replies.integer(min(column)) for column in zip(*counted, strict=True)]
    return numbers[0] if len(numbers) == 1 else replies.array(numbers)
