"""Everything at a glance."""

from fastapi import APIRouter, Request

from slots.table import OFFLINE
from topom.api import groups, migration, proxies, topoms
from topom.api import status_models as models
from topom.api.access import ServedTopom
from topom.term.node import Node
from topom.term.service import Topom

router = APIRouter(tags=["status"])


@router.get("/status")
async def show(request: Request, topom: ServedTopom) -> models.Status:
    """Product, groups, proxies, slots, migration, and the topoms."""
    node: Node | None = request.app.state.node
    described = await groups.describe(topom)
    state = topom.ledger.state
    slots = state.table.slots
    offline = sum(slot.owner_id == OFFLINE for slot in slots)
    return models.Status(
        product=state.product.name,
        epoch=state.table.epoch,
        number_of_slots=state.product.number_of_slots,
        slot_function=state.product.slot_function,
        databases=state.product.databases,
        groups=described,
        proxies=proxies.describe(topom),
        slots=models.SlotCounts(
            total=len(slots),
            assigned=len(slots) - offline,
            offline=offline,
            moving=sum(slot.action is not None for slot in slots),
        ),
        leaving=groups.describe_leaving(topom),
        migration=migration.describe(topom),
        protection=_protection(topom),
        topoms=topoms.describe(node),
        sentinels=topom.sentinels.shortcoming(),
        failing=topom.tending.troubles | ({} if node is None else node.tending.troubles),
        problem="" if node is None else node.problem,
    )


@router.get("/protection")
async def show_protection(topom: ServedTopom) -> models.Protection:
    """Whether so many members are lost that nothing is done by itself."""
    return _protection(topom)


@router.post("/protection/lift")
async def lift_protection(topom: ServedTopom) -> models.Protection:
    """Have done by itself what is due although many members are lost, until those are back."""
    await topom.protection.lift()
    return _protection(topom)


def _protection(topom: Topom) -> models.Protection:
    found = topom.protection
    lifted = None if found.lifted is None else models.Lifted(by=found.lifted.by, at=found.lifted.at)
    if not topom.leads():
        return models.Protection(active=None, lost=None, members=None, lifted=lifted)
    return models.Protection(active=found.active, lost=found.lost, members=found.members, lifted=lifted)
