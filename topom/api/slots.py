"""Slots: where they are, and operators' changes of that."""

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from slots.slot import Slot
from topom.api import slot_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.balance.sizes import MOST_BIGGEST, SlotSize
from topom.cluster import topology
from topom.cluster.waiters import LONGEST_SECONDS
from topom.errors import Conflict
from topom.reasons import Reason
from topom.term.service import Topom

DEFAULT_WAIT_SECONDS = 20.0
"""How long a request for changes waits if it does not say how long."""

CATCH_UP_SECONDS = 5.0
"""How long a follower may take to read the table that a client has already."""

router = resource("/slots", "slots")


class TableNewer(Conflict):
    """A client has a newer table than topom."""


@router.get("", response_model=models.Slots | models.SlotChanges, response_model_exclude_none=True)
async def list_slots(
    topom: ServedTopom,
    epoch: Annotated[
        int | None, Query(ge=0, description="That of the table you have: the answer is what changed since then.")
    ] = None,
    wait: Annotated[
        float,
        Query(
            ge=0, le=LONGEST_SECONDS, description="With `epoch`: seconds to wait for a newer table, if there is none."
        ),
    ] = DEFAULT_WAIT_SECONDS,
    biggest: Annotated[
        int, Query(ge=0, le=MOST_BIGGEST, description="Biggest keys to show of each slot, at most.")
    ] = MOST_BIGGEST,
) -> Response:
    """Every slot with its owner and its action, why that does not go on, and its size if that is known.

    With `epoch`, the slots and groups that changed since the table of that epoch, as soon as there is a newer one. If
    there is none in time, the answer has the same `epoch` and no changes. If topom has forgotten the table of that
    epoch, `since` is null and all slots and groups are there.
    """
    if epoch is not None:
        return await _changes(topom, epoch, wait)
    state = topom.ledger.state
    reasons = topom.actions.reasons()
    sizes = topom.sizes.known.slots

    def text() -> str:
        # This goes slot by slot, so that the event loop gets its turns while thousands are written.
        slots = (
            json.dumps(
                _describe(slot, slot.id in state.skipped, reasons.get(slot.id), sizes.get(slot.id), biggest),
                separators=(",", ":"),
            )
            for slot in state.table.slots
        )
        return f'{{"epoch":{state.table.epoch},"slots":[{",".join(slots)}]}}'

    return Response(await asyncio.to_thread(text), media_type="application/json")


async def _changes(topom: Topom, epoch: int, wait: float) -> Response:
    began = asyncio.get_running_loop().time()
    if not topom.leads():
        # The leader may have given out a table that this topom has not read yet.
        await topom.waiters.until(lambda state: state.table.epoch >= epoch, min(wait, CATCH_UP_SECONDS))
    if topom.ledger.table.epoch == epoch:
        left = wait - (asyncio.get_running_loop().time() - began)
        await topom.waiters.until(lambda state: state.table.epoch > epoch, left)
    newest = topom.history.table.epoch
    if newest < epoch:
        # epochs: no client gets an older table than the one that it has.
        raise TableNewer(
            f"you have a table of epoch {epoch}, and topom's is of epoch {newest}: your table is another product's, or "
            "topom's store was lost; read the whole table"
        )
    return Response(topom.history.answer(epoch), media_type="application/json")


@router.post("/assign")
async def assign(topom: ServedTopom, body: models.SlotsToGroup) -> models.SlotsChanged:
    """Assign offline slots to a group at once. This waits until all proxies know that they are offline."""
    epoch, slots = await topom.assignments.assign(body.slots, body.group_id)
    return models.SlotsChanged(epoch=epoch, slots=slots)


@router.post("/move")
async def move(topom: ServedTopom, body: models.SlotsToGroup) -> models.SlotsChanged:
    """Begin to move slots to a group, with their keys, while clients work. `/migration` shows how it goes."""
    wanted = topology.parse_slots(body.slots, topom.settings.number_of_slots)
    epoch, slots = await topom.edits.edit_slots(lambda table, epoch: topology.move(table, epoch, wanted, body.group_id))
    return models.SlotsChanged(epoch=epoch, slots=slots)


@router.post("/offline")
async def offline(topom: ServedTopom, body: models.SlotsOnly) -> models.SlotsChanged:
    """Take slots offline: proxies answer commands for them with an error, and the keys stay where they are."""
    wanted = topology.parse_slots(body.slots, topom.settings.number_of_slots)
    epoch, slots = await topom.edits.edit_slots(lambda table, epoch: topology.offline(table, epoch, wanted))
    return models.SlotsChanged(epoch=epoch, slots=slots)


def _describe(
    slot: Slot, skipped: bool, reason: Reason | None, size: SlotSize | None, biggest: int
) -> Mapping[str, Any]:
    described = slot.to_wire()
    if skipped:
        described["skipped"] = True
    if reason:
        described["reason"] = reason.to_document()
    if size is not None:
        described |= {"bytes": size.bytes, "keys": size.keys, "sized_at": size.taken_at}
        if biggest:
            described["biggest"] = [
                {"key": key.key, "database": key.database, "type": key.type, "bytes": key.bytes}
                for key in size.biggest[:biggest]
            ]
    return described
