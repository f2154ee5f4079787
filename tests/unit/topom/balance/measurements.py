"""Measurements of sizes, as short as a test can write them."""

from typing import Any

from topom.balance.sizes import BigKey, SlotSize, Taking

NOW = 1_000_000.0
DAY = 86_400.0
BIGGEST = (BigKey("a\\xff€", 3, "hash", 400), BigKey("b", 0, "string", 1))


def sized(count: int, taken_at: float = NOW, keys: int = 1, biggest: tuple[BigKey, ...] = ()) -> SlotSize:
    return SlotSize(count, keys, biggest, taken_at)


def taking(taken_at: float = NOW, complete: bool = True, **more: Any) -> Taking:
    return Taking(taken_at, 10.0, complete, **more)
