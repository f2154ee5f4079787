"""A small fleet over two hours: how even it is by decisions, and what that costs."""

from dataclasses import replace

import pytest

from topom.balance.simulation.running import GOAL, simulate
from topom.balance.simulation.scenario import Crowd, Scenario

SMALL = Scenario(groups=60, slots=1024, hours=2.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fleet_comes_under_the_goal_and_stays_there(seed: int) -> None:
    scenario = replace(SMALL, seed=seed)
    by_itself, codis = simulate(scenario), simulate(scenario, by_itself=False)
    assert by_itself.greatest <= GOAL < codis.greatest
    assert by_itself.returned == 0
    assert by_itself.bytes <= 3 * by_itself.bound, "1.3 to 2.4 were measured"
    assert (codis.bytes, codis.moves) == (0, 0), "all groups have as many slots"
    assert codis.bound == by_itself.bound > 0


def test_a_flash_crowd_is_met_within_minutes_and_nothing_comes_back() -> None:
    scenario = replace(SMALL, crowds=(Crowd(1.2, 0.5, 20.0), Crowd(1.3, 0.4, 30.0)))
    found = simulate(scenario)
    assert found.greatest > GOAL, "somebody has to have too much before anything moves"
    assert found.above < 0.25
    assert found.returned == 0


def test_an_added_group_and_a_slow_one() -> None:
    scenario = replace(SMALL, groups=4, slots=256, added=(1.2,), slow=2, largest=0.2)
    found = simulate(scenario)
    assert found.moves
    assert found.mostly <= 1.35, "for five minutes four groups have a quarter more than the mean of five"
    assert found.returned == 0
    by_number = simulate(scenario, by_itself=False)
    assert by_number.moves >= 256 // 5
    assert simulate(scenario) == found, "equal seeds give equal runs"
