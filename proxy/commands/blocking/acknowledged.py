"""WAIT and WAITAOF: every master is asked at once, and the smallest count is the proxy's reply.

A server counts the replicas that have the writes of the asking connection. A session's writes use shared connections,
so the asking connection first runs a PING: after any command, a connection stands for all that its server has run so
far.
"""

from collections.abc import Sequence

import hiredis

from proxy.commands import replies
from proxy.commands.blocking.blockedcommand import BlockedCommand
from proxy.engine.backend import command
from proxy.engine.outcomes import Reply

PING = command(("PING",))


def ask(blocked: BlockedCommand, request: bytes, seconds: float) -> Reply[bytes]:
    """One server's answer to WAIT or WAITAOF."""
    return blocked.ask(PING + request, seconds, before=1)


def smallest(said: Sequence[bytes]) -> bytes:
    """One reply made of all of ``said``, which has no errors: the smallest of each number."""
    counted = []
    for reply in said:
        reader = hiredis.Reader()
        reader.feed(reply)
        counts = reader.gets()
        counted.append(counts if isinstance(counts, list) else [counts])
    numbers = [replies.integer(min(column)) for column in zip(*counted, strict=True)]
    return numbers[0] if len(numbers) == 1 else replies.array(numbers)
