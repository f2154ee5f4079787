"""The messages that a server pushes, as far as they are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.commands.pubsub import messages
from proxy.commands.pubsub.messages import Kind
from proxy.engine.backend import command
from slots.requests.parsing import find_requests


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


@given(name=st.binary(), channel=st.binary(), data=st.binary(max_size=2000))
def test_messages_of_any_bytes(name: bytes, channel: bytes, data: bytes) -> None:
    for kind, word in ((Kind.CHANNEL, b"message"), (Kind.SHARD, b"smessage")):
        rest = b"3\r\n" + bulk(word) + bulk(channel) + bulk(data)
        message = messages.read(b">" + rest)
        assert message is not None
        assert (message.kind, message.name, message.channel) == (kind, channel, channel)
        assert (message.resp3, message.resp2) == (b">" + rest, b"*" + rest)
    rest = b"4\r\n" + bulk(b"pmessage") + bulk(name) + bulk(channel) + bulk(data)
    message = messages.read(b">" + rest)
    assert message is not None
    assert (message.kind, message.name, message.channel) == (Kind.PATTERN, name, channel)
    assert (message.resp3, message.resp2) == (b">" + rest, b"*" + rest)


@pytest.mark.parametrize(
    "push",
    [
        b">3\r\n$9\r\nsubscribe\r\n$7\r\nmessage\r\n:1\r\n",
        b">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n",
        b">0\r\n",
    ],
)
def test_other_pushes_are_no_messages(push: bytes) -> None:
    assert messages.read(push) is None


@given(st.lists(st.binary(max_size=5), max_size=20), st.integers(1, 7))
def test_requests_hold_all_names_and_never_too_many(names: list[bytes], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "NAMES_AT_ONCE", most)
        made = list(messages.requests("psubscribe", names))
    found, _, error = find_requests(b"".join(made))
    assert error is None
    assert all(len(argv) <= most + 1 and argv[0] == b"PSUBSCRIBE" for argv in found)
    assert [name for argv in found for name in argv[1:]] == names
    if not names:
        assert made == []
    elif len(names) <= most:
        assert made == [command(("PSUBSCRIBE", *names))]


@pytest.mark.parametrize(
    ("channel", "data", "event"),
    [
        (b"__keyevent@0__:set", b"a:key", (0, b"a:key")),
        (b"__keyspace@15__:a__:key", b"set", (15, b"a__:key")),
        (b"__keyspace@0__:", b"set", (0, b"")),
        (b"__keyspace@x__:a", b"set", None),
        (b"__keyspace@99999999999__:a", b"set", None),
        (b"__key@0__:a", b"set", None),
        (b"news", b"__keyevent@0__:set", None),
        (b"", b"", None),
    ],
)
def test_an_event_names_its_database_and_key(channel: bytes, data: bytes, event: tuple[int, bytes] | None) -> None:
    direct = messages.read(b">3\r\n" + bulk(b"message") + bulk(channel) + bulk(data))
    pattern = messages.read(b">4\r\n" + bulk(b"pmessage") + bulk(b"*") + bulk(channel) + bulk(data))
    assert direct is not None
    assert pattern is not None
    assert direct.event == pattern.event == event
