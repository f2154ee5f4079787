"""Whatever the reply to INFO is, the result is a checked record or the one failure."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.facts import Facts
from slots.failures import FAILURES
from slots.replies import MOST_RUN_ID, Info, NotUnderstood, understood
from slots.reserved import FOLLOWER
from topom.servers.readings import read_replication, reading_of

MASTER = {
    "role": "master", "run_id": "a" * 40, "master_replid": "b" * 40, "master_replid2": "0" * 40,
    "master_repl_offset": "100", "second_repl_offset": "-1", "connected_slaves": "1", "loading": "0",
    "slave0": "ip=10.0.0.2,port=6379,state=online,offset=99,lag=0", "used_memory": "1000", "maxmemory": "0",
    "db0": "keys=3,expires=0,avg_ttl=0", "redis_version": "7.0.15", "maxmemory_policy": "noeviction",
}  # fmt: skip
REPLICA = {
    **MASTER, "role": "slave", "master_host": "10.0.0.1", "master_port": "6379", "master_link_status": "up",
    "slave_repl_offset": "90", "master_last_io_seconds_ago": "-1", "master_sync_in_progress": "0",
}  # fmt: skip
ODD = st.one_of(
    st.sampled_from(
        ["", "nan", "inf", "-1", "1e400", "1.5", "9" * 30, "9" * 6000, "-" + "9" * 19, "\x00", "\ufffd", "1_0", " 1",
         "keys", "keys=", "keys=x", "keys=-1", "a=b,c", "ip=,port=", "ip=h,port=99999999", "٣", "a\x1bb"]
    ),
    st.text(max_size=20).filter(lambda text: len(text.splitlines()) < 2),
)  # fmt: skip


def written(fields: dict[str, str]) -> bytes:
    return ("# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields.items())).encode(errors="replace")


def make_all_of(reply: object) -> None:
    """Everything that is ever made of a reply to INFO."""
    info = Info.parse(reply)
    for make in (
        lambda: read_replication(info),
        lambda: reading_of(info, 0),
        lambda: Facts.from_info("h:1", info),
        lambda: info.keys_of_databases,
        lambda: [(one.text("ip"), one.number("port")) for one in info.replicas],
    ):
        with suppress(NotUnderstood):
            make()


def test_what_a_server_says_is_read() -> None:
    info = Info.parse(written(REPLICA))
    assert reading_of(info, 3).replication.following == ("10.0.0.1", 6379)
    assert (info.keys_of_databases, info.number("loading"), info.sections) == ({0: 3}, 0, {"Server"})
    assert [one.number("port") for one in Info.parse(written(MASTER)).replicas] == [6379]
    assert issubclass(NotUnderstood, FAILURES)


def test_a_link_that_follows_the_stream_is_no_replica() -> None:
    """Else a master that had no replica would count as one that somebody has made a master."""
    link = f"ip={FOLLOWER},port=-1,port=0,state=online,offset=0,lag=0"
    info = Info.parse(written({**MASTER, "connected_slaves": "2", "slave1": link}))
    assert [one.text("ip") for one in info.replicas] == ["10.0.0.2"]
    assert info.replicas_connected == 1
    assert reading_of(info, 0).replicas == 1


@given(st.one_of(st.binary(), st.text(), st.integers(), st.none(), st.lists(st.binary()), st.floats()))
def test_any_reply(reply: object) -> None:
    with suppress(NotUnderstood):
        make_all_of(reply)


@given(
    st.sampled_from([MASTER, REPLICA]), st.dictionaries(st.sampled_from(sorted(REPLICA)), ODD, max_size=4), st.data()
)
def test_odd_fields(fields: dict[str, str], odd: dict[str, str], data: st.DataObject) -> None:
    missing = data.draw(st.sets(st.sampled_from(sorted(fields)), max_size=3))
    text = written({name: value for name, value in {**fields, **odd}.items() if name not in missing})
    cut = data.draw(st.integers(0, len(text)))
    for reply in (text, text[:cut]):
        with suppress(NotUnderstood):
            make_all_of(reply)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", "sentinel"), ("role", "1"), ("master_repl_offset", "nan"), ("master_repl_offset", "-5"),
        ("master_repl_offset", "9" * 19), ("second_repl_offset", "-2"), ("run_id", ""), ("run_id", "a\x1b[2J"),
        ("loading", "yes"), ("connected_slaves", "1.0"),
    ],
)  # fmt: skip
def test_what_no_redis_server_says_is_a_failure(field: str, value: str) -> None:
    with pytest.raises(NotUnderstood, match="INFO"):
        reading_of(Info.parse(written({**MASTER, field: value})), 0)


def test_a_run_id_has_a_length() -> None:
    assert Info({"run_id": "a" * MOST_RUN_ID}).run_id == "a" * MOST_RUN_ID
    with pytest.raises(NotUnderstood, match="run_id that no Redis server has: 'aaa"):
        _ = Info({"run_id": "a" * (MOST_RUN_ID + 1)}).run_id


def test_failures_stay_what_they_are() -> None:
    with pytest.raises(TimeoutError), understood("PING"):
        raise TimeoutError
    with pytest.raises(NotUnderstood, match="PING"), understood("PING"):
        raise KeyError
