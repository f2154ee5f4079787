"""Wrong tokens are counted by address, within bounds."""

import pytest

from topom.api import guesses
from topom.api.guesses import MOST_WRONG, PERIOD_SECONDS, Guesses


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guess(one: Guesses, address: str, times: int = MOST_WRONG + 1) -> bool:
    """Whether the last of these guesses was one too many."""
    return [one.another(address) for _ in range(times)][-1]


def test_so_many_may_be_wrong_within_a_while() -> None:
    clock = Clock()
    one = Guesses(clock)
    assert not guess(one, "10.0.0.1", MOST_WRONG)
    assert guess(one, "10.0.0.1", 1)
    assert not guess(one, "10.0.0.2", 1)
    clock.now = PERIOD_SECONDS - 0.001
    assert guess(one, "10.0.0.1", 1)
    clock.now = PERIOD_SECONDS
    assert not guess(one, "10.0.0.1", MOST_WRONG)
    assert guess(one, "10.0.0.1", 1)


@pytest.mark.parametrize(
    ("address", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("", "", True),
    ],
)
def test_which_addresses_are_one(address: str, other: str, same: bool) -> None:
    one = Guesses()
    assert guess(one, address)
    assert guess(one, other, 1) is same


def test_bounded_so_many_addresses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "MOST_ADDRESSES", 10)
    clock = Clock()
    one = Guesses(clock)
    for number in range(100):
        clock.now = number / 1000
        assert guess(one, f"10.0.0.{number}")
        assert len(one._counts) <= 10
    assert guess(one, "10.0.0.99", 1), "who began last is still known"
