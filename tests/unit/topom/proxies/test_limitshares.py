"""Proxies share the limits of users by what is asked for, and never have more than the whole together."""

import random
from typing import NamedTuple

from slots.limitshares import BEGINNING, FLOOR, WHOLE
from slots.messages.control import Heartbeat
from slots.messages.load import HeldShare
from topom.proxies.limitshares import LimitShares


class Member(NamedTuple):
    lost: bool = False


def heartbeat(**limited: HeldShare) -> Heartbeat:
    return Heartbeat(epoch=1, limited=limited)


class Proxies:
    """Proxies that say what they have, and take what they are told."""

    def __init__(self, *demands: int) -> None:
        self.members = {number: Member() for number in range(1, len(demands) + 1)}
        self.shares = LimitShares(lambda: self.members)
        self.demand = dict(zip(self.members, demands, strict=True))
        self.held = dict.fromkeys(self.members, BEGINNING)

    def beat(self, number: int) -> None:
        held, demand = self.held[number], self.demand[number]
        answer = self.shares.answer(number, heartbeat(tenant=HeldShare(demand, 2 * demand, held, held)))
        if answer is not None:
            assert answer.shares["tenant"].requests == answer.shares["tenant"].bytes
            self.held[number] = answer.shares["tenant"].requests

    def settle(self) -> None:
        for _ in range(5):
            for number, member in self.members.items():
                if not member.lost:
                    self.beat(number)


def test_shares_follow_the_demand() -> None:
    proxies = Proxies(30, 10)
    proxies.settle()
    assert abs(proxies.held[1] - 0.75 * WHOLE) < FLOOR
    assert abs(proxies.held[2] - 0.25 * WHOLE) < FLOOR
    assert WHOLE - 10 <= sum(proxies.held.values()) <= WHOLE
    proxies.demand = {1: 0, 2: 5}
    proxies.settle()
    assert proxies.held[2] >= WHOLE - 2 * FLOOR
    assert 0 < proxies.held[1] <= FLOOR
    proxies.demand = {1: 0, 2: 0}
    proxies.settle()
    assert proxies.held == {1: WHOLE // 2, 2: WHOLE // 2}


def test_a_share_grows_only_by_what_the_other_says_it_has_given_up() -> None:
    proxies = Proxies(10, 0)
    proxies.settle()
    proxies.demand = {1: 0, 2: 10}
    proxies.beat(2)
    assert proxies.held[2] <= FLOOR, "the first one has almost all"
    answer = proxies.shares.answer(1, heartbeat(tenant=HeldShare(0, 0, proxies.held[1], proxies.held[1])))
    proxies.beat(2)
    assert proxies.held[2] <= FLOOR, "it may not have heard yet that it is to give it up"
    assert answer is not None
    proxies.held[1] = answer.shares["tenant"].requests
    proxies.beat(1)
    proxies.beat(2)
    assert proxies.held[2] >= WHOLE - 2 * FLOOR


def test_small_changes_of_demand_change_nothing() -> None:
    proxies = Proxies(100, 100)
    proxies.settle()
    before = dict(proxies.held)
    proxies.demand = {1: 103, 2: 98}
    proxies.settle()
    assert proxies.held == before


def test_nobody_is_told_a_share_before_all_were_heard_and_a_lost_proxy_has_none() -> None:
    proxies = Proxies(10, 10, 10)
    proxies.held = {1: 0, 2: 0, 3: WHOLE}
    for number in (1, 2, 1, 2):
        proxies.beat(number)
        assert proxies.held[number] == 0, "the third may have any share"
    proxies.beat(3)
    proxies.settle()
    assert max(proxies.held.values()) - min(proxies.held.values()) < FLOOR
    proxies.members[3] = Member(lost=True)
    proxies.settle()
    assert proxies.held[1] + proxies.held[2] >= WHOLE - 10
    del proxies.members[1]
    proxies.beat(1)
    proxies.beat(2)
    assert proxies.held[2] == WHOLE


def test_a_proxy_without_limits_is_heard_but_has_no_part() -> None:
    proxies = Proxies(10, 10)
    assert proxies.shares.answer(2, heartbeat()) is None
    proxies.beat(1)
    assert proxies.held[1] == WHOLE


def test_all_together_is_never_more_than_the_whole_however_heartbeats_come() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        proxies = Proxies(*[0] * 4)
        proxies.held = dict.fromkeys(proxies.members, WHOLE // 4)
        for _ in range(300):
            number = chance.choice(list(proxies.members))
            proxies.demand[number] = chance.choice([0, 1, 10, 1000, chance.randrange(100)])
            proxies.beat(number)
            # Each has its small part in any case.
            assert sum(proxies.held.values()) <= WHOLE + FLOOR
