"""Chooses the keys of a sample by name alone, so that every read of any server chooses the same."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

_SPREAD = 0x9E3779B1
"""2^32 divided by the golden ratio, odd (D. Knuth, The Art of Computer Programming, 6.4). The slot may be the low bits
of the checksum. After the multiplication the highest bits depend on all bits, and each slot has its share of the
sample."""


def sampled(keys: Sequence[bytes], fraction: float) -> list[int]:
    """Places of the keys that are in the sample with this share of all keys."""
    bound = round(fraction * (1 << 32))
    return [place for place, key in enumerate(keys) if (zlib.crc32(key) * _SPREAD) & 0xFFFFFFFF < bound]
