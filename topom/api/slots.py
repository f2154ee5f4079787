"""Slots: where they are, and the operator's changes to that."""

from fastapi import APIRouter

from topom import topology
from topom.api import models
from topom.api.access import ServedTopom

router = APIRouter(prefix="/slots", tags=["slots"])


@router.get("", response_model=models.Slots, response_model_exclude_none=True)
async def list_slots(topom: ServedTopom) -> dict[str, object]:
    """Every slot with its owner and its action, and why that does not go on."""
    state = topom.ledger.state
    reasons = topom.actions.reasons()
    slots = []
    for slot in state.table.slots:
        described = slot.to_wire()
        if slot.id in state.skipped:
            described["skipped"] = True
        if reasons.get(slot.id):
            described["reason"] = reasons[slot.id]
        slots.append(described)
    return {"epoch": state.table.epoch, "slots": slots}


@router.post("/assign")
async def assign(topom: ServedTopom, wish: models.SlotsToGroup) -> models.SlotsChanged:
    """Give offline slots to a group at once. Waits until all proxies know them to be offline."""
    epoch, slots = await topom.assign(wish.slots, wish.group_id)
    return models.SlotsChanged(epoch=epoch, slots=slots)


@router.post("/move")
async def move(topom: ServedTopom, wish: models.SlotsToGroup) -> models.SlotsChanged:
    """Put slots on their way to a group, with their keys, while clients work. `/migration` shows how it goes."""
    wanted = topology.parse_slots(wish.slots, topom.settings.number_of_slots)
    epoch, slots = await topom.edit_slots(lambda table, epoch: topology.move(table, epoch, wanted, wish.group_id))
    return models.SlotsChanged(epoch=epoch, slots=slots)


@router.post("/offline")
async def offline(topom: ServedTopom, wish: models.SlotsOnly) -> models.SlotsChanged:
    """Take slots from their group: proxies answer their commands with an error, and the keys stay where they are."""
    wanted = topology.parse_slots(wish.slots, topom.settings.number_of_slots)
    epoch, slots = await topom.edit_slots(lambda table, epoch: topology.offline(table, epoch, wanted))
    return models.SlotsChanged(epoch=epoch, slots=slots)
