"""How fast keys move is measured over the time in which they do."""

from typing import Any

import pytest

from migrator.progress import Progress
from slots.slot import Slot
from tests.unit.topom.operators import groups_of, send
from tests.unit.topom.topom_fakes import FakeMover
from topom.cluster.speed import HALF_LIFE_SECONDS, PairSpeed, Speed


def test_what_is_long_ago_counts_less() -> None:
    now = 0.0
    speed = Speed(lambda: now)
    progress = Progress()
    with speed.following(progress):
        now = 1.0
        progress.keys_moved = 1000
        speed.look(halted=False)
        now += 20 * HALF_LIFE_SECONDS
        progress.keys_moved += 10 * int(20 * HALF_LIFE_SECONDS)
    assert speed.latest is not None
    assert speed.latest.keys == pytest.approx(10.0, rel=1e-3)


async def test_when_slots_came_to_rest_and_what_they_left_and_how_fast_is_stored(bench: Any) -> None:
    one = await bench(mover=FakeMover())
    assert one.actions.speed is None
    with one.actions.steps.speeds.by_keys.following(progress := Progress()):
        progress.keys_moved = 100
    one.actions.steps.stored._clock = lambda: 77.12345
    one.run()
    await send(one, [3, 5])
    await one.until(lambda found: groups_of(found).count(2) == 2)
    await one.at_rest()
    assert one.ledger.state.moved == {3: 78, 5: 78}
    assert one.ledger.state.departures == {1: {3: 78, 5: 78}}
    one.actions.steps.stored._clock = lambda: 80.0
    await send(one, [5], 3)
    await one.until(lambda found: found.slots[5] == Slot(5, 3))
    again = await type(one)(one.store).start()
    assert again.actions.speed == one.actions.speed is not None
    assert again.ledger.state.moved == {3: 78, 5: 80.0}
    assert again.ledger.state.departures == {1: {3: 78, 5: 78}, 2: {5: 80.0}}
    await again.stop()


def test_speed_is_that_of_the_time_in_which_keys_moved() -> None:
    now = 0.0
    speed = Speed(lambda: now)
    assert speed.latest is None
    progress = Progress()
    with speed.following(progress):
        now = 10.0
        progress.keys_moved, progress.bytes_moved = 1000, 50_000
        speed.look(halted=False)
        assert speed.latest == PairSpeed(100.0, 5000.0)
        now = 500.0
        speed.look(halted=True)
        now = 510.0
        progress.keys_moved, progress.bytes_moved = 2000, 100_000
    now = 10_000.0
    speed.look(halted=False)
    assert speed.latest == PairSpeed(pytest.approx(100.0), pytest.approx(5000.0)), "nothing moved, nothing changes"


def test_time_in_which_no_key_moves_may_be_left_out_and_a_short_time_tells_nothing() -> None:
    now = 0.0
    speed = Speed(lambda: now, least_seconds=5.0, waits_count=False)
    progress = Progress()
    with speed.following(progress):
        now = 100.0
        speed.look(halted=False)
        now = 104.0
        progress.keys_moved = 400
        speed.look(halted=False)
        assert speed.latest is None
        now = 106.0
        progress.keys_moved = 600
        speed.look(halted=False)
        now = 500.0
    assert speed.latest == PairSpeed(pytest.approx(100.0), 0.0)
