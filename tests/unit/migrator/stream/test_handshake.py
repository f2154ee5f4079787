"""What a source may answer, and what becomes of other answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from migrator.errors import SourceUnavailable
from migrator.stream import handshake, sourceconnection
from migrator.stream.errors import CountsFollowers, FollowRefused, HistoryChanged, NotFollowable, SourceReplaced
from migrator.stream.handshake import Form, Origin
from migrator.stream.sourceconnection import SourceConnection
from slots.access import ServerAccess

ID = "0123456789" * 4
MARK = b"mark567890" * 4


@contextmanager
def answered(*parts: bytes) -> Iterator[SourceConnection]:
    """A connection over which all of this comes, and then its end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                for part in parts:
                    peer.sendall(part)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        connection = SourceConnection(f"127.0.0.1:{listening.getsockname()[1]}", ServerAccess())
        try:
            yield connection
        finally:
            connection.close()
            thread.join(30)


def info(*lines: str) -> bytes:
    """The answers to CLIENT SETNAME, INFO and what follows."""
    text = "\r\n".join(("# Server", f"run_id:{ID}", *lines)).encode()
    return b"+OK\r\n$%d\r\n%s\r\n" % (len(text), text) + b"+OK\r\n" * 3


def test_a_snapshot_begins_behind_signs_of_life() -> None:
    with answered(b"\n\n+FULL", b"RESYNC %s 17\r\n\n\n" % ID.encode(), b"\n$3\r\nabcmore") as connection:
        assert handshake.ask_for_snapshot(connection, "run") == Origin(ID, 17, "run")
        assert handshake.snapshot_form(connection) == Form(3, b"")
        buffer = memoryview(bytearray(3))
        assert connection.receive_into(buffer) == 3
        assert bytes(buffer) == b"abc"
        buffer = memoryview(bytearray(10))
        assert bytes(buffer[: connection.receive_into(buffer)]) == b"more"
        assert connection.receive_into(buffer) == 0


def test_a_snapshot_of_unknown_size() -> None:
    with answered(b"\n$EOF:" + MARK + b"\r\nREDIS") as connection:
        assert handshake.snapshot_form(connection) == Form(None, MARK)


@pytest.mark.parametrize("line", [b"$0", b"$-1", b"$EOF:short", b"$12a", b"+OK", b"HTTP/1.1 400", b"x" * 100_000, b""])
def test_other_forms_are_not_understood(line: bytes) -> None:
    with answered(line + b"\r\n") as connection, pytest.raises(SourceUnavailable):
        handshake.snapshot_form(connection)


@pytest.mark.parametrize(
    "line", [b"+FULLRESYNC abc 1", b"+FULLRESYNC %s -1", b"+FULLRESYNC %s 9999999999999999999", b"+CONTINUE", b"+OK"]
)
def test_other_beginnings_are_not_understood(line: bytes) -> None:
    said = line.replace(b"%s", ID.encode()) + b"\r\n"
    with answered(said) as connection, pytest.raises(SourceUnavailable, match="as no Redis server does"):
        handshake.ask_for_snapshot(connection, "run")


@pytest.mark.parametrize(
    ("line", "found"),
    [(b"+CONTINUE", True), (b"+CONTINUE %s", True), (b"+FULLRESYNC %s 20", False)],
)
def test_how_a_stream_goes_on(line: bytes, found: bool) -> None:
    with answered(line.replace(b"%s", ID.encode()) + b"\r\n") as connection:
        assert handshake.ask_to_go_on(connection, ID, 5) == found


def test_level_a_stream_with_another_id_is_another_one() -> None:
    other = b"b" * 40
    with answered(b"+CONTINUE " + other + b"\r\n") as connection, pytest.raises(HistoryChanged):
        handshake.ask_to_go_on(connection, ID, 5)
    with answered(b"+FULLRESYNC " + other + b" 17\r\n") as connection, pytest.raises(HistoryChanged):
        handshake.ask_for_snapshot(connection, "run", ID)


def test_an_error_is_a_refusal() -> None:
    with answered(b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n") as connection:
        with pytest.raises(FollowRefused, match="replica without a link") as refused:
            handshake.ask_to_go_on(connection, ID, 5)
        assert refused.value.passing


def test_a_source_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sourceconnection, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(handshake, "SILENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = SourceConnection(f"127.0.0.1:{listening.getsockname()[1]}", ServerAccess())
        with pytest.raises(SourceUnavailable, match="in time"):
            handshake.ask_for_snapshot(connection, "run")
        connection.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (info("role:master", "loading:1"), NotFollowable),
        (info("role:slave", "master_link_status:up"), HistoryChanged),
        (info("role:master", "min_slaves_good_slaves:0"), CountsFollowers),
        (info("role:other"), SourceUnavailable),
        (b"+OK\r\n$99999999\r\n", SourceUnavailable),
        (b"+OK\r\n*1\r\n", SourceUnavailable),
        (b"+OK\r\n", SourceUnavailable),
        (b"+OK\r\n$10\r\nabc", SourceUnavailable),
        (info("role:master")[:-15] + b"-ERR Unrecognized REPLCONF option: capa\r\n", FollowRefused),
    ],
)
def test_servers_that_cannot_be_followed(said: bytes, error: type[Exception]) -> None:
    with answered(said) as connection, pytest.raises(error):
        handshake.introduce(connection, ServerAccess(), "name", "")


def test_the_run_id_is_looked_at_first() -> None:
    with answered(info("role:master", "loading:1")) as connection, pytest.raises(SourceReplaced):
        handshake.introduce(connection, ServerAccess(), "name", "another")
    said = info("role:slave", "master_link_status:up", f"master_replid:{ID}", "min_slaves_good_slaves:0")
    with answered(said) as connection:
        assert handshake.introduce(connection, ServerAccess(), "name", ID, ID) == ID


def test_a_valkey_that_does_not_take_a_version_is_followed() -> None:
    said = info("role:master", "valkey_version:7.2.5") + b"-ERR Unrecognized REPLCONF option: version\r\n+FULLRESYNC "
    with answered(said.replace(b"+OK\r\n-", b"-") + ID.encode() + b" 3\r\n") as connection:
        run_id = handshake.introduce(connection, ServerAccess(), "name", "")
        assert handshake.ask_for_snapshot(connection, run_id) == Origin(ID, 3, ID)
