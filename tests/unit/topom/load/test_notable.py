"""Notable requests of several proxies are those of the fleet, and few of them are kept."""

import math
import random
from typing import Any, get_args

import pytest

from slots.messages.load import Notable, Why
from topom.load import notable as module
from topom.load.notable import FIGURES, KEPT_SECONDS, NotableRequests, Seen


def said(key: bytes = b"k", **fields: Any) -> tuple[Notable, bytes]:
    """A request that took 20 ms, and what else is said of it."""
    told = {
        "why": "slow",
        "command": "get",
        "database": 0,
        "slot": 3,
        "key": "",
        "length": len(key),
        "user": "default",
        "client": "10.0.0.7:5",
        "server": "10.0.0.1:6379",
        "seconds": 0.0,
        "microseconds": 20_000.0,
        "bytes_in": 30,
        "bytes_out": 40,
        "elements": 0,
        **fields,
    }
    return Notable(**told), key


class Times:
    """Two clocks that a test lets go on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ahead = 500_000.0
        """Of the clock that somebody may set."""
        self.kept = NotableRequests(lambda: self.now, lambda: self.now + self.ahead)

    def take(self, *requests: tuple[Notable, bytes], proxy: int = 1, hashed: bool = False) -> None:
        self.kept.take(proxy, requests, hashed)

    def keys(self, **asked: Any) -> list[bytes]:
        return [seen.alike.key for seen in self.kept.newest(**asked)]


def only(kept: NotableRequests) -> Seen:
    [seen] = kept.newest()
    return seen


def test_a_request_that_is_said_to_be_older_than_a_day_is_left_out() -> None:
    times = Times()
    times.take(said(seconds=1e12))
    times.take(said(seconds=5.0))
    assert only(times.kept).first_at == times.now + times.ahead - 5.0


def test_requests_that_are_alike_are_one_entry_over_proxies() -> None:
    times = Times()
    times.take(said(seconds=4.0, microseconds=30_000.0, bytes_in=10, bytes_out=900, elements=1, user="ada"), proxy=1)
    times.now += 60.0
    times.take(said(seconds=1.0, bytes_in=50, client="10.0.0.8:9", server="10.0.0.2:6379"), proxy=2)
    seen = only(times.kept)
    assert (seen.times, seen.first_at, seen.last_at) == (2, 500_996.0, 501_059.0)
    assert (seen.microseconds, seen.bytes_in, seen.bytes_out, seen.elements) == (30_000, 50, 900, 1)
    assert (seen.user, seen.client, seen.server, seen.proxy_id) == ("ada", "10.0.0.7:5", "10.0.0.1:6379", 1)


@pytest.mark.parametrize(
    ("why", "figure"),
    [("big_request", "bytes_in"), ("big_reply", "bytes_out"), ("big_collection", "elements"), ("slow", "microseconds")],
)
@pytest.mark.parametrize("worse_first", [True, False])
def test_the_worst_is_the_worst_by_what_it_is_about(why: str, figure: str, worse_first: bool) -> None:
    times = Times()
    others = {name: 70 for name in ("bytes_in", "bytes_out", "elements", "microseconds") if name != figure}
    worse = said(why=why, user="worse", **{figure: 60})
    other = said(why=why, user="other", **{figure: 50}, **others)
    for request in (worse, other) if worse_first else (other, worse):
        times.take(request)
    seen = only(times.kept)
    assert seen.user == "worse"
    assert getattr(seen, figure) == 60


def test_each_reason_has_a_figure() -> None:
    assert set(FIGURES) == set(get_args(Why))


@pytest.mark.parametrize(
    "other",
    [
        {"why": "big_reply"},
        {"command": "set"},
        {"database": 1},
        {"slot": 4},
        {"slot": -1},
        {"key": b"j"},
        {"length": 9},
    ],
)
def test_another_reason_command_database_or_key_is_another_entry(other: dict[str, Any]) -> None:
    times = Times()
    times.take(said(), said(**other))
    assert [seen.times for seen in times.kept.newest()] == [1, 1]


def test_a_hash_is_another_key() -> None:
    times = Times()
    times.take(said())
    times.take(said(), hashed=True)
    assert sorted(seen.alike.hashed for seen in times.kept.newest()) == [False, True]


def test_what_was_seen_last_comes_first() -> None:
    times = Times()
    times.take(said(b"a", seconds=3.0), said(b"b", seconds=1.0, why="big_reply"), said(b"c", seconds=2.0))
    assert times.keys() == [b"b", b"c", b"a"]
    assert times.keys(most=2) == [b"b", b"c"]
    assert times.keys(why="slow") == [b"c", b"a"]
    assert times.keys(why="big_request") == []
    times.take(said(b"a"))
    assert times.keys() == [b"a", b"b", b"c"]
    times.take(said(b"b", seconds=9.0, why="big_reply"))
    assert times.keys() == [b"a", b"b", b"c"], "an older one that is told later changes no order"


def test_what_was_not_seen_for_a_day_goes() -> None:
    times = Times()
    times.take(said(b"a"), said(b"b"), said(b"old", seconds=KEPT_SECONDS + 1))
    times.now += KEPT_SECONDS
    times.take(said(b"b"))
    times.kept.end_old()
    assert sorted(times.keys()) == [b"a", b"b"]
    version = times.kept.version
    times.now += 1.0
    times.kept.end_old()
    assert times.keys() == [b"b"]
    assert times.kept.version != version
    times.now += KEPT_SECONDS
    times.kept.end_old()
    assert times.keys() == []
    times.kept.end_old()


def test_a_clock_that_is_set_makes_nothing_go() -> None:
    times = Times()
    times.take(said())
    times.ahead += 10 * KEPT_SECONDS
    times.kept.end_old()
    assert only(times.kept).last_at == times.now + times.ahead


def test_there_is_another_version_after_each_change_and_only_then() -> None:
    times = Times()
    versions = [times.kept.version]
    for _ in range(2):
        times.take(said())
        versions.append(times.kept.version)
    assert len(set(versions)) == 3
    times.take()
    times.kept.end_old()
    assert times.kept.version == versions[-1]


def test_when_there_is_no_room_what_was_seen_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    times = Times()
    times.take(said(b"a", seconds=9.0), said(b"b", seconds=8.0), said(b"c", seconds=7.0))
    times.take(said(b"a", seconds=2.0))
    times.take(said(b"d", seconds=6.0))
    assert times.keys() == [b"a", b"d", b"c"]
    times.take(said(b"late", seconds=100.0))
    assert times.keys() == [b"a", b"d", b"c"]


def test_the_latest_are_kept_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """as a plain dictionary that is looked through each time has them."""
    monkeypatch.setattr(module, "MOST_KEPT", 5)
    for seed in range(20):
        chance = random.Random(seed)
        times = Times()
        plain: dict[bytes, float] = {}
        for _ in range(300):
            times.now += chance.choice((0.0, 1.0, KEPT_SECONDS / 4))
            key, seconds = b"%d" % chance.randrange(12), chance.uniform(0.0, KEPT_SECONDS / 3)
            times.take(said(key, seconds=seconds))
            times.kept.end_old()
            plain[key] = max(plain.get(key, -math.inf), times.now - seconds)
            if len(plain) > 5:
                del plain[min(plain, key=lambda one: plain[one])]
            plain = {one: at for one, at in plain.items() if at >= times.now - KEPT_SECONDS}
            assert times.keys() == sorted(plain, key=lambda one: -plain[one])
            assert len(times.kept._order) == len(plain)
