import pytest

from tests.unit.topom.doctor.patients import GIB, found, names, server


@pytest.mark.parametrize(
    ("share", "rules"),
    [(0.85, []), (0.86, ["memory-nearly-full"]), (0.95, ["memory-nearly-full"]), (0.96, ["memory-full"])],
)
def test_how_full_a_server_is(share: float, rules: list[str]) -> None:
    assert names(server(1, used_memory=int(share * 4 * GIB))) == rules


def test_what_does_not_count_against_maxmemory_does_not_fill_it() -> None:
    assert names(server(1, used_memory=4 * GIB, mem_not_counted_for_evict=2 * GIB)) == []


def test_a_cache_is_always_full() -> None:
    full = {"used_memory": 4 * GIB, "maxmemory_policy": "allkeys-lru"}
    assert names(server(1, **full), server(3, **full)) == []


def test_no_limit() -> None:
    assert names(server(2, maxmemory=0)) == ["no-maxmemory"]
    assert names(server(2, maxmemory=None)) == []


def test_some_masters_evict_and_others_do_not() -> None:
    [one] = found(server(3, maxmemory_policy="volatile-ttl"))
    assert (one.rule, one.subject) == ("some-evict", "server 10.0.0.3:6379 (master of group 2)")
    assert "volatile-ttl" in one.seen


def test_a_replica_that_evicts_by_itself() -> None:
    evicting = {"maxmemory_policy": "allkeys-lru"}
    assert names(server(2, config={"replica-ignore-maxmemory": "no"}, **evicting)) == ["replica-evicts"]
    assert names(server(2, **evicting)) == []


def test_a_server_that_may_lack_the_memory_for_a_snapshot() -> None:
    big = {"used_memory": 9 * GIB, "used_memory_rss": 9 * GIB, "maxmemory": 12 * GIB, "rdb_last_cow_size": None}
    [one] = found(server(1, **big))
    assert one.rule == "no-memory-for-snapshot"
    assert "may lack the memory for a snapshot" in one.seen
    assert "run BGSAVE there at a quiet hour" in one.remedy
