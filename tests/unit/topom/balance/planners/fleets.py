"""Fleets to plan for, and a naive account of what a plan does to them."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from topom.balance import planners
from topom.balance.planners import Plan, PlanRequest
from topom.balance.planners.request import SlotLoad
from topom.cluster.topology import Move

POLICIES = ("bytes", "codis", "load")


@dataclass(frozen=True)
class Fleet:
    """Groups, slots by ascending id, and what is known and asked for."""

    groups: tuple[Group, ...]
    slots: tuple[Slot, ...]
    request: PlanRequest

    def plan(self, policy: str = "bytes") -> Plan:
        return planners.plan(policy, self.groups, self.slots, self.request)

    def asking(self, **request: object) -> "Fleet":
        return replace(self, request=replace(self.request, **request))  # type: ignore[arg-type]

    @property
    def takers(self) -> list[int]:
        """Groups that may own slots in the end."""
        return [group.id for group in self.groups if group.servers and group.id not in self.request.drain]

    def may_move(self, slot: Slot) -> bool:
        with_server = {group.id for group in self.groups if group.servers}
        return slot.action is None and (slot.group_id == 0 or slot.group_id in with_server)

    def size(self, slot: Slot) -> int:
        return self.request.bytes.get(slot.id, 0)

    def bands(self) -> dict[int, tuple[int, int]]:
        """The fewest and the most bytes that each group that may own slots should have."""
        given = self.request.capacity
        mean = sum(given.values()) / len(given) if given else 1
        weight = {group_id: given.get(group_id, mean) for group_id in self.takers}
        total = sum(self.size(slot) for slot in self.slots if self.may_move(slot) or slot.destination_id in self.takers)
        tolerance = self.request.tolerance
        found = {}
        for group_id, own in weight.items():
            share = total * (own / math.fsum(weight.values()))
            found[group_id] = (math.floor(share * (1 - tolerance)), math.ceil(share * (1 + tolerance)))
        return found

    def loads(self, moves: Iterable[Move] = ()) -> dict[int, int]:
        """Bytes in each group, once all that moves has arrived."""
        target = {move.slot: move.target for move in moves}
        load = dict.fromkeys([0, *(group.id for group in self.groups)], 0)
        for slot in self.slots:
            load[target.get(slot.id, slot.destination_id)] += self.size(slot)
        return load

    def excess(self, moves: Iterable[Move] = ()) -> int:
        """Bytes outside the bands."""
        load = self.loads(moves)
        return sum(max(0, low - load[group], load[group] - high) for group, (low, high) in self.bands().items())

    def cost(self, moves: Iterable[Move]) -> int:
        """Bytes that go from one server to another."""
        return sum(self.request.bytes.get(move.slot, 0) for move in moves if move.source != 0)

    def carried_out(self, moves: Iterable[Move]) -> "Fleet":
        target = {move.slot: move.target for move in moves}
        slots = tuple(Slot(slot.id, target.get(slot.id, slot.group_id), slot.action) for slot in self.slots)
        return replace(self, slots=slots)

    def begun(self, moves: Iterable[Move]) -> "Fleet":
        actions = {move.slot: Action(SlotState.PENDING, move.target) for move in moves}
        slots = tuple(Slot(slot.id, slot.group_id, actions.get(slot.id, slot.action)) for slot in self.slots)
        return replace(self, slots=slots)


def optimum(fleet: Fleet) -> tuple[int, int]:
    """The least excess that any plan can have, and the fewest bytes that such a plan moves. It looks at all plans."""
    takers, bands = fleet.takers, fleet.bands()
    fixed = {slot.id for slot in fleet.slots if not fleet.may_move(slot)}
    start = fleet.loads(())
    for slot in fleet.slots:
        if slot.id not in fixed:
            start[slot.destination_id] -= fleet.size(slot)
    # Ways that end in the same loads are one way, the cheapest of them.
    ways = {tuple(start[group] for group in takers): 0}
    for slot in fleet.slots:
        if slot.id in fixed:
            continue
        size = fleet.size(slot)
        further: dict[tuple[int, ...], int] = {}
        for loads, cost in ways.items():
            for place, group in enumerate(takers):
                new = (*loads[:place], loads[place] + size, *loads[place + 1 :])
                paid = cost + (size if slot.group_id not in (0, group) else 0)
                if paid < further.get(new, paid + 1):
                    further[new] = paid
        ways = further
    return min(
        (
            sum(
                max(0, bands[group][0] - load, load - bands[group][1])
                for group, load in zip(takers, loads, strict=True)
            ),
            cost,
        )
        for loads, cost in ways.items()
    )


def sized(owners: Sequence[int], sizes: Sequence[int], groups: int, **request: object) -> Fleet:
    """A fleet of groups 1 to ``groups``, slot after slot with its group (0 is offline) and bytes."""
    fleet = Fleet(
        tuple(Group(group_id, (f"s{group_id}:1",)) for group_id in range(1, groups + 1)),
        tuple(Slot(slot, owner) for slot, owner in enumerate(owners)),
        PlanRequest(bytes=dict(enumerate(sizes))),
    )
    return fleet.asking(**request)


def zipf(slots: int, groups: int, exponent: float, seed: int) -> Fleet:
    """Slots in random groups, with sizes by Zipf's law, from about 4 KiB to GiB."""
    rng = random.Random(seed)
    sizes = [round(2**30 / rank**exponent) for rank in range(1, slots + 1)]
    rng.shuffle(sizes)
    return sized([rng.randint(1, groups) for _ in range(slots)], sizes, groups)


@st.composite
def fleets(
    draw: st.DrawFn, most_slots: int = 40, most_groups: int = 6, actions: bool = True, drains: bool = True
) -> Fleet:
    count = draw(st.integers(1, most_groups))
    ids = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count, unique=True))
    groups = [Group(group_id, ("s:1",) * draw(st.sampled_from([1, 1, 1, 0]))) for group_id in ids]
    groups[0] = Group(ids[0], ("s:1",))
    favourite = draw(st.sampled_from([0, *ids]))
    size = draw(st.sampled_from([st.integers(0, 9), st.integers(1, 10**6), st.sampled_from([0, 1, 10**3, 10**6])]))
    slots, sizes, loads = [], {}, {}
    for slot_id in range(draw(st.integers(1, most_slots))):
        group_id = draw(st.one_of(st.just(favourite), st.sampled_from([0, *ids])))
        action = None
        if actions and draw(st.integers(0, 4)) == 0:
            action = Action(draw(st.sampled_from(list(SlotState))), draw(st.sampled_from(ids)))
        slots.append(Slot(slot_id, group_id, action))
        if draw(st.integers(0, 9)):
            sizes[slot_id] = draw(size)
        if draw(st.integers(0, 9)):
            loads[slot_id] = SlotLoad(draw(size), draw(st.sampled_from([0, 10**3, 10**7])), draw(st.integers(0, 9)))
    request = PlanRequest(
        loads=loads,
        bytes=sizes,
        capacity=draw(st.dictionaries(st.sampled_from(ids), st.sampled_from([1.0, 1.5, 4.0]), max_size=count)),
        tolerance=draw(st.sampled_from([0.05, 0.0, 0.2])),
        drain=frozenset(draw(st.lists(st.sampled_from(ids[1:]), max_size=2))) if drains and count > 1 else frozenset(),
    )
    return Fleet(tuple(groups), tuple(slots), request)
