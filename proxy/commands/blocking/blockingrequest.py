"""A blocking command in the form in which it is sent: once, or again after its slot has moved, with its remaining
timeout.

The deadline is fixed at the first look at the command, as the client counts it. If the server itself refuses the
timeout, for example because it is not a number, the error is left to the server.
"""

import math
import re
from collections.abc import Sequence

from proxy.engine.backend import command
from slots.keys import INTEGER

DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
HEXADECIMAL = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
LEAST_SECONDS = 0.001
"""Redis counts in milliseconds. 0 means that the command waits without limit."""
MOST_SECONDS = 1e9
"""A longer timeout counts as none: it is never rewritten, and the proxy does not watch it."""
COUNTS = {b"WAIT": b":0\r\n", b"WAITAOF": b"*2\r\n:0\r\n:0\r\n"}
"""Replies of counting commands when nothing is known to have been counted."""


def seconds_of(text: bytes) -> float | None:
    """The seconds of a timeout of the pops, which is in seconds. 0 means no limit. None if a server refuses it."""
    if text == b"0":
        return 0.0
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
        # Redis rounds up to milliseconds before it checks the sign, and -0.001 is slightly more than that.
        return 0.0 if value >= -LEAST_SECONDS else None
    # Too small for a float here, not for a server.
    return max(value, LEAST_SECONDS)


def milliseconds_of(text: bytes) -> float | None:
    """The seconds of a timeout of XREAD and WAIT, which is in milliseconds. 0 and None mean the same as above."""
    if not INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value / 1000 if 0 <= value < 2**63 else None


def nothing_came(protocol: int) -> bytes:
    """The reply when nothing has come: a null array, even where it would be a single value."""
    return b"_\r\n" if protocol == 3 else b"*-1\r\n"


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
        """When it gives up; None for never, or where the server decides."""
        if self._seconds is not None and 0 < self._seconds <= MOST_SECONDS:
            self.deadline = now + self._seconds
        self.ids: dict[int, bytes] = {}
        """Arguments that replace others: the entry ids that these stood for when the request was first sent."""

    @property
    def refused(self) -> bool:
        """Whether the server will refuse the timeout."""
        return self._seconds is None

    def left(self, now: float) -> float:
        """Seconds that it may still wait at a server; ``math.inf`` without a limit, 0 where the server will refuse
        it."""
        if self.deadline is not None:
            return max(self.deadline - now, LEAST_SECONDS)
        return 0.0 if self.refused else math.inf

    def words(self) -> list[bytes]:
        """The arguments, with those that replace others."""
        argv = list(self.argv)
        for place, text in self.ids.items():
            argv[place] = text
        return argv

    def payload(self, now: float) -> bytes:
        """The request in RESP, with the rest of its timeout."""
        argv = self.words()
        if self.deadline is not None and self._seconds is not None:
            rest = self.left(now)
            # The client's own words, where the rest of the timeout is the same.
            if self._seconds - rest > LEAST_SECONDS:
                milliseconds = math.ceil(rest * 1000)
                argv[self._timeout] = (
                    b"%d" % milliseconds if self._milliseconds else b"%d.%03d" % divmod(milliseconds, 1000)
                )
        return command(tuple(argv))

    def nothing(self, protocol: int) -> bytes:
        """The reply when the time is over and nothing has come."""
        name = self.argv[0].upper()
        if name in COUNTS:
            return COUNTS[name]
        return nothing_came(protocol)
