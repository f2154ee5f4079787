import pytest

from tests.unit.topom.doctor.patients import cluster, found, names, server
from topom.doctor.replication import Limit, output_limits

NORMAL = "normal 0 0 0 "


def test_a_group_without_a_replica() -> None:
    [one] = found(servers=cluster().servers[:3])
    assert (one.rule, one.remedy) == ("no-replica", "slotferry server add 2 HOST:PORT")


def test_of_a_silent_master_its_silence_is_enough() -> None:
    assert names(servers=(*cluster().servers[:2], server(3, silent="gone"))) == ["server-silent"]


def test_a_replica_without_a_link() -> None:
    down = {"master_link_status": "down", "master_link_down_since_seconds": 70}
    [one] = found(server(2, **down))
    assert (one.rule, one.seen) == ("replica-without-link", "it has no link to its master, for 70 s")
    assert names(server(2, **down, master_sync_in_progress=1)) == []


def test_a_replica_that_takes_writes() -> None:
    assert names(server(2, slave_read_only=0)) == ["replica-takes-writes"]
    assert names(server(1, slave_read_only=0)) == []


def test_a_master_that_lacks_replicas_for_its_writes() -> None:
    needs = {"min-replicas-to-write": "2"}
    assert names(server(1, config=needs, min_slaves_good_slaves=1)) == ["too-few-replicas-to-write"]
    assert names(server(1, config=needs, min_slaves_good_slaves=2)) == []
    assert names(server(1, config=needs)) == []


@pytest.mark.parametrize(
    ("limits", "rules"),
    [
        ("slave 67108864 67108864 60", []),
        ("replica 0 0 0", []),
        ("slave 33554432 0 0", ["replica-buffer-small"]),
        ("slave 0 33554432 60", ["replica-buffer-small"]),
        ("slave 0 0 0 pubsub 0 1048576 60", ["subscriber-buffer-small"]),
        ("slave x y z", []),
        ("slave", []),
    ],
)
def test_what_a_server_keeps_for_slow_readers(limits: str, rules: list[str]) -> None:
    assert names(server(1, config={"client-output-buffer-limit": NORMAL + limits})) == rules


def test_how_limits_are_read() -> None:
    assert output_limits("normal 0 0 0 slave 256 64 60") == {"normal": Limit(0, 0), "slave": Limit(256, 64)}
    assert output_limits("") == {}


@pytest.mark.parametrize(
    ("name", "good", "bad", "rule"),
    [
        ("repl-backlog-size", "16777216", "1048576", "backlog-small"),
        ("repl-timeout", "20", "5", "repl-timeout-short"),
        ("repl-diskless-sync", "yes", "no", "snapshot-by-disk"),
    ],
)
def test_settings(name: str, good: str, bad: str, rule: str) -> None:
    assert names(server(1, config={name: good})) == []
    assert names(server(1, config={name: bad})) == [rule]
