"""Hot keys of several proxies are those of the fleet."""

import pytest

from slots.messages.load import HotKey
from topom.load import hotkeys
from topom.load.hotkeys import HotKeys


def said(key: bytes, rate: float, excess: float = 0.0, slot: int = 1, database: int = 0) -> tuple[HotKey, bytes]:
    return HotKey(database, slot, "", len(key), rate, excess), key


def test_rates_and_excesses_add_up_over_proxies() -> None:
    keys = HotKeys()
    keys.take(1, [said(b"a", 10, 1), said(b"b", 9)], False)
    keys.take(2, [said(b"b", 8, 2), said(b"a", 5, 1)], False)
    assert [(key.key, key.rate, key.excess, key.share) for key in keys.busiest(100)] == [
        (b"b", 17, 2, pytest.approx(0.17)),
        (b"a", 15, 2, pytest.approx(0.15)),
    ]


def test_a_key_of_another_database_or_a_hash_is_another_key() -> None:
    keys = HotKeys()
    keys.take(1, [said(b"a", 3), said(b"a", 2, database=1)], False)
    keys.take(2, [said(b"a", 1)], True)
    assert [(key.database, key.hashed, key.rate) for key in keys.busiest(100)] == [
        (0, False, 3),
        (1, False, 2),
        (0, True, 1),
    ]


def test_what_a_proxy_says_takes_the_place_of_what_it_said() -> None:
    keys = HotKeys()
    keys.take(1, [said(b"a", 3)], False)
    keys.take(1, [said(b"b", 2)], False)
    assert [key.key for key in keys.busiest(100)] == [b"b"]
    keys.end(1)
    assert keys.busiest(100) == []


def test_no_more_is_kept_of_all_proxies_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotkeys, "MOST_KEPT", 64)
    monkeypatch.setattr(hotkeys, "LEAST_KEPT", 2)
    keys = HotKeys()
    for _ in range(2):
        for proxy in range(16):
            keys.take(proxy, [said(b"%d-%d" % (proxy, number), 100 - number) for number in range(50)], False)
    assert len(keys.busiest(100, most=1000)) == 64
    assert min(key.rate for key in keys.busiest(100, most=1000)) == 97, "the hottest of each"
    assert len(keys.busiest(100, most=10)) == 10


def test_the_share_is_unknown_while_no_requests_are_counted() -> None:
    keys = HotKeys()
    keys.take(1, [said(b"a", 3)], False)
    assert keys.busiest(0.0)[0].share == 0
    assert keys.busiest(2.0)[0].share == 1
