"""XREAD and XREADGROUP: what blocks, what the errors are, and what ``$`` stands for."""

import pytest

from proxy.commands.blocking import acknowledged
from proxy.commands.blocking.streamreads import StreamRead, last_generated, parse
from proxy.commands.blocking.streamsoverslots import joined
from slots.keys import KeysError


def words(text: str) -> list[bytes]:
    return text.encode().split()


@pytest.mark.parametrize(
    ("text", "block", "keys"),
    [
        ("XREAD STREAMS a 0", None, ["a"]),
        ("xread block 0 streams a b 0 $", 2, ["a", "b"]),
        ("XREAD COUNT 2 BLOCK 5 STREAMS a $", 4, ["a"]),
        ("XREAD BLOCK 5 BLOCK 6 STREAMS a $", 4, ["a"]),
        ("XREAD STREAMS BLOCK 0", None, ["BLOCK"]),
        ("XREAD STREAMS STREAMS BLOCK 1 0", None, ["STREAMS", "BLOCK"]),
        ("XREADGROUP GROUP BLOCK STREAMS STREAMS a >", None, ["a"]),
        ("XREADGROUP NOACK GROUP g c BLOCK 1 STREAMS a >", 6, ["a"]),
        ("XREADGROUP GROUP g c CLAIM STREAMS BLOCK 1 STREAMS a >", 7, ["a"]),
    ],
)
def test_what_blocks_and_the_keys(text: str, block: int | None, keys: list[str]) -> None:
    argv = words(text)
    how = parse(argv)
    assert how.block == block
    assert [argv[place].decode() for place in how.keys] == keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("XREAD BLOCK x FOO a 0", "ERR timeout is not an integer or out of range"),
        ("XREAD BLOCK -1 STREAMS a 0", "ERR timeout is negative"),
        ("XREAD COUNT x STREAMS a 0", "ERR value is not an integer or out of range"),
        ("XREAD FOO BLOCK x 1", "ERR syntax error"),
        ("XREAD STREAMS a 0 b", "ERR Unbalanced XREAD list of streams"),
        ("XREAD GROUP g c STREAMS a 0", "ERR The GROUP option is only supported by XREADGROUP"),
        ("XREAD NOACK STREAMS a 0", "ERR The NOACK option is only supported by XREADGROUP"),
        ("XREAD BLOCK 1 GROUP g", "ERR syntax error"),
        ("XREAD BLOCK 1 COUNT", "ERR syntax error"),
        ("XREAD BLOCK 1 CLAIM 5 STREAMS a 0", "ERR syntax error"),
        ("XREAD BLOCK 1 STREAMS", "ERR syntax error"),
        ("XREADGROUP BLOCK 1 NOACK STREAMS a >", "ERR Missing GROUP option for XREADGROUP"),
    ],
)
def test_errors_in_the_order_in_which_redis_finds_them(text: str, message: str) -> None:
    with pytest.raises(KeysError) as raised:
        parse(words(text))
    assert str(raised.value).startswith(message)


def test_what_stands_for_the_newest_entry() -> None:
    argv = words("XREAD BLOCK 0 STREAMS $ b c $ 5-1 +")
    how = parse(argv)
    assert how == StreamRead(2, range(4, 7))
    assert how.newest(argv) == {7: b"$", 9: b"c"}
    # The server has to say what it means in a group.
    argv = words("XREADGROUP GROUP g c BLOCK 0 STREAMS a $")
    assert parse(argv).newest(argv) == {}


def test_one_of_the_streams_alone() -> None:
    argv = words("xread count 3 BLOCK 0 COUNT 5 streams a b 7-1 $")
    how = parse(argv)
    assert [b" ".join(how.of_one(argv, key)) for key in how.keys] == [
        b"XREAD COUNT 5 STREAMS a 7-1",
        b"XREAD COUNT 5 STREAMS b $",
    ]
    argv = words("XREAD STREAMS count 0")
    assert parse(argv).of_one(argv, 2) == argv


def test_replies_about_one_stream_each_are_joined() -> None:
    one, two = (
        b"*2\r\n$1\r\n%b\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n" % key for key in (b"a", b"b")
    )
    assert joined([b"*-1\r\n", b"*1\r\n" + one, b"*-1\r\n", b"*1\r\n" + two], 2) == b"*2\r\n" + one + two
    assert joined([b"%1\r\n" + one[4:], b"_\r\n"], 3) == b"%1\r\n" + one[4:]
    assert joined([b"_\r\n", b"_\r\n"], 3) is None
    assert joined([b"*1\r\n" + one, b"-WRONGTYPE no\r\n", b"-ERR other\r\n"], 2) == b"-WRONGTYPE no\r\n"


@pytest.mark.parametrize(
    ("reply", "last"),
    [
        (b"-ERR no such key\r\n", b"0-0"),
        (b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", None),
        (b"-ERR server 127.0.0.1:1 closed the connection\r\n", None),
        (b"*4\r\n$6\r\nlength\r\n:0\r\n$17\r\nlast-generated-id\r\n$3\r\n7-2\r\n", b"7-2"),
        (b"%2\r\n$6\r\nlength\r\n:0\r\n$17\r\nlast-generated-id\r\n$3\r\n7-2\r\n", b"7-2"),
        (b"*2\r\n$6\r\nlength\r\n:0\r\n", None),
    ],
)
def test_last_generated_id(reply: bytes, last: bytes | None) -> None:
    assert last_generated(reply) == last


def test_the_smallest_count_is_the_proxys() -> None:
    assert acknowledged.smallest([b":2\r\n", b":0\r\n", b":1\r\n"]) == b":0\r\n"
    assert (
        acknowledged.smallest([b"*2\r\n:1\r\n:2\r\n", b"*2\r\n:0\r\n:3\r\n", b"*2\r\n:1\r\n:1\r\n"])
        == b"*2\r\n:0\r\n:1\r\n"
    )
