from dataclasses import replace

from tests.unit.topom.doctor.patients import TOPOM, found, names, proxy


def test_no_proxy_is_online() -> None:
    assert names(proxies=()) == ["no-proxy"]
    assert names(proxies=(proxy(lost=True),)) == ["no-proxy"]
    assert names(proxies=(), assigned=False) == []


def test_one_proxy() -> None:
    [one] = found(proxies=(proxy(1), proxy(2, draining=True), proxy(3, lost=True)))
    assert (one.rule, one.subject) == ("one-proxy", "proxy 1 (10.0.1.1:6380 on here)")


def test_a_proxy_that_is_behind_or_refuses() -> None:
    [one] = found(proxies=(proxy(1), proxy(2, acked=6)))
    assert (one.rule, one.seen) == ("proxy-behind", "it applies the table of epoch 6, and topom is at epoch 7")
    assert names(proxies=(proxy(1), proxy(2, acked=9))) == []
    [one] = found(proxies=(proxy(1), proxy(2, acked=6, refuses="a worker hangs")))
    assert (one.rule, one.seen) == ("proxy-refuses-table", "it does not apply the newest table: a worker hangs")


def test_versions() -> None:
    assert names(proxies=(proxy(1), proxy(2, version="0.9"))) == ["proxy-version-differs"]
    assert names(proxies=(proxy(1), proxy(2, version=""))) == []
    newer = replace(TOPOM, version="1.1", followers={"http://b": "1.1"})
    assert names(topom=newer) == ["proxy-version-differs"] * 2


def test_clients_that_were_turned_away() -> None:
    [one] = found(proxies=(proxy(1), proxy(2, counters={"refused": 5})))
    assert one.rule == "proxy-turned-clients-away"
    assert "has turned 5 clients away" in one.seen


def test_a_lost_proxy_is_said_by_topom_itself() -> None:
    assert names(proxies=(proxy(1), proxy(2), proxy(3, lost=True, acked=0, version="1.0"))) == []


def test_how_full_a_proxy_is() -> None:
    def counting(**counters: int) -> list[str]:
        return names(proxies=(proxy(1), proxy(2, counters=counters)))

    assert counting(clients=801, max_clients=1000) == ["proxy-nearly-full"]
    assert counting(clients=800, max_clients=1000, max_clients_lacking=0) == []
    # A proxy of an earlier version does not tell.
    assert counting(clients=801) == []
    [one] = found(proxies=(proxy(1), proxy(2, counters={"max_clients": 300, "max_clients_lacking": 9700})))
    assert (one.rule, one.seen[:40]) == ("proxy-lacks-files", "it may have 300 clients instead of 10000")
