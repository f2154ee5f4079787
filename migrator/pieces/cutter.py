"""How much of a big key goes in one piece: as much as each of the two servers can handle in a given time.

A server does nothing else while it reads or writes a piece. The cost of an element depends on the machine, the load and
the type. So it is learned from each piece, at both servers, and the higher cost decides. Elements and bytes have bounds
of their own, for the moment when large elements follow small ones.

**bounded**: a piece has at most :data:`PIECE_ELEMENTS`. Its expected bytes, by the size of the elements so far, stay
within :data:`PIECE_BYTES`. An element is not cut: a larger one is a piece of its own. Hashes and sets give their
elements in an order that does not depend on size. Where lists, sorted sets and streams reach much larger elements, one
piece is too large; the next ones are sized by it.
"""

from __future__ import annotations

PIECE_MILLISECONDS = 1.0
"""How long one piece should hold up the source or the target: no longer than a command of small keys does. A piece's
size adapts to it, but does not fall below :data:`LEAST_COST`; the bounds below can say less."""

PIECE_ELEMENTS, PIECE_BYTES = 512, 128 * 1024
"""The most elements in one piece, and the most bytes unless a single element is larger."""

BYTES_PER_ELEMENT = 2048
"""The number of bytes that cost about as much as an element by itself."""

START_SECONDS = 4e-6
"""Assumed cost of an element before the first was moved. It is high, so that a key begins with small pieces."""

GAIN = 0.2
"""Weight of the newest piece in the learned cost. The cost is a geometric mean, which stays near the median of a long
tail."""

MOST_CHANGE = 2.0
"""The most that a single piece may count, as a multiple of the learned cost; the inverse is the least."""

LEAST_COST = 64.0
"""Cost, in elements, below which a piece does not shrink to save time: some 0.1 ms of either server.

On a machine with too few processors even a small piece takes long, because the servers wait for their turn. Ever
smaller pieces would slow a move down, and clients would wait no less.
"""


class Cost:
    """The cost of an element of few bytes at one server."""

    def __init__(self) -> None:
        self.seconds = START_SECONDS
        self.longest = 0.0
        """Seconds of the longest piece since :meth:`PieceCutter.begin`."""

    def learn(self, cost: float, seconds: float) -> None:
        """Note that a piece of this cost took ``seconds``."""
        self.longest = max(self.longest, seconds)
        ratio = seconds / max(cost, LEAST_COST) / self.seconds
        self.seconds *= min(MOST_CHANGE, max(1 / MOST_CHANGE, ratio)) ** GAIN


def cost_of(elements: int, size: int) -> float:
    """The cost of a piece, in elements."""
    return elements + size / BYTES_PER_ELEMENT


class PieceCutter:
    """Says how large the next piece may be. It serves one key at a time, and is best kept from key to key.

    Attributes:
        reading: the cost of pieces at the source.
        writing: the cost of pieces at the target.
    """

    def __init__(self) -> None:
        self.reading = Cost()
        self.writing = Cost()
        self._average = 1.0  # bytes of an element

    def begin(self, average: float) -> None:
        """Start another key, whose elements are expected to have this many bytes each."""
        self._average = max(1.0, average)
        self.reading.longest = self.writing.longest = 0.0

    def elements(self, most_bytes: int | None = None) -> int:
        """How many elements the next piece may have, at least 1. ``most_bytes`` is a second bound besides
        :data:`PIECE_BYTES`."""
        size = self.size(most_bytes)
        in_time = int(self._budget() / (1 + self._average / BYTES_PER_ELEMENT))
        return max(1, min(PIECE_ELEMENTS, in_time, int(size / self._average)))

    def size(self, most_bytes: int | None = None) -> int:
        """How many bytes the next piece may have if it is one element that can be cut anywhere."""
        size = PIECE_BYTES if most_bytes is None else min(PIECE_BYTES, most_bytes)
        return max(1, min(size, int(self._budget() * BYTES_PER_ELEMENT)))

    def read(self, elements: int, size: int, seconds: float) -> None:
        """The source gave a piece in this time."""
        self.reading.learn(cost_of(elements, size), seconds)
        if elements:
            latest = size / elements
            # The average grows at once when elements get larger, and falls gradually when they get smaller.
            self._average = max(1.0, latest, self._average + GAIN * (latest - self._average))

    def written(self, elements: int, size: int, seconds: float) -> None:
        """The target took a piece in this time."""
        self.writing.learn(cost_of(elements, size), seconds)

    def _budget(self) -> float:
        seconds = max(self.reading.seconds, self.writing.seconds)
        return max(LEAST_COST, PIECE_MILLISECONDS / 1000 / seconds)
