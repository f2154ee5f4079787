"""The load of slots over time."""

import math

from topom.balance.simulation.scenario import Crowd, Scenario
from topom.balance.simulation.traffic import Traffic

QUIET = Scenario(groups=4, slots=64, drift=0.0, wander=0.0, largest=0.2)


def test_load_is_by_zipfs_law_and_no_slot_has_more_than_it_may() -> None:
    rates = Traffic(QUIET).rates(0.0)
    assert math.isclose(sum(rates), 1e6)
    assert math.isclose(max(rates), 0.2 * 1e6 / 4)
    assert sorted(rates)[-4] > 2 * sorted(rates)[0]
    assert rates == Traffic(QUIET).rates(5.0), "without drift nothing changes"


def test_loads_go_up_and_down_within_a_day() -> None:
    drifting = Traffic(Scenario(groups=4, slots=64, drift=0.3, wander=0.0, largest=10))
    begin = drifting.rates(0.0)
    assert all(math.isclose(a, b) for a, b in zip(begin, drifting.rates(24.0), strict=True))
    noon = drifting.rates(12.0)
    assert any(b > a * 1.2 for a, b in zip(begin, noon, strict=True))
    assert any(b < a / 1.2 for a, b in zip(begin, noon, strict=True))


def test_loads_wander_by_the_seed() -> None:
    one, same, other = (Traffic(Scenario(slots=64, seed=seed)) for seed in (1, 1, 2))
    for traffic in (one, same, other):
        traffic.step(1.0)
    assert one.rates(1.0) == same.rates(1.0) != other.rates(1.0)


def test_a_crowd_comes_and_goes() -> None:
    traffic = Traffic(Scenario(groups=4, slots=64, drift=0, wander=0, crowds=(Crowd(1, 2, 3, 7), Crowd(1, 2, 3))))
    before, with_it, after = traffic.rates(0.9), traffic.rates(1.0), traffic.rates(3.0)
    assert math.isclose(with_it[7], min(0.5 * 1e6 / 4, 3 * before[7])) or with_it[7] > before[7]
    assert after == before
