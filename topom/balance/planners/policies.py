"""The planners by name, and the checks before one of them plans."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from slots import ranges
from slots.group import Group
from slots.slot import Slot
from topom.balance.planners import bytes as by_bytes
from topom.balance.planners import codis, load
from topom.balance.planners.request import Plan, PlanRequest
from topom.errors import Conflict, Invalid

Planner = Callable[[Sequence[Group], Sequence[Slot], PlanRequest], Plan]
"""Gets the groups with servers, by ascending id, and all slots, by ascending id; gives a plan.

At least one of the groups is not drained, and the request was checked."""
POLICIES: Mapping[str, Planner] = {"bytes": by_bytes.plan, "codis": codis.plan, "load": load.plan}
NOTHING_ELSE = PlanRequest()


class UnknownPolicy(Invalid):
    """No planner of that name."""


class NoGroup(Conflict):
    """There is no group with a server that could own a slot."""


def plan(policy: str, groups: Iterable[Group], slots: Iterable[Slot], request: PlanRequest = NOTHING_ELSE) -> Plan:
    """The moves that ``policy`` asks for, by ascending slot. Slots in an action are never among them.

    Raises:
        UnknownPolicy: it names the known policies.
        InvalidPlanRequest: a request makes no sense, such as a capacity below 0 or a group that does not exist.
        NoGroup: no group has a server, or all groups with one are to be drained.
    """
    planner = POLICIES.get(policy)
    if planner is None:
        raise UnknownPolicy(f"there is no policy {policy!r}; known are: {', '.join(sorted(POLICIES))}")
    listed = sorted(groups, key=lambda group: group.id)
    request.check([group.id for group in listed])
    usable = [group for group in listed if group.servers]
    if not usable:
        raise NoGroup("no group has a server, so no slot can be placed; add a group with a server first")
    if all(group.id in request.drain for group in usable):
        raise NoGroup(
            f"no group is left to take the slots of those to be drained ({ranges.show(request.drain)}); "
            "add a group with a server first"
        )
    return planner(usable, sorted(slots, key=lambda slot: slot.id), request)
