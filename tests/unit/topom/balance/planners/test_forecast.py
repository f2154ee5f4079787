"""What a plan costs."""

import pytest
from hypothesis import given, settings

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.unit.topom.balance.planners.fleets import Fleet, fleets
from topom.balance.planners import PlanRequest, forecast
from topom.balance.planners.request import SlotLoad
from topom.cluster.topology import Move
from topom.migration.ways import Choice, Way, WayForecast

GROUPS = (Group(1, ("a:1",)), Group(2, ("b:1",)), Group(3))
SLOTS = (Slot(0, 1), Slot(1, 1), Slot(2, 1, Action(SlotState.MIGRATING, 2)), Slot(3, 0))
MOVES = (Move(1, 1, 2), Move(3, 0, 1))
REQUEST = PlanRequest(bytes={0: 600, 1: 300, 2: 100}, keys={0: 6, 1: 30, 2: 1})


def test_a_plan_in_figures() -> None:
    found = forecast(GROUPS, SLOTS, MOVES, REQUEST, keys_per_second=10.0, bytes_per_second=200.0).to_wire()
    assert found == {
        "pairs": [
            {"from": 0, "to": 1, "slots": 1, "bytes": 0, "keys": 0, "way": None},
            {"from": 1, "to": 2, "slots": 1, "bytes": 300, "keys": 30, "way": None},
        ],
        "groups": [
            {
                "id": 1,
                "share_bytes": 500,
                "before": {"slots": 2, "bytes": 900, "keys": 36, "percent_off": 80.0},
                "after": {"slots": 2, "bytes": 600, "keys": 6, "percent_off": 20.0},
            },
            {
                "id": 2,
                "share_bytes": 500,
                "before": {"slots": 1, "bytes": 100, "keys": 1, "percent_off": -80.0},
                "after": {"slots": 2, "bytes": 400, "keys": 31, "percent_off": -20.0},
            },
        ],
        "total": {"slots": 2, "bytes": 300, "keys": 30},
        "seconds": 3.0,
    }


def test_the_slower_of_the_rates_that_are_known_tells_the_time() -> None:
    rates = ((10.0, None, 3.0), (None, 200.0, 1.5), (1000.0, 200.0, 1.5), (None, None, None), (0.0, None, None))
    for keys, size, seconds in rates:
        found = forecast(GROUPS, SLOTS, MOVES, REQUEST, keys_per_second=keys, bytes_per_second=size)
        assert found.seconds == seconds


def test_what_nobody_knows_is_none() -> None:
    found = forecast(GROUPS, SLOTS, MOVES, PlanRequest(), keys_per_second=10.0, bytes_per_second=200.0).to_wire()
    assert found["seconds"] is None
    assert found["total"] == {"slots": 2, "bytes": None, "keys": None}
    assert found["pairs"][0] == {"from": 0, "to": 1, "slots": 1, "bytes": None, "keys": None, "way": None}
    assert found["groups"][0]["share_bytes"] is None
    assert found["groups"][0]["before"] == {"slots": 2, "bytes": None, "keys": None, "percent_off": None}


@pytest.mark.long
@settings(deadline=None)
@given(fleets())
def test_the_figures_agree_with_the_plan(fleet: Fleet) -> None:
    plan = fleet.plan()
    found = forecast(fleet.groups, fleet.slots, plan.moves, fleet.request)
    if not fleet.request.bytes:
        return
    before, after = fleet.loads(), fleet.loads(plan.moves)
    assert found.total.bytes == sum(pair.moved.bytes or 0 for pair in found.pairs) == fleet.cost(plan.moves)
    assert found.total.slots == sum(pair.moved.slots for pair in found.pairs) == len(plan.moves)
    for group in found.groups:
        assert (group.before.bytes, group.after.bytes) == (before[group.id], after[group.id])
        assert (group.share is None) == (group.id not in fleet.takers)


def test_groups_are_told_how_far_they_are_from_their_load() -> None:
    request = PlanRequest(loads={0: SlotLoad(3.0), 1: SlotLoad(1.0)})
    [one, two, *_] = forecast(GROUPS, SLOTS, [Move(1, 1, 2)], request).to_wire()["groups"]
    assert [part["load_percent_off"] for part in (one["before"], one["after"])] == [100.0, 50.0]
    assert [part["load_percent_off"] for part in (two["before"], two["after"])] == [-100.0, -50.0]


def test_the_ways_of_the_pairs_tell_the_time_and_the_busiest_group_sets_it() -> None:
    def choice(seconds: float, way: Way = Way.STREAM) -> Choice:
        return Choice(way, "it suits", WayForecast(seconds, 500, 1000, 1000, seconds, 0.015))

    ways = {(1, 2): choice(10.0), (1, 3): choice(20.0), (4, 5): choice(25.0)}
    groups = [Group(number, (f"{number}:1",)) for number in range(1, 6)]
    slots = [Slot(0, 1), Slot(1, 1), Slot(2, 4), Slot(3, 0)]
    moves = [Move(0, 1, 2), Move(1, 1, 3), Move(2, 4, 5), Move(3, 0, 5)]
    found = forecast(groups, slots, moves, PlanRequest(), keys_per_second=1.0, ways=ways)
    assert found.seconds == 25.0, "group 1 gives to both at once, and group 5 gets most"
    by_keys = ways | {(1, 2): choice(10.0, Way.KEYS)}
    assert forecast(groups, slots, moves, PlanRequest(), ways=by_keys).seconds == 30.0, "one after the other"
    assert [pair.choice for pair in found.pairs] == [None, *ways.values()]
    pair = found.to_wire()["pairs"][1]
    assert (pair["way"]["way"], pair["way"]["because"], pair["way"]["twice_bytes"]) == ("stream", "it suits", 1000)
    for limits, seconds in (((0, 10), 300.0), ((15, 0), 100.0), ((1000, 1000), 25.0)):
        assert forecast(groups, slots, moves, PlanRequest(), ways=ways, limits=limits).seconds == seconds
    del ways[1, 3]
    assert forecast(groups, slots, moves, PlanRequest(), ways=ways).seconds is None, "one pair was not looked at"
    assert forecast(groups, slots, moves[3:], PlanRequest(), ways={}).seconds is None, "nothing goes over"
