import pytest

from tests.unit.topom.doctor.patients import found, names, server

NOTHING = {"save": "", "appendonly": "no"}


def test_a_master_that_keeps_nothing() -> None:
    [one] = found(server(1, config=NOTHING))
    assert one.rule == "nothing-on-disk"
    assert one.remedy.startswith("redis-cli -h 10.0.0.1 -p 6379 CONFIG SET appendonly yes")


@pytest.mark.parametrize("some", [{"save": ""}, {"appendonly": "no"}])
def test_one_of_both_is_enough(some: dict[str, str]) -> None:
    assert names(server(1, config=some)) == []


def test_a_replica_may_keep_nothing() -> None:
    assert names(server(2, config=NOTHING)) == []


def test_a_cache_that_keeps_nothing_may_be_meant() -> None:
    caches = [server(number, config=NOTHING, maxmemory_policy="allkeys-lru") for number in (1, 3)]
    assert names(*caches) == ["cache-not-on-disk"] * 2


def test_settings_that_are_not_told_are_not_empty() -> None:
    assert names(server(1, config={"appendonly": "no"}, info=server().info)) == []
    unknown = server(1)
    assert names(server(1, config={name: "" for name in unknown.config if name != "save"})) == []


@pytest.mark.parametrize("field", ["rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"])
def test_writing_that_fails(field: str) -> None:
    [one] = found(server(2, **{field: "err"}))
    assert (one.rule, field in one.seen) == ("save-fails", True)


def test_an_append_only_file_that_is_not_synced() -> None:
    assert names(server(1, config={"appendfsync": "no"})) == ["append-only-not-synced"]
    assert names(server(1, config={"appendfsync": "no", "appendonly": "no"})) == []
