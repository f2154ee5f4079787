"""Scores as a server writes them."""

import math
from collections.abc import Callable

Write = Callable[[float], str]
_WHOLE = 2.0**62
"""Redis 7.2 and later write whole numbers up to here as integers."""


def writer(version: str) -> Write:
    """What writes scores as a server of this version of Redis does."""
    parts = [int(part) for part in version.split(".")[:2]]
    return as_since_7_2 if parts >= [7, 2] else as_before_7_2


def as_before_7_2(score: float) -> str:
    """A score in the words of Redis up to 7.0: 17 digits."""
    return f"{score:.17g}"


def as_since_7_2(score: float) -> str:
    """A score in the words of Redis 7.2 and later: the fewest digits that give the same number."""
    if math.isinf(score):
        return "inf" if score > 0 else "-inf"
    if score == 0:
        return "-0" if math.copysign(1.0, score) < 0 else "0"
    if score.is_integer() and abs(score) <= _WHOLE:
        return str(int(score))
    mantissa, _, exponent = f"{score!r}e".partition("e")
    sign = "-" if score < 0 else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = whole + fraction
    # The number is ``digits`` times ten to the ``power``.
    power = int(exponent.rstrip("e") or 0) - len(fraction)
    stripped = digits.rstrip("0")
    power += len(digits) - len(stripped)
    digits = stripped.lstrip("0")
    return sign + _written(digits, power)


def _written(digits: str, power: int) -> str:
    count = len(digits)
    exponent = power + count - 1
    if power >= 0 and abs(exponent) < count + 7:
        return digits + "0" * power
    if power < 0 and (power > -7 or abs(exponent) < 4):
        point = count + power
        return f"0.{'0' * -point}{digits}" if point <= 0 else f"{digits[:point]}.{digits[point:]}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{rest}e{'-' if exponent < 0 else '+'}{abs(exponent)}"
