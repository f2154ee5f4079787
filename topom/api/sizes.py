"""Sizes of slots: taken in as they were measured, and shown with their age.

A measurement of a large product takes a while to read and to write, so that is done on a thread.
"""

import asyncio
from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from slots import ranges
from topom import sizes
from topom.api import size_models as models
from topom.api.access import ServedTopom
from topom.service import Topom
from topom.sizes import BigKey, InvalidSizes, SlotSize, Taking

LONGEST_KEY = 256
"""Characters of a key's name that are kept."""
CUT = "…"

router = APIRouter(prefix="/sizes", tags=["sizes"])


def describe(topom: Topom) -> models.Sizes:
    """What is known of sizes, and what of that is to be taken with care."""
    known = topom.sizes.known
    fresh = topom.freshness()
    groups = sizes.by_group(known, topom.ledger.table)
    last = None
    if known.last is not None:
        last = models.TakenSizes(
            taken_at=known.last.taken_at,
            age_seconds=round(max(0.0, topom.sizes.clock() - known.last.taken_at), 3),
            seconds=known.last.seconds,
            complete=known.last.complete,
            missing=[
                models.MissingServer(server=server, reason=reason) for server, reason in known.last.missing.items()
            ],
            sampled=known.last.sampled,
        )
    return models.Sizes(
        last=last,
        stale_seconds=topom.settings.sizes_stale_seconds,
        bytes=sum(size.bytes for size in known.slots.values()),
        keys=sum(size.keys for size in known.slots.values()),
        groups=[
            models.GroupSize(group_id=group.group_id, slots=group.slots, bytes=group.bytes, keys=group.keys)
            for group in groups
        ],
        stale=ranges.show(fresh.stale),
        moved=ranges.show(fresh.moved),
        unknown=ranges.show(fresh.unknown),
        warnings=fresh.warnings,
    )


@router.get("")
async def show(topom: ServedTopom) -> models.Sizes:
    """Totals by group, their age, and what is stale."""
    return describe(topom)


@router.post("")
async def record(topom: ServedTopom, measurement: models.Measurement) -> models.Sizes:
    """Take in sizes that were measured. Remembered over a restart.

    A slot that was measured later already keeps that. Keys are text: bytes that are no UTF-8 are written as `\\xNN`
    (Python's `backslashreplace`), and of a name longer than 256 characters the first 255 are kept, with `…` at the end.
    """
    taking, measured = await asyncio.to_thread(_read, measurement)
    await topom.sizes.record(taking, measured)
    return describe(topom)


def _read(measurement: models.Measurement) -> tuple[Taking, Mapping[int, SlotSize]]:
    if measurement.complete and measurement.missing:
        raise InvalidSizes("a measurement cannot be complete and miss servers; send it with complete=false")
    measured: dict[int, SlotSize] = {}
    for place, raw in enumerate(measurement.slots):
        try:
            slot = models.MeasuredSlot.model_validate(raw)
        except ValidationError as error:
            problems = [{**one, "loc": ("body", "slots", place, *one["loc"])} for one in error.errors()]
            raise RequestValidationError(problems) from None
        if slot.slot in measured:
            raise InvalidSizes(f"slot {slot.slot} is named more than once; add up its sizes")
        biggest = sorted(slot.biggest, key=lambda key: (-key.bytes, key.database, key.key))
        measured[slot.slot] = SlotSize(
            slot.bytes,
            slot.keys,
            tuple(BigKey(_cut(key.key), key.database, key.type, key.bytes) for key in biggest),
            measurement.taken_at,
        )
    taking = Taking(
        measurement.taken_at,
        measurement.seconds,
        measurement.complete,
        {missing.server: missing.reason for missing in measurement.missing},
        measurement.sampled,
    )
    return taking, measured


def _cut(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else key[: LONGEST_KEY - 1] + CUT
