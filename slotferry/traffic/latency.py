"""A histogram of latencies with fixed memory and an error of about 1.6%. The sum of two is again a histogram."""

from collections.abc import Mapping

_FINE_BITS = 6
_FINE = 1 << _FINE_BITS


def bucket_of(microseconds: int) -> int:
    """The number of the bucket that holds a latency: 64 buckets to each doubling."""
    shift = microseconds.bit_length() - _FINE_BITS - 1
    if shift <= 0:
        return microseconds
    return (shift << _FINE_BITS) + (microseconds >> shift)


def highest_in(bucket: int) -> int:
    """The largest latency in microseconds that falls into a bucket."""
    if bucket < 2 * _FINE:
        return bucket
    shift = (bucket >> _FINE_BITS) - 1
    return (((bucket & (_FINE - 1)) + _FINE + 1) << shift) - 1


class Histogram:
    """Counts of latencies by bucket."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        """``counts`` by bucket number, for example another histogram's."""
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, seconds: float) -> None:
        """Count one latency."""
        bucket = bucket_of(int(seconds * 1e6))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        """Add all latencies of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        """The number of latencies counted."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> float:
        """The latency in milliseconds that ``percent`` of 100 do not exceed; 0 when nothing was counted."""
        wanted = self.total * percent / 100
        seen = 0
        highest = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            highest = bucket
            if seen >= wanted:
                break
        return highest_in(highest) / 1000

    def summary(self) -> dict[str, float]:
        """p50, p99, p99.9 and the maximum, in milliseconds."""
        return {
            "p50_ms": self.percentile(50),
            "p99_ms": self.percentile(99),
            "p999_ms": self.percentile(99.9),
            "max_ms": self.percentile(100),
        }
