"""INFO REPLICATION, as masters and replicas answer it."""

import pytest

from proxy.worker.replicas.replication import QUESTION, Replication, read

REPLICA = {
    "role": "slave",
    "master_host": "127.0.0.1",
    "master_link_status": "up",
    "master_last_io_seconds_ago": "3",
    "master_sync_in_progress": "0",
    "slave_read_repl_offset": "900",
    "slave_repl_offset": "800",
    "master_replid": "abc",
    "master_repl_offset": "900",
}


def reply(fields: dict[str, str]) -> bytes:
    text = "# Replication\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields.items())
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


def test_a_replica_counts_what_it_has_run() -> None:
    assert read(reply(REPLICA)) == Replication(False, "abc", 800, link_up=True, silent_seconds=3)


@pytest.mark.parametrize("field", [{"master_link_status": "down"}, {"master_sync_in_progress": "1"}])
def test_a_replica_whose_link_is_not_up(field: dict[str, str]) -> None:
    said = read(reply({**REPLICA, **field}))
    assert said is not None
    assert not said.link_up


@pytest.mark.parametrize("name", ["role", "master_replid", "slave_repl_offset", "master_link_status"])
def test_nothing_is_made_up_where_something_is_missing(name: str) -> None:
    assert read(reply({key: value for key, value in REPLICA.items() if key != name})) is None


@pytest.mark.parametrize("answer", [b"-ERR server x closed the connection\r\n", b"$-1\r\n", b"$0\r\n\r\n"])
def test_no_answer_says_nothing(answer: bytes) -> None:
    assert read(answer) is None


def test_the_question() -> None:
    assert QUESTION == b"*2\r\n$4\r\nINFO\r\n$11\r\nREPLICATION\r\n"
