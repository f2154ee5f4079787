"""Which replicas can be followed in their master's place, by what both and the target say."""

import pytest

from migrator.errors import MigrationError
from migrator.stream.choosing import MOST_LAG_BYTES, MOST_SILENT_SECONDS, Replica, judge
from migrator.stream.errors import NotDirect
from migrator.stream.standing import require_direct
from slots.replies import Info, NotUnderstood

ID = "a" * 40
RUN = "c" * 40
MASTER = {"redis_version": "7.0.15", "role": "master", "master_replid": ID, "master_repl_offset": 5_000_000}
REPLICA = {
    "redis_version": "7.0.11",
    "run_id": RUN,
    "role": "slave",
    "master_host": "elsewhere",
    "master_port": 6379,
    "master_link_status": "up",
    "master_last_io_seconds_ago": 1,
    "master_replid": ID,
    "slave_repl_offset": 4_999_000,
    "slave_read_only": 1,
    "used_memory_rss": 100,
    "total_system_memory": 1000,
}
TARGET = {"redis_version": "7.0.15", "role": "master"}


def info(**fields: object) -> Info:
    return Info.parse("\r\n".join(f"{name}:{value}" for name, value in fields.items() if value is not None))


def judged(replica: dict[str, object], master: dict[str, object] | None = None, target: object = None) -> Replica:
    said = {**TARGET, "redis_version": target} if target else TARGET
    return judge("h:2", info(**{**REPLICA, **replica}), info(**{**MASTER, **(master or {})}), [info(**said)])


def test_one_that_is_whole_and_near_can() -> None:
    assert judged({}) == Replica("h:2", RUN, 1000)


def test_one_that_was_asked_later_than_its_master_has_no_lag() -> None:
    assert judged({"slave_repl_offset": 6_000_000}).lag == 0


@pytest.mark.parametrize(
    "said",
    [
        {"role": "master"},
        {"master_replid": "b" * 40},
        {"master_replid": None},
        {"master_link_status": "down"},
        {"loading": 1},
        {"master_sync_in_progress": 1},
        {"slave_read_only": 0},
        {"slave_read_only": None},
        {"evicted_keys": 1},
        {"slave_repl_offset": 5_000_000 - MOST_LAG_BYTES - 1},
        {"master_last_io_seconds_ago": MOST_SILENT_SECONDS + 1},
        {"used_memory_rss": 900},
        {"redis_version": "7.2.1"},
        {"redis_version": "8"},
        {"valkey_version": "7.0.1"},
    ],
)
def test_one_that_cannot(said: dict[str, object]) -> None:
    with pytest.raises(MigrationError):
        judged(said)


@pytest.mark.parametrize(
    "said",
    [
        {"slave_repl_offset": None},
        {"slave_repl_offset": "many"},
        {"master_last_io_seconds_ago": None},
        {"run_id": None},
        {"role": "proxy"},
    ],
)
def test_one_that_answers_as_no_redis_server_does(said: dict[str, object]) -> None:
    with pytest.raises(NotUnderstood):
        judged(said)


def test_a_newer_one_can_if_the_target_reads_its_format() -> None:
    assert judged({"redis_version": "7.2.1"}, target="7.2.0")
    with pytest.raises(MigrationError, match="newer"):
        judged({"redis_version": "7.2.1"}, target="7.0.15")
    assert judged({"redis_version": "7.2.1"}, master={"redis_version": "7.4.0"})


@pytest.mark.parametrize("version", ["6.2.14", "4.0.0", "unknown", None])
def test_a_replica_of_a_master_that_names_no_deadlines_cannot(version: str | None) -> None:
    older = {"redis_version": "4.0.0"}
    with pytest.raises(MigrationError):
        judged(older, master={"redis_version": version})
    assert judged({**older, "valkey_version": "8.0.1"}, master={"redis_version": "7.2.4", "valkey_version": "8.0.1"})


def test_a_master_that_names_no_stream_has_no_replica_that_can() -> None:
    with pytest.raises(MigrationError):
        judged({}, master={"master_replid": None})


@pytest.mark.parametrize(("link", "links"), [("", [""]), ("h:40000", []), ("h:40000", ["h:40001"])])
def test_one_whose_link_is_not_at_the_master_cannot(link: str, links: list[str]) -> None:
    with pytest.raises(NotDirect):
        require_direct("h:2", link, links)


def test_one_whose_link_is_at_the_master_can() -> None:
    require_direct("h:2", "h:40000", ["h:40001", "h:40000"])
