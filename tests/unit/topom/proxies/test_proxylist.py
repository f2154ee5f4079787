"""Which proxies cluster clients are told of, and when."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from slots.messages.control import ClusterAddress, TopomMessage
from topom.cluster.state import ProxyRecord
from topom.proxies.member import Member
from topom.proxies.proxylist import ProxyList


class Link:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def end(self, message: TopomMessage | None) -> None:
        raise AssertionError


def member(proxy_id: int, cluster: bool = True) -> Member:
    record = ProxyRecord(proxy_id, f"{proxy_id:032x}", "10.0.0.1:6380", "host", 1, 1, "1")
    made = Member(record, 0.0)
    made.met = True
    made.link = Link()
    if cluster:
        made.cluster = ClusterAddress(host=f"10.0.0.{proxy_id}", port=6380, tls_port=0)
    return made


def said(proxies: ProxyList) -> list[Any] | None:
    frame = proxies.frame(0)
    return json.loads(frame[1])["proxies"] if frame is not None else None


@pytest.fixture
def there() -> list[Member]:
    return [member(1), member(2), member(3, cluster=False)]


@pytest.fixture
def proxies(there: list[Member]) -> ProxyList:
    return ProxyList(SimpleNamespace(all=lambda: there))  # type: ignore[arg-type]


def woken(one: Member) -> int:
    assert isinstance(one.link, Link)
    return one.link.woken


async def test_those_in_cluster_mode_hear_of_each_other_once(there: list[Member], proxies: ProxyList) -> None:
    for _ in range(3):
        await proxies.look()
    assert said(proxies) == [[1, "10.0.0.1", 6380, 0], [2, "10.0.0.2", 6380, 0]]
    assert [woken(one) for one in there] == [1, 1, 0]
    assert proxies.frame(proxies.version) is None


def lose(member: Member, gone: bool) -> None:
    member.lost = gone


def drain(member: Member, gone: bool) -> None:
    member.record = replace(member.record, draining=gone)


@pytest.mark.parametrize("leave", [lose, drain])
async def test_who_is_lost_or_drains_is_left_out_and_comes_back(
    there: list[Member], proxies: ProxyList, leave: Callable[[Member, bool], None]
) -> None:
    await proxies.look()
    leave(there[1], True)
    await proxies.look()
    assert said(proxies) == [[1, "10.0.0.1", 6380, 0]]
    leave(there[1], False)
    await proxies.look()
    assert said(proxies) == [[1, "10.0.0.1", 6380, 0], [2, "10.0.0.2", 6380, 0]]


async def test_a_new_topom_says_nothing_before_it_has_met_everybody(there: list[Member], proxies: ProxyList) -> None:
    there[1].met, there[1].cluster = False, None
    await proxies.look()
    assert said(proxies) is None
    there[1].lost = True
    await proxies.look()
    assert said(proxies) == [[1, "10.0.0.1", 6380, 0]]


async def test_nothing_is_said_where_nobody_asks(there: list[Member], proxies: ProxyList) -> None:
    del there[:2]
    await proxies.look()
    assert proxies.version == 0
