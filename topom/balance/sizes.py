"""What is known of the sizes of slots: how a measurement changes that, and how old the sizes are.

Pure functions and values; :mod:`topom.balance.sizebook` keeps them. A size belongs to a slot and not to a server, so it
stays true when the slot moves: its keys bring their bytes along. It does not include what clients have written since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from slots import ranges
from slots.slot import OFFLINE
from slots.table import SlotTable
from topom.errors import Conflict, Invalid
from topom.migration.ways import Sized

MOST_BIGGEST = 10
"""How many of the biggest keys are kept for each slot."""
MOST_PREFIXES = 100
"""How many of the biggest prefixes are kept."""
LONGEST_PREFIX = 60
"""How many characters of a prefix are kept. So all prefixes take at most 32 KiB in the store."""
CLOCK_SKEW_SECONDS = 300.0
"""How many seconds a measurement may be ahead of topom's clock."""
HOW_TO_MEASURE = "`slotferry sizing run --into DIR` measures them"


class InvalidSizes(Invalid):
    """A measurement that contradicts itself, or does not fit this product."""


class NoSizes(Conflict):
    """An operator wants a plan by bytes, and the size of no slot is known."""


@dataclass(frozen=True, slots=True)
class BigKey:
    """One of the biggest keys of a slot: ``key`` as text, ``type`` as TYPE gives it, ``bytes`` of memory."""

    key: str
    database: int
    type: str
    bytes: int


@dataclass(frozen=True, slots=True)
class SlotSize:
    """The size of a slot: ``bytes`` of memory, the number of ``keys``, and the ``biggest`` keys, the biggest first.

    ``taken_at`` is when the measurement began, in seconds since 1970, UTC.
    """

    bytes: int
    keys: int
    biggest: tuple[BigKey, ...]
    taken_at: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """The keys whose names begin in the same way, as far as a separator.

    Attributes:
        depth: how many separators the prefix has; 0 for all keys without a separator, under the empty prefix.
        prefix: its readable form (:func:`slots.keynames.readable`).
        keys: their number.
        bytes: their memory.
    """

    depth: int
    prefix: str
    keys: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Taking:
    """How sizes were taken, and what was found of all slots together.

    Attributes:
        taken_at: when it began, in seconds since 1970, UTC.
        seconds: how long it took.
        complete: whether every server was read to its end.
        missing: for each server that could not be read, by ``host:port``, why.
        sampled: the share of the keys that was measured, greater than 0 and up to 1.
        bytes, keys: of all slots that were measured.
        prefixes: the biggest of them, the biggest first; a shorter prefix counts what a longer one within it has.
    """

    taken_at: float
    seconds: float
    complete: bool
    missing: Mapping[str, str] = field(default_factory=dict)
    sampled: float = 1.0
    bytes: int = 0
    keys: int = 0
    prefixes: tuple[Prefix, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """Sizes by slot, without slots that were never measured, and the last taking; None before the first."""

    slots: Mapping[int, SlotSize] = field(default_factory=dict)
    last: Taking | None = None


def with_measurement(
    known: KnownSizes, taking: Taking, sizes: Mapping[int, SlotSize], number_of_slots: int, now: float
) -> KnownSizes:
    """What is known after a measurement.

    If the measurement is complete, a slot that it does not name has no keys. If not, such a slot keeps its size. A slot
    that was already measured later keeps that size, so measurements may come in any order.

    Raises:
        InvalidSizes: it names a slot that does not exist, or was taken in the future.
    """
    wrong = sorted(slot for slot in sizes if not 0 <= slot < number_of_slots)
    if wrong:
        raise InvalidSizes(
            f"slot {wrong[0]} is not within 0-{number_of_slots - 1}; measure with the product's number of slots and "
            "slot function, which topom tells"
        )
    if taking.taken_at > now + CLOCK_SKEW_SECONDS:
        raise InvalidSizes(
            f"these sizes were taken at {moment(taking.taken_at)}, which is in the future: topom's clock says "
            f"{moment(now)}; set the clocks, and measure again"
        )
    slots = dict(known.slots)
    for slot in range(number_of_slots) if taking.complete else sizes:
        before = slots.get(slot)
        if before is None or before.taken_at <= taking.taken_at:
            slots[slot] = sizes.get(slot) or SlotSize(0, 0, (), taking.taken_at)
    newer = known.last is None or known.last.taken_at <= taking.taken_at
    return KnownSizes(slots, taking if newer else known.last)


def fresh(known: KnownSizes, now: float, stale_seconds: float) -> KnownSizes:
    """What is known without stale sizes."""
    slots = {slot: size for slot, size in known.slots.items() if now - size.taken_at <= stale_seconds}
    return KnownSizes(slots, known.last)


def sizes_in(known: KnownSizes, table: SlotTable, group_id: int, slots: Collection[int]) -> Sized | None:
    """What these slots of a group have, and all of its slots; None if no size is known. A slot that was not measured
    counts as the mean of the measured ones."""
    if not known.slots:
        return None
    means = [sum(getattr(size, part) for size in known.slots.values()) / len(known.slots) for part in ("keys", "bytes")]

    def total(wanted: Collection[int]) -> tuple[float, float]:
        measured = [size for slot in wanted if (size := known.slots.get(slot)) is not None]
        others = len(wanted) - len(measured)
        return (
            sum(size.keys for size in measured) + others * means[0],
            sum(size.bytes for size in measured) + others * means[1],
        )

    return Sized(*total(slots), *total([slot.id for slot in table.slots if slot.group_id == group_id]))


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The size of a group's slots together; a slot that is moving counts for the group to which it goes.

    ``bytes`` of memory and ``keys`` count as far as they are known.
    """

    group_id: int
    slots: int
    bytes: int
    keys: int


def by_group(known: KnownSizes, table: SlotTable) -> list[GroupSize]:
    """The totals of every group, by ascending id. Slots that rest in no group, or go to none, are left out."""
    totals = {group_id: [0, 0, 0] for group_id in sorted(table.groups)}
    for slot in table.slots:
        total = totals.get(slot.destination_id)
        if total is None:
            continue
        total[0] += 1
        size = known.slots.get(slot.id)
        if size is not None:
            total[1] += size.bytes
            total[2] += size.keys
    return [GroupSize(group_id, *total) for group_id, total in totals.items()]


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which sizes are uncertain, by ascending slot.

    Attributes:
        stale: slots that were measured longer ago than is allowed.
        moved: slots that moved after their measurement had begun.
        unknown: slots that belong to groups and were never measured.
        warnings: all of this in sentences, and what the last taking could not do.
    """

    stale: list[int]
    moved: list[int]
    unknown: list[int]
    warnings: list[str]


def freshness(
    known: KnownSizes, table: SlotTable, moved_at: Mapping[int, float], now: float, stale_seconds: float
) -> Freshness:
    """How far sizes can be trusted.

    Args:
        moved_at: when each slot last came to rest after a move, in seconds since 1970.
        now: seconds since 1970.
        stale_seconds: older sizes are stale.
    """
    owned = [slot.id for slot in table.slots if slot.destination_id != OFFLINE]
    unknown = [slot for slot in owned if slot not in known.slots]
    stale = [slot for slot, size in sorted(known.slots.items()) if now - size.taken_at > stale_seconds]
    # A measurement that was under way when keys moved may have met them twice, or not at all: so its beginning counts.
    moved = sorted(slot for slot, at in moved_at.items() if slot in known.slots and at >= known.slots[slot].taken_at)
    if known.last is None:
        return Freshness([], [], unknown, [f"the sizes of slots are not known; {HOW_TO_MEASURE}"])
    warnings = []
    if stale:
        oldest = min(known.slots[slot].taken_at for slot in stale)
        warnings.append(
            f"the sizes of {_counted(stale)} are stale: the oldest was taken {duration(now - oldest)} ago, "
            f"at {moment(oldest)}; {HOW_TO_MEASURE} anew"
        )
    if moved:
        warnings.append(
            f"sizes were taken before {_counted(moved)} moved; they count with the bytes that they had before"
        )
    if unknown:
        warnings.append(f"the sizes of {_counted(unknown)} are not known; each counts as the mean of the others")
    for server, reason in sorted(known.last.missing.items()):
        warnings.append(f"{server} could not be read when sizes were last taken: {reason}")
    if not known.last.complete and not known.last.missing:
        warnings.append("sizes were last taken of a part of the keys only")
    if known.last.sampled < 1:
        warnings.append(f"sizes are estimates from a sample of {known.last.sampled:.3g} of the keys")
    return Freshness(stale, moved, unknown, warnings)


def _counted(slots: Collection[int]) -> str:
    return f"{len(slots)} slot{'' if len(slots) == 1 else 's'} ({ranges.shortened(ranges.show(slots))})"


def moment(seconds: float) -> str:
    """A time as ``2026-03-01T22:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float) -> str:
    """Seconds as words, in the largest unit that fits."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{max(0, int(seconds))} s"
