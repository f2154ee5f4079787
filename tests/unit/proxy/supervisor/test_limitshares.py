"""A proxy's share of the limits of users goes to its workers by what is asked for at each."""

from typing import Any, cast

import pytest

from proxy.settings import ProxySettings
from proxy.supervisor.limitshares import LimitShares
from proxy.supervisor.processes import Worker
from slots.limitshares import BEGINNING, FLOOR, WHOLE
from slots.messages.channel import Shares
from slots.messages.control import Heard
from slots.messages.control import Shares as ToldShares
from slots.messages.load import HeldShare, Share, UserDemand


class Seat:
    """A worker, as far as it is sent shares."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.told: dict[str, Share] = {}

    def send(self, message: Shares) -> None:
        self.told = dict(message.shares)


def settings(*names: str) -> ProxySettings:
    users: list[dict[str, Any]] = [{"name": name, "password": "p", "requests_per_second": 10} for name in names]
    return ProxySettings(users=[*users, {"name": "free", "password": "p"}])


class Proxy:
    def __init__(self, *names: str) -> None:
        self.seats = {0: Seat(0), 1: Seat(1)}
        self.given_up = 0
        self.limits = LimitShares(lambda: cast("list[Worker]", list(self.seats.values())), settings(*names), self._give)

    def _give(self) -> None:
        self.given_up += 1

    def asked(self, first: int, second: int) -> None:
        for index, demand in ((0, first), (1, second)):
            self.limits.take(index, {"tenant": UserDemand(demand, 100 * demand, 0, 0, 0)}, {})
        self.limits.share_out()

    @property
    def shares(self) -> list[int]:
        assert all(seat.told["tenant"].requests == seat.told["tenant"].bytes for seat in self.seats.values())
        return [seat.told["tenant"].requests for seat in self.seats.values()]


@pytest.fixture
def proxy() -> Proxy:
    return Proxy("tenant")


def test_workers_have_parts_of_the_share_by_demand(proxy: Proxy) -> None:
    proxy.limits.share_out()
    assert proxy.shares == [BEGINNING // 2] * 2, "topom has not told any"
    proxy.limits.heard(ToldShares(shares={"tenant": Share(WHOLE, WHOLE), "unknown": Share(1, 1)}))
    assert proxy.shares == [WHOLE // 2] * 2
    assert proxy.limits.told() == {"tenant": HeldShare(0, 0, WHOLE, WHOLE)}
    proxy.asked(30, 10)
    assert abs(proxy.shares[0] - 0.75 * WHOLE) < FLOOR
    assert WHOLE - 2 <= sum(proxy.shares) <= WHOLE
    assert proxy.limits.told() == {"tenant": HeldShare(40, 4000, WHOLE, WHOLE)}
    proxy.asked(0, 1)
    assert proxy.shares == [FLOOR // 2, WHOLE - FLOOR // 2]


def test_a_worker_that_ends_leaves_its_part_to_the_others(proxy: Proxy) -> None:
    proxy.limits.heard(ToldShares(shares={"tenant": Share(WHOLE, WHOLE)}))
    proxy.asked(10, 10)
    del proxy.seats[0]
    proxy.limits.ended(0)
    proxy.limits.share_out()
    assert proxy.shares == [WHOLE]
    assert proxy.limits.told()["tenant"].requests == 10


def test_what_is_given_up_is_said_at_once_and_the_last_shares_hold(proxy: Proxy) -> None:
    proxy.limits.heard(ToldShares(shares={"tenant": Share(WHOLE, WHOLE)}))
    assert not proxy.given_up
    proxy.limits.heard(ToldShares(shares={"tenant": Share(WHOLE // 2, WHOLE // 2)}))
    assert proxy.given_up == 1
    proxy.limits.lost()
    proxy.limits.heard(Heard(number=1))
    proxy.limits.share_out()
    assert sum(proxy.shares) == WHOLE // 2
    assert proxy.given_up == 1


def test_other_users_keep_their_shares_when_the_settings_change(proxy: Proxy) -> None:
    proxy.limits.heard(ToldShares(shares={"tenant": Share(WHOLE, WHOLE)}))
    proxy.limits.change(settings("tenant", "new"))
    assert proxy.seats[0].told == {
        "tenant": Share(WHOLE // 2, WHOLE // 2),
        "new": Share(BEGINNING // 2, BEGINNING // 2),
    }
    proxy.limits.change(settings())
    assert proxy.limits.told() == {}
