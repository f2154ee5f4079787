"""Counters, the rate and the estimate of what is left."""

import pytest

from migrator.progress import ENOUGH_SCANNED, Progress, Rate, summed


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_covers_the_window_and_forgets() -> None:
    clock = Clock()
    rate = Rate(window=5, tick=0.5, clock=clock)
    assert rate.per_second() == 0

    for _ in range(100):
        rate.add(10)
        clock.now += 0.1
    assert rate.per_second() == pytest.approx(100, rel=0.15)

    clock.now += 6
    assert rate.per_second() == 0


def test_a_rate_that_just_began_is_not_thinned_by_the_window() -> None:
    clock = Clock()
    rate = Rate(window=5, tick=0.5, clock=clock)
    rate.add(100)
    clock.now += 1
    assert rate.per_second() == pytest.approx(100)


def test_remaining_is_unknown_until_enough_was_seen() -> None:
    progress = Progress()
    assert progress.remaining_keys is None

    progress.call_began()
    progress.pass_began(100_000)
    progress.scanned(ENOUGH_SCANNED // 2, 10)

    assert progress.remaining_keys is None


def test_remaining_goes_by_the_share_of_wanted_keys_so_far() -> None:
    progress = Progress()
    progress.call_began()
    progress.pass_began(100_000)
    progress.scanned(10_000, 2_500)
    assert progress.remaining_keys == 25_000

    progress.moved(2_000, 1)
    progress.vanished(100)

    assert progress.remaining_keys == 22_500 + 400


def test_a_small_server_is_known_once_all_was_seen() -> None:
    progress = Progress()
    progress.call_began()
    progress.pass_began(10)
    progress.scanned(10, 4)
    progress.moved(1, 100)
    assert progress.remaining_keys == 3


def test_after_a_pass_what_it_left_over_remains() -> None:
    progress = Progress()
    progress.call_began()
    progress.pass_began(100)
    progress.scanned(100, 50)
    progress.moved(45, 1)
    progress.pass_ended()
    assert progress.passes == 1
    assert progress.remaining_keys == 5

    progress.pass_began(55)
    assert progress.remaining_keys == 5
    progress.scanned(55, 5)
    progress.moved(5, 1)
    assert progress.remaining_keys == 0


def test_a_repeated_call_keeps_what_was_moved_and_estimates_anew() -> None:
    progress = Progress()
    progress.call_began()
    progress.pass_began(100)
    progress.scanned(100, 50)
    progress.moved(20, 2_000)

    progress.call_began()

    assert (progress.keys_moved, progress.bytes_moved) == (20, 2_000)
    assert progress.remaining_keys is None
    progress.completed()
    assert progress.remaining_keys == 0


def test_several_are_added_up() -> None:
    one, other = Progress(), Progress()
    one.moved(10, 100)
    one.completed()
    other.moved(5, 50)

    totals = summed([one, other])
    assert (totals.keys_moved, totals.bytes_moved, totals.remaining_keys) == (15, 150, None)
    assert totals.keys_per_second > 0

    other.completed()
    assert summed([one, other]).remaining_keys == 0
    assert summed([]).remaining_keys == 0
