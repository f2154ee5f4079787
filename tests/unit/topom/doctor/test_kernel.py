from dataclasses import replace

from tests.unit.topom.doctor.patients import names, server
from topom.doctor.facts import KernelFacts

GOOD = KernelFacts(overcommit_memory=1, huge_pages_always=True, most_connections=511)


def test_a_good_kernel_and_an_unknown_one() -> None:
    assert names(server(1, kernel=GOOD), server(2, kernel=KernelFacts())) == []


def test_memory_that_the_kernel_may_refuse() -> None:
    for value in (0, 2):
        assert names(server(1, kernel=KernelFacts(overcommit_memory=value))) == ["overcommit-memory"]


def test_huge_pages_that_a_server_does_not_switch_off() -> None:
    assert names(server(1, kernel=GOOD, config={"disable-thp": "no"})) == ["huge-pages"]
    # Before Redis 6.2 there is no such setting, and no server does it.
    old = server(1, kernel=GOOD)
    without = {name: value for name, value in old.config.items() if name != "disable-thp"}
    assert names(replace(old, config=without)) == ["huge-pages"]
    assert names(server(1, kernel=KernelFacts(huge_pages_always=False), config={"disable-thp": "no"})) == []


def test_connections_that_wait() -> None:
    assert names(server(1, kernel=KernelFacts(most_connections=128))) == ["somaxconn-small"]
