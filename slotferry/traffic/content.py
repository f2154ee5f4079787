"""The content of each key at each version: kinds of values, the writes between versions, and reads.

Everything here is a pure function of a key's index and its version, so nothing written has to be kept. Version 0 is
absent; version ``n`` is what the ``n``-th write to the key leaves. Versions go in rounds: after some number of writes
each key is absent again, and is then made again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol

Argument = bytes | int
PREFIX = b"traffic:"
LONG_TTL_SECONDS = 864_000
"""TTL of keys that have one: longer than any run, so that none expires during it."""
_POOL = Random(20_240_229).randbytes(1 << 18)
_STARTS = len(_POOL) - (1 << 17)
"""The places in the pool where a chunk may start, so that the longest chunk still fits."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class ReadCall(NamedTuple):
    """A command that reads one key, and its right reply at each version."""

    arguments: tuple[Argument, ...]
    expected: Callable[[int], Any]
    """The reply for a version of the key."""
    tidy: Callable[[Any], Any] | None = None
    """Makes replies comparable where their order or form does not matter; applied to the reply only."""


class WriteCall(NamedTuple):
    """A command that brings a key to its next version, and its reply."""

    arguments: tuple[Argument, ...]
    reply: Any
    tidy: Callable[[Any], Any] | None = None


class Kind(Protocol):
    """A type of value."""

    def present(self, version: int) -> bool:
        """Whether the key exists at this version."""

    def write(self, index: int, version: int) -> WriteCall:
        """The write from the version before to this one."""

    def whole(self, index: int) -> ReadCall:
        """A read of the key's whole content."""

    def part(self, index: int, choice: int) -> ReadCall:
        """A smaller read; ``choice`` is any number and selects which."""


def name_of(index: int) -> bytes:
    """The key's name."""
    return PREFIX + b"%d" % index


def index_of(name: bytes) -> int | None:
    """The reverse of :func:`name_of`; None for a name that does not belong to this traffic."""
    number = name.removeprefix(PREFIX)
    return int(number) if name.startswith(PREFIX) and number.isdigit() else None


def scatter(number: int) -> int:
    """32 bits that depend on a number without an obvious pattern."""
    mixed = (number * _GOLDEN) & _MASK
    mixed ^= mixed >> 29
    return ((mixed * 0xBF58476D1CE4E5B9) & _MASK) >> 32


def chunk(seed: int, size: int) -> bytes:
    """``size`` bytes, at least those of the seed, that depend on ``seed``: binary, and different for each seed."""
    start = scatter(seed) % _STARTS
    return (b"%x:" % seed) + _POOL[start : start + max(0, size - 8)]


def chunks(seed: int, places: Iterable[int], size: int) -> list[bytes]:
    """One chunk for each place, all different; faster than as many calls of :func:`chunk`."""
    start = scatter(seed) % _STARTS
    head = b"%x" % seed
    rest = max(0, size - 10)
    return [b"%s.%d:" % (head, place) + _POOL[start + place : start + place + rest] for place in places]


def mixed_size(index: int) -> int:
    """The approximate bytes of a key: most have tens to hundreds, one in two hundred up to 40 KB."""
    mixed = scatter(index ^ 0x5151)
    drawn, fine = mixed % 1000, mixed // 1000
    if drawn < 600:
        return 20 + fine % 100
    if drawn < 900:
        return 120 + fine % 880
    if drawn < 995:
        return 1000 + fine % 3000
    return 4000 + fine % 36000


def as_mapping(reply: Any) -> Any:
    """A flat RESP2 list or a RESP3 map of fields and values as a dictionary."""
    return dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else reply


def as_members(reply: Any) -> Any:
    """The members of a set, without their order; doubled ones stay visible."""
    return sorted(reply) if isinstance(reply, list | set) else reply


def as_score(reply: Any) -> Any:
    """A score of RESP2 (text) or RESP3 (a double) as a number."""
    return float(reply) if isinstance(reply, bytes | int | float) else reply


def as_scores(reply: Any) -> Any:
    """Members with scores, flat in RESP2 and in pairs in RESP3, as ``[(member, score), ...]``."""
    if not isinstance(reply, list):
        return reply
    pairs = reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
    return [(member, float(score)) for member, score in pairs]


def as_sign(reply: Any) -> Any:
    """A time to live as 1, whatever is left of it; -1 (none) and -2 (no key) stay the same."""
    return min(reply, 1) if isinstance(reply, int) else reply


@dataclass(frozen=True, slots=True)
class Text:
    """Strings, with and without TTL."""

    size: Callable[[int], int]
    period: int = 11
    """The key is absent at each multiple of this version; 0 for a key that is never deleted and has no TTL."""

    def present(self, version: int) -> bool:
        return version % self.period != 0 if self.period else version > 0

    def has_ttl(self, version: int) -> bool:
        """Whether the key has a TTL at this version."""
        return bool(self.period) and self.present(version) and version % 4 == 1

    def value(self, index: int, version: int) -> bytes | None:
        """The right reply to GET."""
        if not self.present(version):
            return None
        size = self.size(index)
        if self.period:
            size = size * (8 + version * 5 % 9) // 8
        return chunk((index << 24) + version, size)

    def write(self, index: int, version: int) -> WriteCall:
        name = name_of(index)
        value = self.value(index, version)
        if value is None:
            return WriteCall((b"DEL" if version % 2 else b"UNLINK", name), 1)
        if self.has_ttl(version):
            match version % 3:
                case 0:
                    return WriteCall((b"SETEX", name, LONG_TTL_SECONDS, value), b"OK")
                case 1:
                    return WriteCall((b"SET", name, value, b"EX", LONG_TTL_SECONDS), b"OK")
                case _:
                    return WriteCall((b"SET", name, value, b"PX", LONG_TTL_SECONDS * 1000), b"OK")
        if self.period and version % 5 == 0:
            return WriteCall((b"GETSET", name, value), self.value(index, version - 1))
        return WriteCall((b"SET", name, value), b"OK")

    def whole(self, index: int) -> ReadCall:
        return ReadCall((b"GET", name_of(index)), lambda version: self.value(index, version))

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        match choice % 4:
            case 0:
                return ReadCall((b"STRLEN", name), lambda version: len(self.value(index, version) or b""))
            case 1:
                return ReadCall((b"GETRANGE", name, 0, 39), lambda version: (self.value(index, version) or b"")[:40])
            case 2:
                return ReadCall((b"EXISTS", name), lambda version: int(self.present(version)))
            case _:
                return self.ttl(index)

    def ttl(self, index: int) -> ReadCall:
        """A read of whether the key has a TTL."""
        return ReadCall(
            (b"TTL", name_of(index)),
            lambda version: (1 if self.has_ttl(version) else -1) if self.present(version) else -2,
            as_sign,
        )


class Counter:
    """Strings that only INCR and INCRBY write: a write done twice, or lost, shows at once."""

    period = 64

    def present(self, version: int) -> bool:
        return version % self.period != 0

    def _step(self, index: int) -> int:
        return index % 7 + 1

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self._step(index)
        if not self.present(version):
            return WriteCall((b"DEL", name), 1)
        after = version % self.period * step
        return WriteCall((b"INCR", name) if step == 1 else (b"INCRBY", name, step), after)

    def whole(self, index: int) -> ReadCall:
        step = self._step(index)
        return ReadCall(
            (b"GET", name_of(index)),
            lambda version: b"%d" % (version % self.period * step) if self.present(version) else None,
        )

    def part(self, index: int, choice: int) -> ReadCall:
        return self.whole(index)


def kinds_by_share(shares: dict[Kind, int]) -> list[Kind]:
    """A list in which each kind comes as often as its share says."""

    def every() -> Iterator[Kind]:
        for kind, share in shares.items():
            for _ in range(share):
                yield kind

    return list(every())
