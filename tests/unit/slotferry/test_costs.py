"""What a plan costs, as tables."""

from typing import Any

import pytest

from slotferry.costs import MOST_PAIRS, duration, show_costs
from slots.group import Group
from slots.slot import Slot
from topom.balance.planners import PlanRequest, forecast
from topom.cluster.topology import Move
from topom.migration.ways import Choice, Way, WayForecast

GROUPS = [Group(group_id, (f"s{group_id}:1",)) for group_id in (1, 2)]
SLOTS = [Slot(0, 1), Slot(1, 1), Slot(2, 1), Slot(3, 0)]
SIZES = {0: 3 * 2**20, 1: 2**20, 2: 2**20}


def cost(request: PlanRequest, moves: list[Move], rate: float | None = None) -> dict[str, Any]:
    return forecast(GROUPS, SLOTS, moves, request, keys_per_second=rate).to_wire()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_plan_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    request = PlanRequest(bytes=SIZES, keys={0: 3000, 1: 1000, 2: 1000})
    show_costs(cost(request, [Move(1, 1, 2), Move(2, 1, 2), Move(3, 0, 2)], rate=10.0))
    text = capsys.readouterr().out
    shown = rows(text)
    assert ["1", "2.5", "MiB", "3", "5.0", "MiB", "+100.0%", "1", "3.0", "MiB", "+20.0%"] in shown
    assert ["2", "2.5", "MiB", "0", "0", "B", "-100.0%", "3", "2.0", "MiB", "-20.0%"] in shown
    assert ["group", "1", "group", "2", "2", "2.0", "MiB", "2,000"] in shown
    assert ["offline", "group", "2", "1", "0", "B", "0"] in shown
    assert "in all 3 slots, 2.0 MiB, 2,000 keys; about 3 min 20 s at the measured rate" in text


def test_the_way_of_each_pair_is_shown_and_why(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    costs = WayForecast(20.0, 5000, 3 * 2**20, 2**20, 90.0, 0.015, rounds=3)
    ways = {(1, 2): Choice(Way.STREAM, "it suits", costs), (2, 1): Choice(Way.KEYS, "nothing is known")}
    slots = [*SLOTS, Slot(4, 2)]
    show_costs(forecast(GROUPS, slots, [Move(1, 1, 2), Move(4, 2, 1)], PlanRequest(), ways=ways).to_wire())
    text = capsys.readouterr().out
    first = "group 1 group 2 by the stream 20 s 3.0 MiB 1.0 MiB for 1 min 30 s 15 ms it suits"
    assert first.split() in rows(text)
    assert ["group", "2", "group", "1", "by", "keys", "-", "-", "-", "-", "nothing", "is", "known"] in rows(text)
    assert "no rate known" in text, "of one pair nothing is known"
    show_costs(forecast(GROUPS, slots, [Move(1, 1, 2)], PlanRequest(), ways=ways).to_wire())
    assert "in all 1 slot; about 20 s\n" in capsys.readouterr().out


def test_what_nobody_knows_is_not_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    show_costs(cost(PlanRequest(), [Move(1, 1, 2)]))
    text = capsys.readouterr().out
    assert ["1", "-", "3", "-", "-", "2", "-", "-"] in rows(text)
    assert "in all 1 slot; no rate known to tell the time" in text


def test_nothing_to_move(capsys: pytest.CaptureFixture[str]) -> None:
    show_costs(cost(PlanRequest(bytes=SIZES), []))
    text = capsys.readouterr().out
    assert "nothing to move" in text
    assert "to move\n" not in text.replace("nothing to move", "")


def test_of_many_pairs_the_largest_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [Group(group_id, ("s:1",)) for group_id in range(1, 40)]
    slots = [Slot(slot, 1) for slot in range(38)]
    moves = [Move(slot, 1, 2 + slot) for slot in range(38)]
    request = PlanRequest(bytes={slot: slot for slot in range(38)})
    show_costs(forecast(groups, slots, moves, request).to_wire())
    shown = rows(capsys.readouterr().out)
    left = 38 - MOST_PAIRS
    assert ["group", "1", "group", "39", "1", "37", "B", "-"] in shown
    assert [f"{left}", "more", "-", f"{left}", f"{sum(range(left))}", "B", "-"] in shown


def test_times_as_a_person_reads_them() -> None:
    times = {0.04: "0.0 s", 9.94: "9.9 s", 59.4: "59 s", 59.6: "1 min 0 s", 3599: "59 min 59 s", 7499: "2 h 5 min"}
    assert {seconds: duration(seconds) for seconds in times} == times
