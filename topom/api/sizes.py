"""Sizes of slots: stores measurements, and shows sizes with their age.

A measurement of a large product takes a while to read and to write. So that is done on a thread, in pieces, so that the
event loop gets its turns.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError

from slots import ranges
from slots.keynames import readable
from slots.slot import MAXIMUM_SLOTS
from topom.api import large_json
from topom.api import size_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.balance import sizes
from topom.balance.sizes import LONGEST_PREFIX, BigKey, InvalidSizes, Prefix, SlotSize, Taking
from topom.term.service import Topom

LONGEST_KEY = 256
"""How many characters of a key's name are kept."""
CUT = "…"


class _Request(Request):
    """A request whose body is read on a thread. It is at most as large as :mod:`topom.api.door` lets through."""

    async def json(self) -> Any:
        body = await self.body()
        return await asyncio.to_thread(large_json.read, body, "slots", MAXIMUM_SLOTS, _slot)


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_Request(request.scope, request.receive))

        return handle


router = resource("/sizes", "sizes", route_class=_Route)


def describe(topom: Topom) -> models.Sizes:
    """What is known of sizes, and what of that is uncertain."""
    known = topom.sizes.known
    fresh = topom.sizes.freshness(topom.ledger.state)
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
            bytes=known.last.bytes,
            keys=known.last.keys,
        )
    return models.Sizes(
        last=last,
        stale_seconds=topom.settings.sizes_stale_seconds,
        bytes=sum(size.bytes for size in known.slots.values()),
        keys=sum(size.keys for size in known.slots.values()),
        groups=sizes.by_group(known, topom.ledger.table),
        stale=ranges.show(fresh.stale),
        moved=ranges.show(fresh.moved),
        unknown=ranges.show(fresh.unknown),
        warnings=fresh.warnings,
        prefixes=known.last.prefixes if known.last else (),
    )


@router.get("")
async def show(topom: ServedTopom) -> models.Sizes:
    """Totals by group and by prefix of names, their age, and what is stale."""
    return describe(topom)


@router.post("")
async def record(topom: ServedTopom, measurement: models.Measurement) -> models.Sizes:
    """Store measured sizes. They are remembered over a restart.

    A slot that was already measured later keeps that size. Keys are text: bytes that are no UTF-8 are written as
    `\\xNN` (Python's `backslashreplace`). Of a name longer than 256 characters the first 255 are kept, with `…` at the
    end. Prefixes are those of the last measurement; one that names none leaves none.
    """
    taking, sizes = await asyncio.to_thread(_read, measurement)
    await topom.sizes.record(taking, sizes)
    return describe(topom)


def _read(measurement: models.Measurement) -> tuple[Taking, Mapping[int, SlotSize]]:
    if measurement.complete and measurement.missing:
        raise InvalidSizes("a measurement cannot be complete and miss servers; send it with complete=false")
    sizes: dict[int, SlotSize] = {}
    for entry in measurement.slots:
        if isinstance(entry, RequestValidationError):
            raise entry
        slot, size = entry
        if slot in sizes:
            raise InvalidSizes(f"slot {slot} is named more than once; add up its sizes")
        sizes[slot] = replace(size, taken_at=measurement.taken_at)
    taking = Taking(
        measurement.taken_at,
        measurement.seconds,
        measurement.complete,
        {missing.server: missing.reason for missing in measurement.missing},
        measurement.sampled,
        sum(size.bytes for size in sizes.values()),
        sum(size.keys for size in sizes.values()),
        tuple(sorted(map(_prefix, measurement.prefixes), key=lambda one: (-one.bytes, one.depth, one.prefix))),
    )
    return taking, sizes


def _prefix(sent: models.MeasuredPrefix) -> Prefix:
    return Prefix(sent.depth, readable(sent.prefix.encode(), LONGEST_PREFIX), sent.keys, sent.bytes)


def _slot(place: int, raw: Any) -> tuple[int, SlotSize] | RequestValidationError:
    """A slot and its size, without the time, which only the measurement has; or what is wrong with it."""
    try:
        slot = models.MeasuredSlot.model_validate(raw)
    except ValidationError as error:
        return RequestValidationError([{**one, "loc": ("body", "slots", place, *one["loc"])} for one in error.errors()])
    biggest = sorted(slot.biggest, key=lambda key: (-key.bytes, key.database, key.key))
    keys = tuple(BigKey(_cut(key.key), key.database, key.type, key.bytes) for key in biggest)
    return slot.slot, SlotSize(slot.bytes, slot.keys, keys, 0.0)


def _cut(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else key[: LONGEST_KEY - 1] + CUT
