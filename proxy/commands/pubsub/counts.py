"""How many clients are subscribed to a channel, said to the servers in binary and asked from them.

A server counts connections. A worker's clients share one, so it counts as one. It says how many more they are by being
subscribed to *digits* as well: channels of Slotferry's own, to which nobody publishes. The server's answer about a
channel and its digits is the number of clients of all workers of all proxies, at one moment. Nothing is left of a
worker whose connection ends. Somebody who is subscribed at the server by itself, and a worker of a proxy without
digits, count as one.

The clients of a pattern are said likewise, by digits of a channel that announces the pattern. Servers list channels and
no patterns, so that channel has the pattern's name within.

One request changes the number. If it takes digits away, it adds their opposites first, which count less than nothing;
the next request removes both. So there is no moment with another number than that before or behind. A worker that
leaves takes the digits away first, and then leaves the channel or the pattern. If a message comes in between, it counts
as one.
"""

from collections.abc import Sequence
from hashlib import blake2b

from slots.reserved import RESERVED

DIGITS = 20
"""Enough for a million clients of one worker."""
MORE, LESS = RESERVED + b"more:", RESERVED + b"less:"
ANNOUNCES = RESERVED + b"pattern:"
"""What stands before a pattern in the name of the channel that announces it."""
ASKED_EACH = 1 + 2 * DIGITS
"""How many names are asked for, for each channel."""


def digits(channel: bytes, clients: int) -> list[bytes]:
    """What a worker with so many clients is subscribed to, beside the channel."""
    return _names(MORE, channel, _bits(clients))


def change(channel: bytes, before: int, after: int) -> tuple[list[bytes], list[bytes]]:
    """What to subscribe to, and then what to leave, each in one request, when the number of clients changes."""
    old, new = _bits(before), _bits(after)
    gone = old & ~new
    less = _names(LESS, channel, gone)
    return _names(MORE, channel, new & ~old) + less, _names(MORE, channel, gone) + less


def asked(channel: bytes) -> list[bytes]:
    """The names that a server is asked for, to know a channel's clients: :data:`ASKED_EACH` of them."""
    every = (1 << DIGITS) - 1
    return [channel, *_names(MORE, channel, every), *_names(LESS, channel, every)]


def clients(numbers: Sequence[int]) -> int:
    """The number of clients, by the numbers of :func:`asked`."""
    return numbers[0] + further(numbers)


def further(numbers: Sequence[int]) -> int:
    """How many more clients there are than connections, by the numbers of :func:`asked`."""
    more, less = numbers[1 : 1 + DIGITS], numbers[1 + DIGITS :]
    return sum((one - other) << bit for bit, (one, other) in enumerate(zip(more, less, strict=True)))


def _bits(clients: int) -> int:
    return min(max(clients - 1, 0), (1 << DIGITS) - 1)


def _names(prefix: bytes, channel: bytes, bits: int) -> list[bytes]:
    if not bits:
        return []
    # A channel may have any length.
    digest = blake2b(channel, digest_size=16).digest()
    return [b"%b%d:%b" % (prefix, bit, digest) for bit in range(DIGITS) if bits >> bit & 1]
