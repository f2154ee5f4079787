"""The planners: codis against a naive form of its rules, and what has to be true for any plan."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from topom.balance import planners
from topom.cluster.topology import Move


def naive_codis(groups: list[Group], slots: list[Slot]) -> list[Move]:
    """The rules of the codis policy, one slot at a time, without a data structure that could be wrong."""
    ids = sorted(group.id for group in groups if group.servers)
    lower, upper = len(slots) // len(ids), (len(slots) + len(ids) - 1) // len(ids)
    size = {group_id: sum(s.action is not None and s.action.target_id == group_id for s in slots) for group_id in ids}
    surplus: dict[int, list[int]] = {group_id: [] for group_id in ids}
    for slot in slots:
        if slot.action is None and slot.group_id in size:
            if size[slot.group_id] >= lower:
                surplus[slot.group_id].append(slot.id)
            size[slot.group_id] += 1
    net = dict.fromkeys(ids, 0)
    pool = [slot.id for slot in slots if slot.action is None and slot.group_id == 0]
    for _ in pool:
        smallest = min(ids, key=lambda g: (size[g], g))
        size[smallest] += 1
        net[smallest] += 1
    taking_part = list(ids)
    while len(taking_part) >= 2:
        largest = max(taking_part, key=lambda g: (size[g], g))
        if len(surplus[largest]) == -net[largest]:
            taking_part.remove(largest)
            continue
        smallest = min((g for g in taking_part if g != largest), key=lambda g: (size[g], g))
        if size[largest] <= lower or size[smallest] >= upper or size[largest] - size[smallest] <= 1:
            break
        for group_id, change in ((largest, -1), (smallest, 1)):
            size[group_id] += change
            net[group_id] += change
    for group_id in ids:
        for _ in range(-net[group_id]):
            pool.append(surplus[group_id].pop())
    pool.sort()
    return sorted(
        (
            Move(slot, slots[slot].group_id, group_id)
            for group_id in ids
            for slot in [pool.pop(0) for _ in range(max(0, net[group_id]))]
        ),
        key=lambda move: move.slot,
    )


@st.composite
def clusters(draw: st.DrawFn, actions: bool = True, empty_groups: bool = True) -> tuple[list[Group], list[Slot]]:
    count = draw(st.integers(1, 8))
    least = 0 if empty_groups else 1
    groups = [
        Group(group_id, ("s:1",) * draw(st.integers(least, 1)))
        for group_id in draw(st.lists(st.integers(1, 30), min_size=count, max_size=count, unique=True))
    ]
    groups[0] = Group(groups[0].id, ("s:1",))
    ids = [group.id for group in groups]
    anywhere = st.sampled_from([0, *ids])
    # In some fleets one group has most slots, as after a group was added or emptied.
    favourite = draw(anywhere)
    slots = []
    for slot_id in range(draw(st.integers(1, 64))):
        group_id = draw(st.one_of(st.just(favourite), anywhere))
        action = None
        if actions and draw(st.integers(0, 4)) == 0:
            action = Action(draw(st.sampled_from(list(SlotState))), draw(st.sampled_from(ids)))
        slots.append(Slot(slot_id, group_id, action))
    return groups, slots


def planned(groups: list[Group], slots: list[Slot]) -> list[Move]:
    """What codis plans when nothing else is asked for."""
    plan = planners.plan("codis", groups, slots)
    assert plan.reasons == ()
    return list(plan.moves)


def sizes_after(groups: list[Group], slots: list[Slot], moves: list[Move]) -> dict[int, int]:
    target = {move.slot: move.target for move in moves}
    sizes = {group.id: 0 for group in groups if group.servers}
    for slot in slots:
        group_id = target.get(slot.id, slot.action.target_id if slot.action else slot.group_id)
        if group_id in sizes:
            sizes[group_id] += 1
    return sizes


@given(clusters())
def test_codis_follows_its_rules(cluster: tuple[list[Group], list[Slot]]) -> None:
    groups, slots = cluster
    assert planned(groups, slots) == naive_codis(groups, slots)


@given(clusters(actions=False, empty_groups=False))
def test_codis_evens_out_a_resting_fleet(cluster: tuple[list[Group], list[Slot]]) -> None:
    groups, slots = cluster
    moves = planned(groups, slots)
    sizes = sizes_after(groups, slots, moves).values()
    assert max(sizes) - min(sizes) <= 1


@given(clusters(actions=False, empty_groups=False))
def test_codis_moves_nothing_needlessly(cluster: tuple[list[Group], list[Slot]]) -> None:
    groups, slots = cluster
    moves = planned(groups, slots)
    before = sizes_after(groups, slots, [])
    lost = dict.fromkeys(before, 0)
    gained = dict.fromkeys(before, 0)
    for move in moves:
        gained[move.target] += 1
        if move.source:
            lost[move.source] += 1
    assert all(not (lost[group_id] and gained[group_id]) for group_id in before), "no group gives and takes"
    lower, upper = len(slots) // len(before), -(-len(slots) // len(before))
    # No plan that ends within one slot can have fewer moves: each group ends with `lower` or `upper` slots, and
    # only len(slots) % groups of them with `upper`.
    room_above = len(slots) % len(before)
    fullest_first = sorted(before, key=lambda group_id: -before[group_id])
    least = sum(
        max(0, before[group_id] - (upper if place < room_above else lower))
        for place, group_id in enumerate(fullest_first)
    )
    assert sum(lost.values()) == least


@given(clusters(), st.randoms())
def test_plans_are_deterministic(cluster: tuple[list[Group], list[Slot]], rng: random.Random) -> None:
    groups, slots = cluster
    moves = planned(groups, slots)
    shuffled = list(groups)
    rng.shuffle(shuffled)
    assert planned(shuffled, slots) == moves


@given(clusters())
def test_carried_out_plans_are_followed_by_none(cluster: tuple[list[Group], list[Slot]]) -> None:
    groups, slots = cluster
    moves = planned(groups, slots)
    assert all(slots[move.slot].action is None and slots[move.slot].group_id == move.source for move in moves)
    target = {move.slot: move.target for move in moves}
    on_their_way = [
        Slot(slot.id, slot.group_id, Action(SlotState.PENDING, target[slot.id])) if slot.id in target else slot
        for slot in slots
    ]
    carried_out = [Slot(slot.id, target.get(slot.id, slot.group_id), slot.action) for slot in slots]
    assert planned(groups, on_their_way) == []
    if all(slot.action is None for slot in slots):
        assert planned(groups, carried_out) == []


def test_two_groups_give_to_a_third() -> None:
    groups = [Group(1, ("a:1",)), Group(2, ("b:1",)), Group(3, ("c:1",))]
    slots = [Slot(slot, 1 + slot // 6) for slot in range(12)]
    assert planned(groups, slots) == [Move(4, 1, 3), Move(5, 1, 3), Move(10, 2, 3), Move(11, 2, 3)]


def test_groups_without_servers_take_no_part() -> None:
    groups = [Group(1, ("a:1",)), Group(2)]
    assert planned(groups, [Slot(0, 1), Slot(1, 2), Slot(2, 1)]) == []


def test_what_cannot_be_planned() -> None:
    with pytest.raises(planners.UnknownPolicy, match="codis"):
        planners.plan("other", [Group(1, ("a:1",))], [Slot(0)])
    with pytest.raises(planners.NoGroup):
        planners.plan("codis", [Group(1)], [Slot(0)])


def test_a_document_is_planned() -> None:
    document = {
        "groups": [{"id": 2, "servers": ["b:1"]}, {"id": 1, "servers": ["a:1"]}],
        "slots": [
            {"id": 3, "group_id": 1},
            {"id": 0, "group_id": 1, "action": {}},
            {"id": 1, "group_id": 1, "action": {"state": "pending", "target_id": 2}},
            {"id": 2, "group_id": 0, "action": {"state": "", "target_id": 0}},
        ],
    }
    assert planners.plan_document("codis", document) == {"moves": [{"slot": 2, "from": 0, "to": 2}]}


GROUP = {"id": 1, "servers": ["a:1"]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "object"),
        ({}, '"groups"'),
        ({"groups": [GROUP]}, '"slots"'),
        ({"groups": [GROUP], "slots": {}}, '"slots"'),
        ({"groups": [GROUP], "slots": [1]}, "list of objects"),
        ({"groups": [GROUP], "slots": []}, "no slots"),
        ({"groups": [GROUP, GROUP], "slots": [{"id": 0, "group_id": 0}]}, "group id"),
        ({"groups": [{"id": 0, "servers": []}], "slots": [{"id": 0, "group_id": 0}]}, "1 or larger"),
        ({"groups": [{"id": "x", "servers": []}], "slots": [{"id": 0, "group_id": 0}]}, "not a group"),
        ({"groups": [GROUP], "slots": [{"id": 0}]}, "not a slot"),
        ({"groups": [GROUP], "slots": [{"id": 0, "group_id": 1, "action": {"state": "odd"}}]}, "not a slot"),
        ({"groups": [GROUP], "slots": [{"id": 0, "group_id": 1}, {"id": 2, "group_id": 1}]}, "slot 1 is not listed"),
        ({"groups": [GROUP], "slots": [{"id": 0, "group_id": 1}, {"id": 0, "group_id": 1}]}, "more than once"),
        ({"groups": [GROUP], "slots": [{"id": 0, "group_id": 7}]}, "group 7"),
    ],
)
def test_documents_that_do_not_hold_together(document: dict[str, object], message: str) -> None:
    with pytest.raises(planners.InvalidPlanInput, match=message):
        planners.plan_document("codis", document)
