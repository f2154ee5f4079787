"""How big a key may be that goes in one step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How big a key may be that goes in one step, by a look that takes a server no time.

    Attributes:
        elements: of a hash, list, set, sorted set or stream.
        bytes: memory at the source; estimated from a few of a key's elements.
        piece_milliseconds: how long one piece of a bigger one should hold up either server.
    """

    elements: int = 512
    bytes: int = 64 * 1024
    piece_milliseconds: float = 1.0
