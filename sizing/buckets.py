"""The ranges of the histograms, and the text form of sizes."""

from __future__ import annotations

from dataclasses import dataclass

SIZE, TTL = "bytes", "ttl_ms"
"""Names of the two histograms, which are those of the columns."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Range:
    """Times to live from ``low`` up to but not including ``high``, in milliseconds.

    ``high`` is None for all from ``low`` on; both are None for keys that never expire.
    """

    label: str
    low: int | None
    high: int | None


TTL_RANGES = (
    Range("< 1 min", 0, _MINUTE),
    Range("1 - 60 min", _MINUTE, _HOUR),
    Range("1 - 24 h", _HOUR, _DAY),
    Range("1 - 7 days", _DAY, 7 * _DAY),
    Range("7 - 30 days", 7 * _DAY, 30 * _DAY),
    Range("30 - 365 days", 30 * _DAY, 365 * _DAY),
    Range("> 1 year", 365 * _DAY, None),
    Range("no TTL", None, None),
)


def size_label(exponent: int) -> str:
    """The sizes of the range from 2**exponent on, as ``64 - 128 B`` or ``512 B - 1 KiB``."""
    low, low_unit = _power(exponent)
    high, high_unit = _power(exponent + 1)
    return f"{low} - {high} {high_unit}" if low_unit == high_unit else f"{low} {low_unit} - {high} {high_unit}"


def _power(exponent: int) -> tuple[int, str]:
    return 2 ** (exponent % 10), _UNITS[exponent // 10]


def size(count: float) -> str:
    """Bytes as text for a person, in units of 1024: ``812 B``, ``3.4 KiB``, ``12.0 GiB``."""
    amount = float(count)
    for unit in _UNITS:
        if abs(amount) < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable: the last unit returns")
