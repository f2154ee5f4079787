"""A blocking command as it is sent: once, or again after its slot has moved, with the rest of its timeout.

When the command is over by the client's reckoning is settled when it is first looked at. Whatever the server itself
refuses, such as a timeout that is no number, is left to the server.
"""

import math
import re
from collections.abc import Sequence

from proxy.engine.backend import command
from slots.keys import INTEGER

DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
HEXADECIMAL = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
LEAST_SECONDS = 0.001
"""Redis counts in milliseconds; 0 means that the command waits for ever."""
MOST_SECONDS = 1e9
"""A longer timeout is as good as none: it is never written anew, and the proxy keeps no time of it."""
COUNTS = {b"WAIT": b":0\r\n", b"WAITAOF": b"*2\r\n:0\r\n:0\r\n"}
"""Replies of commands that count, where nothing is known to have been counted."""


def seconds_of(text: bytes) -> float | None:
    """A timeout in seconds as the pops take it: 0 is for ever. None where a server refuses it."""
    if DECIMAL.fullmatch(text):
        value = float(text)
        nothing = not re.search(rb"[1-9]", re.split(rb"[eE]", text)[0])
    elif HEXADECIMAL.fullmatch(text):
        try:
            value = float.fromhex(text.decode())
        except OverflowError:
            return None
        nothing = not re.search(rb"[1-9a-fA-F]", re.split(rb"[pP]", text[text.lower().index(b"x") + 1 :])[0])
    else:
        return None
    if nothing:
        return 0.0
    if text.startswith(b"-"):
        # Redis rounds up to milliseconds before it looks for a sign, and -0.001 is a little more than that.
        return 0.0 if value >= -LEAST_SECONDS else None
    # Too small for a float here, not for a server.
    return max(value, LEAST_SECONDS)


def milliseconds_of(text: bytes) -> float | None:
    """A timeout in milliseconds, as XREAD and WAIT take it, in seconds; 0 and None as above."""
    if not INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value / 1000 if 0 <= value < 2**63 else None


class BlockingRequest:
    """One request and its deadline.

    Args:
        argv: the request.
        timeout: place of the timeout among its arguments.
        milliseconds: whether the timeout is in milliseconds, and not in seconds.
        now: the time, by the event loop's clock.
    """

    __slots__ = ("_milliseconds", "_seconds", "_timeout", "argv", "deadline", "ids")

    def __init__(self, argv: Sequence[bytes], timeout: int, milliseconds: bool, now: float) -> None:
        self.argv = list(argv)
        self._timeout = timeout
        self._milliseconds = milliseconds
        text = argv[timeout]
        self._seconds = milliseconds_of(text) if milliseconds else seconds_of(text)
        self.deadline: float | None = None
        """When it gives up; None for never, or when that is the server's business."""
        if self._seconds is not None and 0 < self._seconds <= MOST_SECONDS:
            self.deadline = now + self._seconds
        self.ids: dict[int, bytes] = {}
        """What to send in the place of other arguments: the entry ids that they stood for when they were first sent."""

    @property
    def refused(self) -> bool:
        """Whether the server will refuse the timeout."""
        return self._seconds is None

    def left(self, now: float) -> float:
        """Seconds that it may still wait at a server; ``math.inf`` for ever, 0 where the server will refuse it."""
        if self.deadline is not None:
            return max(self.deadline - now, LEAST_SECONDS)
        return 0.0 if self.refused else math.inf

    def payload(self, now: float) -> bytes:
        """The request in RESP, with the rest of its timeout."""
        argv = list(self.argv)
        for place, text in self.ids.items():
            argv[place] = text
        if self.deadline is not None and self._seconds is not None:
            rest = self.left(now)
            # As the client wrote it, where that makes no difference.
            if self._seconds - rest > LEAST_SECONDS:
                milliseconds = math.ceil(rest * 1000)
                argv[self._timeout] = (
                    b"%d" % milliseconds if self._milliseconds else b"%d.%03d" % divmod(milliseconds, 1000)
                )
        return command(tuple(argv))

    def nothing(self, protocol: int) -> bytes:
        """The reply once the time is over and nothing has come."""
        name = self.argv[0].upper()
        if name in COUNTS:
            return COUNTS[name]
        # A null array also where the reply would be one value: that is what Redis gives.
        return b"_\r\n" if protocol == 3 else b"*-1\r\n"
