"""Whether slots move by themselves: each reason, and what holds of what is begun."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.group import Group
from slots.messages.message import Product
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from topom.balance.deciding import RULES, Decision, Picture, Rules, Why, decide, waits
from topom.balance.planners.request import REQUEST_BYTES, SlotLoad
from topom.cluster import departures
from topom.cluster.events import Event, What
from topom.cluster.hours import Halt
from topom.cluster.placement_run import Kept, Run
from topom.cluster.state import ClusterState, Fenced, LastPlan, Leaving
from topom.cluster.topology import Move
from topom.reasons import Kind

NOW = 1_000_000.0
AGO = NOW - RULES.sustained_seconds
GROUPS = {group_id: Group(group_id, (f"s{group_id}:1",)) for group_id in (1, 2, 3, 4)}
TABLE = SlotTable(5, tuple(Slot(slot, 1 + slot // 64) for slot in range(256)), GROUPS)
STATE = ClusterState(7, "w", Product(name="p", number_of_slots=256, slot_function="crc32", databases=16), TABLE)


def loads(*hot: int) -> dict[int, SlotLoad]:
    """Ten requests of each slot, and 130 of the hot ones."""
    return {slot: SlotLoad(130.0 if slot in hot else 10.0) for slot in range(256)}


PICTURE = Picture(TABLE, NOW, RULES.sustained_seconds, loads(0, 1), dict.fromkeys(range(256), 1000))


def above(decision: Decision) -> list[int]:
    return sorted(decision.above)


def test_nothing_is_decided_before_load_was_measured_long_enough() -> None:
    made = decide(replace(PICTURE, measured_seconds=RULES.sustained_seconds - 1), {1: AGO})
    assert (made.why, made.moves, made.greatest) == (Why.NOT_MEASURED, (), None)
    assert "every proxy has told its load for 4 minutes, and 5 minutes are needed" in made.text
    assert made.above == {}, "a topom that has just come to lead counts anew"


def test_even_groups_are_left_alone() -> None:
    made = decide(replace(PICTURE, loads=loads()), {})
    assert (made.why, made.greatest) == (Why.EVEN, 1.0)


def test_a_fleet_with_little_to_do_is_left_alone() -> None:
    few = replace(PICTURE, loads={slot: SlotLoad(one.requests / 40) for slot, one in PICTURE.loads.items()})
    made = decide(few, {1: AGO})
    assert (made.why, made.moves, made.above) == (Why.IDLE, (), {})
    assert made.greatest == 1.2571
    assert made.text == "70 requests a second, or bytes that cost as much, are too few for 4 groups"
    large = {slot: SlotLoad(0.0, one.requests * REQUEST_BYTES) for slot, one in PICTURE.loads.items()}
    assert decide(replace(PICTURE, loads=large), {1: AGO}).why is Why.MOVES, "few requests of many bytes count"
    assert decide(replace(PICTURE, loads={}), {}).why is Why.IDLE


def test_a_group_has_to_have_too_much_for_minutes() -> None:
    first = decide(PICTURE, {})
    assert first.why is Why.NOT_SUSTAINED
    assert first.above == {1: NOW}
    second = decide(replace(PICTURE, now=NOW + RULES.sustained_seconds - 1), first.above)
    assert second.why is Why.NOT_SUSTAINED
    third = decide(replace(PICTURE, now=NOW + RULES.sustained_seconds), second.above)
    assert (third.why, third.moves) == (Why.MOVES, (Move(0, 1, 2),))
    assert "1 slot is to move by load: the greatest load of a group is 1.26 times its share" in third.text
    assert third.expected is not None
    assert third.expected <= RULES.leave


def test_time_counts_from_the_lower_bound_on() -> None:
    between = replace(PICTURE, loads={**loads(), 0: SlotLoad(125.0)})
    made = decide(between, {1: AGO})
    assert RULES.leave < (made.greatest or 0) < RULES.enter
    assert (made.why, made.above) == (Why.EVEN, {1: AGO})
    assert decide(between, {}).above == {1: NOW}
    later = decide(replace(PICTURE, now=NOW + RULES.sustained_seconds), {1: NOW})
    assert later.why is Why.MOVES, "it has crossed the upper one just now"
    assert decide(replace(PICTURE, loads=loads()), {1: AGO}).above == {}, "it is over"


def test_only_groups_that_had_too_much_for_long_give_slots_away() -> None:
    both = replace(PICTURE, loads=loads(0, 1, 2, 3, 64, 65, 66, 67))
    assert {move.source for move in decide(both, {1: AGO}).moves} == {1}
    assert {move.source for move in decide(both, {1: AGO, 2: AGO}).moves} == {1, 2}


def test_a_group_that_is_back_under_the_upper_bound_gives_nothing_away() -> None:
    # Given: group 2 had too much, and has 1.125 times its share.
    between = replace(PICTURE, loads={**loads(0, 1), 64: SlotLoad(215.0)})
    made = decide(between, {1: AGO, 2: AGO})
    assert made.above == {1: AGO, 2: AGO}
    assert {move.source for move in made.moves} == {1}


def test_an_exchange_is_begun_whole() -> None:
    # Given: group 1 has two slots, and can only exchange one for a smaller one of group 2, which has had enough.
    table = SlotTable(5, tuple(Slot(slot, 1 + slot // 2) for slot in range(4)), {1: GROUPS[1], 2: GROUPS[2]})
    rates = {0: 70.0, 1: 60.0, 2: 40.0, 3: 30.0}
    loads = {slot: SlotLoad(rate) for slot, rate in rates.items()}
    made = decide(replace(PICTURE, table=table, loads=loads, bytes={}), {1: AGO}, replace(RULES, budget=1.0))
    assert {(move.source, move.target) for move in made.moves} == {(1, 2), (2, 1)}
    assert made.expected == 1.0


def test_what_waits_is_the_reason_and_time_goes_on() -> None:
    made = decide(replace(PICTURE, waits=(Why.OPERATOR, "ada has acted")), {1: AGO})
    assert (made.why, made.text, made.above) == (Why.OPERATOR, "ada has acted", {1: AGO})


@pytest.mark.parametrize("why", [Why.FAILED, Why.HELD])
def test_what_was_above_while_servers_failed_counts_from_anew(why: Why) -> None:
    # Given: group 4 did not answer for minutes, so the others had all load.
    down = replace(PICTURE, loads={slot: SlotLoad(10.0) for slot in range(192)})
    made = decide(replace(down, waits=(why, "1 servers do not answer")), {1: AGO, 2: AGO, 3: AGO})
    assert (made.why, made.above) == (why, {})
    # When: it answers, and its mean is still that of the failure.
    back = decide(down, made.above)
    # Then
    assert back.why is Why.NOT_SUSTAINED
    assert decide(replace(PICTURE, now=NOW + 60, loads=loads()), back.above).above == {}


def test_one_slot_that_is_too_hot_is_named() -> None:
    one = replace(PICTURE, loads={0: SlotLoad(900.0), **{slot: SlotLoad(1.0) for slot in range(64, 256)}})
    made = decide(one, {1: AGO})
    assert made.why is Why.NO_PLAN
    assert "slot 0 alone has 82.4% of all load" in made.text


def test_a_slot_that_has_just_moved_stays_for_hours() -> None:
    rested = replace(PICTURE, moved={0: NOW - RULES.rest_seconds + 1, 1: NOW - RULES.rest_seconds + 1})
    assert not {0, 1} & {move.slot for move in decide(rested, {1: AGO}, replace(RULES, worth=0.0)).moves}
    later = replace(rested, moved={0: NOW - RULES.rest_seconds, 1: NOW - RULES.rest_seconds})
    assert decide(later, {1: AGO}).moves == (Move(0, 1, 2),)


def test_a_slot_does_not_come_back_to_a_group_within_a_day_of_leaving_it() -> None:
    assert decide(PICTURE, {1: AGO}).moves == (Move(0, 1, 2),)
    left = {2: {0: NOW - departures.KEPT_SECONDS + 1}, 3: {1: NOW}}
    assert decide(replace(PICTURE, departures=left), {1: AGO}).moves == (Move(0, 1, 3),)
    everywhere = replace(PICTURE, departures={2: {0: NOW}, 3: {0: NOW}, 4: {0: NOW}})
    assert 0 not in {move.slot for move in decide(everywhere, {1: AGO}).moves}
    later = replace(PICTURE, departures={2: {0: NOW - departures.KEPT_SECONDS}})
    assert decide(later, {1: AGO}).moves == (Move(0, 1, 2),)


def test_the_budget_of_an_hour_is_kept() -> None:
    spent = dict.fromkeys(range(200, 215), NOW - 60.0)  # 15 of 300 slots: a twentieth
    made = decide(replace(PICTURE, moved=spent), {1: AGO})
    assert made.why is Why.BUDGET
    assert made.text == "5% of all bytes may move in an hour, and that is used up"
    assert decide(replace(PICTURE, moved=dict.fromkeys(spent, NOW - 3601.0)), {1: AGO}).why is Why.MOVES
    big = replace(PICTURE, bytes={0: 900, 1: 900, **dict.fromkeys(range(2, 256), 1)})
    assert not {0, 1} & {move.slot for move in decide(big, {1: AGO}).moves}
    assert decide(replace(PICTURE, bytes={}), {1: AGO}).moves == (Move(0, 1, 2),), "slots count if sizes are unknown"
    assert decide(replace(PICTURE, bytes={}, moved=spent), {1: AGO}).why is Why.BUDGET, "more is spent than there was"
    slots = decide(replace(PICTURE, bytes={}), {1: AGO}, replace(RULES, budget=0.003))
    assert slots.text == "0% of all slots may move in an hour, and each slot that would help is more than that"


def test_a_plan_that_moves_much_for_little_is_not_worth_it() -> None:
    made = decide(PICTURE, {1: AGO}, replace(RULES, worth=100.0))
    assert made.why is Why.NOT_WORTH
    assert made.expected is not None


@given(
    st.lists(st.integers(0, 300), min_size=256, max_size=256),
    st.dictionaries(st.integers(0, 255), st.floats(NOW - 200_000, NOW), max_size=30),
    st.dictionaries(
        st.integers(1, 4), st.dictionaries(st.integers(0, 255), st.floats(NOW - 200_000, NOW), max_size=50)
    ),
    st.sets(st.sampled_from([1, 2, 3])),
)
def test_what_is_begun_keeps_all_rules(
    rates: list[int], moved: dict[int, float], left: dict[int, dict[int, float]], due: set[int]
) -> None:
    busy = {slot: SlotLoad(rate**2) for slot, rate in enumerate(rates)}
    picture = replace(PICTURE, loads=busy, moved=moved, departures=left)
    made = decide(picture, dict.fromkeys(due, AGO))
    assert bool(made.moves) == (made.why is Why.MOVES)
    assert decide(picture, dict.fromkeys(due, AGO)) == made
    hour = [slot for slot, at in moved.items() if NOW - at < 3600]
    if made.moves:
        assert (made.greatest or 0) >= RULES.enter  # rounded
        assert (made.expected or 0) <= (made.greatest or 0)
        assert len(made.moves) + len(hour) <= RULES.budget * 256
    for move in made.moves:
        assert move.source in due
        assert NOW - moved.get(move.slot, 0) >= RULES.rest_seconds
        assert NOW - left.get(move.target, {}).get(move.slot, 0) >= departures.KEPT_SECONDS


def acted(what: What, who: str, ago: float = 60.0) -> ClusterState:
    return replace(STATE, events=(Event(1, NOW - ago, who, what, "text", 1, 1),))


def moving(state: ClusterState) -> ClusterState:
    return replace(state, table=TABLE.changed(6, [Slot(0, 1, Action(SlotState.PENDING, 2))]))


@pytest.mark.parametrize(
    ("state", "why", "text"),
    [
        (moving(STATE), Why.MOVING, "1 slot is on its way"),
        (replace(STATE, table=TABLE.changed(6, groups=[Group(1, ("a:1",), locked=True)])), Why.FAILED, "group 1"),
        (replace(STATE, fenced={"1": Fenced("1", 1)}), Why.FAILED, "1 lost proxy is being fenced off"),
        (replace(STATE, leaving={"group/3": Leaving("group", "3", "", NOW)}), Why.MOVING, "group 3 is leaving"),
        (replace(STATE, leaving={"node/n1": Leaving("node", "n1", "old", NOW)}), Why.MOVING, "node n1 is leaving"),
        (replace(STATE, placement=Kept(True, Run(NOW, "ada", ()))), Why.MOVING, "a placement"),
        (acted(What.SLOTS_CANCELLED, "ada@h (by operator)"), Why.OPERATOR, "ada@h (by operator) has acted"),
        (acted(What.MIGRATION_SET, "operator"), Why.OPERATOR, "nothing is begun for another 59 minutes"),
        (acted(What.SLOTS_PENDING, "operator", -60.0), Why.OPERATOR, "another 1 hour"),
        (
            replace(STATE, last_plan=LastPlan("bytes", "ada", NOW - 5)),
            Why.OPERATOR,
            "ada has acted (rebalance_planned)",
        ),
        (
            # A group was emptied for three hours, which has just ended.
            replace(STATE, last_plan=LastPlan("codis", "ada", NOW - 10_800), moved={7: NOW - 10_000, 8: NOW - 60}),
            Why.OPERATOR,
            "ada has acted (rebalance_planned), so nothing is begun for another 59 minutes",
        ),
        (
            replace(acted(What.SLOTS_CANCELLED, "ada", 7200), moved={8: NOW - 60}),
            Why.OPERATOR,
            "ada has acted (slots_cancelled)",
        ),
    ],
)
def test_what_is_waited_for(state: ClusterState, why: Why, text: str) -> None:
    found = waits(state, None, (), RULES, NOW)
    assert found is not None
    assert found[0] is why
    assert text in found[1]


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        acted(What.SLOTS_CANCELLED, "operator", RULES.quiet_seconds),
        acted(What.SLOTS_PENDING, "topom 1234abcd"),
        acted(What.GROUP_ADDED, "operator"),
        acted(What.SLOTS_ASSIGNED, "operator"),
        replace(STATE, last_plan=LastPlan("load", "topom", NOW - 5)),
        replace(STATE, last_plan=LastPlan("load", "ada", NOW - 8000), moved={8: NOW - 4000}),
        replace(
            acted(What.MIGRATION_SET, "ada", 7200), last_plan=LastPlan("load", "topom", NOW - 120), moved={8: NOW - 60}
        ),
        replace(STATE, moved={8: NOW - 60}),
    ],
)
def test_nothing_is_waited_for(state: ClusterState) -> None:
    assert waits(state, None, (), RULES, NOW) is None


def test_rules_after_seconds() -> None:
    assert Rules.after(300.0) == RULES
    assert Rules.after(10.0) == replace(RULES, sustained_seconds=10.0, quiet_seconds=120.0)


def test_halts_and_silent_servers_are_waited_for() -> None:
    hours = Halt(Kind.HOURS, "migration is outside its hours", until="22:00")
    paused = Halt(Kind.PAUSED, "migration is paused")
    assert waits(STATE, hours, (), RULES, NOW) == (Why.HOURS, "migration is outside its hours")
    assert waits(STATE, paused, (), RULES, NOW) == (Why.HELD, "migration is paused")
    found = waits(STATE, None, ["b:1", "a:1"], RULES, NOW)
    assert found == (Why.FAILED, "2 servers do not answer everybody: a:1, b:1")
