"""Everything at a glance."""

from fastapi import Request

from slots.slot import OFFLINE
from topom.api import groups, migration, migrators, proxies, rules, settings, topoms
from topom.api import status_models as models
from topom.api.access import ServedTopom
from topom.api.group_models import Group
from topom.api.routers import resource
from topom.term.node import Node
from topom.term.service import Topom

router = resource("", "status")


@router.get("/status")
async def show(request: Request, topom: ServedTopom) -> models.Status:
    """Product, groups, proxies, slots, migration, and the topoms."""
    shown = describe(request.app.state.node, topom, await groups.describe(topom))
    shown.settings = settings.describe(request.app.state.settings)
    return shown


def describe(node: Node | None, topom: Topom, described: list[Group]) -> models.Status:
    """Everything at a glance, with groups as :func:`topom.api.groups.describe` gives them.

    Args:
        node: the process, if topom is one of several.
    """
    state = topom.ledger.state
    slots = state.table.slots
    offline = sum(slot.owner_id == OFFLINE for slot in slots)
    return models.Status(
        product=state.product.name,
        epoch=state.table.epoch,
        number_of_slots=state.product.number_of_slots,
        slot_function=state.product.slot_function,
        slot_rules=rules.shown(state.table.rules),
        databases=state.product.databases,
        groups=described,
        proxies=proxies.describe(topom),
        migrators=migrators.describe(topom),
        slots=models.SlotCounts(
            total=len(slots),
            assigned=len(slots) - offline,
            offline=offline,
            offline_since=state.offline_since if offline else None,
            moving=sum(slot.action is not None for slot in slots),
        ),
        leaving=groups.describe_leaving(topom),
        migration=migration.describe(topom),
        protection=_protection(topom),
        pause=_pause(topom),
        topoms=topoms.describe(node),
        sentinels=topom.sentinels.reason(),
        failing={**topom.tending.reasons, **({} if node is None else node.tending.reasons)},
        loops=[
            models.LoopShown(name=one.name, says=one.says, since=one.since)
            for one in topom.loops
            if one.says and not one.held
        ],
        reason=None if node is None else node.reason,
    )


@router.get("/protection")
async def show_protection(topom: ServedTopom) -> models.Protection:
    """Whether so many members are lost that topom does nothing about it by itself."""
    return _protection(topom)


@router.post("/protection/lift")
async def lift_protection(topom: ServedTopom) -> models.Protection:
    """Let topom act by itself although many members are lost, until these are back."""
    await topom.protection.lift()
    return _protection(topom)


@router.post("/pause")
async def pause(body: models.PauseRequest, topom: ServedTopom) -> models.PauseShown:
    """Let topom do nothing by itself; it still does what operators order. Moves halt."""
    await topom.hands_off.pause(body.why)
    return models.PauseShown(pause=_pause(topom))


@router.post("/resume")
async def resume(topom: ServedTopom) -> models.PauseShown:
    """Let topom act by itself again."""
    await topom.hands_off.resume()
    return models.PauseShown(pause=_pause(topom))


def _pause(topom: Topom) -> models.Pause | None:
    found = topom.ledger.state.pause
    return None if found is None else models.Pause(by=found.by, at=found.at, why=found.why)


def _protection(topom: Topom) -> models.Protection:
    found = topom.protection
    lifted = None if found.lifted is None else models.Lifted(by=found.lifted.by, at=found.lifted.at)
    if not topom.leads():
        return models.Protection(active=None, lost=None, members=None, lifted=lifted)
    since = found.since if found.active else None
    return models.Protection(active=found.active, lost=found.lost, members=found.members, since=since, lifted=lifted)
