"""Why a plan by load leaves groups above their limits, in sentences."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from slots.slot import Slot
from topom.balance.planners.reasons import MOST_GROUPS, off
from topom.balance.planners.request import PlanRequest
from topom.cluster.topology import Move


def unmet(
    slots: Sequence[Slot],
    share: Mapping[int, float],
    most: Mapping[int, int],
    load: Mapping[int, int],
    moves: Collection[Move],
    request: PlanRequest,
) -> Iterator[str]:
    """Sentences on the groups that stay above their limits, those with the most load first.

    Args:
        share: the load that each group should have, by group.
        most: the limit of each group.
        load: the load of each slot.
        moves: all moves of the plan.
    """
    if not any(share.values()):
        yield "no slot is known to have any load, so there is nothing to even out"
        return
    target = {move.slot: move.target for move in moves}
    total = dict.fromkeys(share, 0)
    moving = dict.fromkeys(share, 0)
    hottest: dict[int, Slot] = {}
    for slot in slots:
        group_id = target.get(slot.id, slot.destination_id)
        if group_id not in total:
            continue
        own = load.get(slot.id, 0)
        total[group_id] += own
        if slot.action is not None:
            moving[group_id] += own
        if group_id not in hottest or own > load.get(hottest[group_id].id, 0):
            hottest[group_id] = slot
    above = sorted(
        (most[group_id] - total[group_id], group_id) for group_id in share if total[group_id] > most[group_id]
    )
    of_all = sum(share.values())
    for _, group_id in above[:MOST_GROUPS]:
        ends = f"group {group_id} is to have {off(total[group_id], share[group_id])} its share of all load"
        slot = hottest[group_id]
        own = load.get(slot.id, 0)
        if own > most[group_id]:
            yield (
                f"{ends}: slot {slot.id} alone has {own / of_all:.1%} of all load, {own / share[group_id]:.3g} times "
                f"that share, and cannot be divided. No plan can help; {_hot_key(slot.id, request)}"
            )
        elif moving[group_id] > most[group_id]:
            yield f"{ends}: slots that are on their way to it, and are not touched, have more than that share"
        else:
            yield f"{ends}: slots are moved whole, and no group was found that has room for those that it could give"
    if len(above) > MOST_GROUPS:
        yield f"{len(above) - MOST_GROUPS:,} more groups are to have too much load"


def _hot_key(slot: int, request: PlanRequest) -> str:
    known = request.hot_keys.get(slot)
    if known is None:
        return "find the keys that its clients ask for most, and spread them"
    key, rate = known
    return f"its clients ask most for the key {key}, {rate:,.0f} times a second: spread it over several keys"
