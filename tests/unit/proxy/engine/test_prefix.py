"""The engine's own reading of where a prefix stands is that of plain Python; replies lose it where they name keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.commands import replies
from proxy.engine.backend import command
from proxy.engine.prefix import FIRST, IN_ERROR, NOTHING, STREAMS, Prefix
from proxy.engine.prefixing import real_request
from proxy.engine.refusals import crossslot
from slots import commands, prefixes
from slots.commands import Command, CommandError, KeysError
from slots.requests.commandlookup import CommandLookup

PREFIX = Prefix(b"shop:", bytes([NOTHING, FIRST, STREAMS, IN_ERROR]), lambda argv: prefixes.changed(b"shop:", argv))
LOOKUP = CommandLookup(commands.table())
TABLE = list(commands.table().values())
WORDS = b"STREAMS COUNT GROUP NOACK BLOCK STORE WEIGHTS 0 1 2 3 -1 a key {a}b".split()
ARGUMENTS = st.lists(st.sampled_from([*WORDS, b"", b"x" * 95, b"$1\r\na\r\n", b"\0\xff"]), max_size=9)


def hidden(kind: int, reply: bytes) -> bytes:
    """A reply to a command of a kind."""
    return PREFIX.hide_each(b"*1\r\n" + reply, {0: kind})[4:]


@given(st.sampled_from(TABLE), ARGUMENTS)
def test_one_owner_the_engine_puts_the_prefix_where_plain_python_does(row: Command, arguments: list[bytes]) -> None:
    argv = [*row.name.encode().split(b"|"), *arguments]
    found = real_request(LOOKUP, PREFIX, command(tuple(argv)))
    try:
        if commands.find(argv) is not row:
            return
        commands.key_positions(row, argv)
    except (CommandError, KeysError):
        return
    assert found is None or found == command(tuple(PREFIX.changed(argv)))


@pytest.mark.parametrize(
    "request_",
    [
        *(
            "GET a",
            "SET a b",
            "get a",
            "MGET a b c",
            "MSET a 1 b 2",
            "DEL a b",
            "HSET h f v",
            "PUBLISH c m",
            "LPUSH l a",
        ),
        *(
            "EVALSHA 0123 2 a b c",
            "ZUNIONSTORE d 2 a b",
            "XREAD COUNT 1 STREAMS a b 0 0",
            "BLPOP a b 0",
            "PING",
            "MULTI",
        ),
        *(
            "OBJECT ENCODING a",
            "XGROUP CREATE s g 0",
            "BITOP AND d a b",
            "SPUBLISH c m",
            "EXEC",
            "BLMOVE a b LEFT LEFT 0",
        ),
    ],
)
def test_what_applications_send_needs_no_python(request_: str) -> None:
    argv = request_.encode().split()
    assert real_request(LOOKUP, PREFIX, command(tuple(argv))) == command(tuple(PREFIX.changed(argv)))


def bulks(*names: bytes) -> bytes:
    return replies.array(map(replies.bulk, names))


@pytest.mark.parametrize("rest", [(b"value",), (b"member", b"1"), ()])
def test_the_first_element_loses_it(rest: tuple[bytes, ...]) -> None:
    assert hidden(FIRST, bulks(b"shop:a", *rest)) == bulks(b"a", *rest)
    assert hidden(FIRST, bulks(b"other", *rest)) == bulks(b"other", *rest)
    assert hidden(NOTHING, bulks(b"shop:a", *rest)) == bulks(b"shop:a", *rest)


@pytest.mark.parametrize("reply", [b"*-1\r\n", b"$-1\r\n", b"_\r\n", b"*0\r\n", b"-ERR 'shop:a'\r\n", b"+OK\r\n"])
def test_other_replies_stay_as_they_are(reply: bytes) -> None:
    for kind in (NOTHING, FIRST, STREAMS, IN_ERROR):
        assert hidden(kind, reply) == reply


def entries(*names: bytes) -> bytes:
    return replies.array([replies.array([replies.bulk(b"1-1"), bulks(b"shop:f", name)]) for name in names])


def test_streams_lose_it() -> None:
    def said(head: bytes, each: bytes, *names: bytes) -> bytes:
        return head + b"".join(each + replies.bulk(name) + entries(b"x", b"shop:y") for name in names)

    for head, each in ((b"*2\r\n", b"*2\r\n"), (b"%2\r\n", b"")):
        assert hidden(STREAMS, said(head, each, b"shop:a", b"shop:")) == said(head, each, b"a", b"")
        assert hidden(STREAMS, said(head, each, b"shop:a", b"other")) == said(head, each, b"shop:a", b"other")


def test_errors_lose_it() -> None:
    error = b"-NOGROUP No such key 'shop:a' or consumer group 'shop:g'\r\n"
    for kind in (STREAMS, IN_ERROR):
        assert hidden(kind, error) == b"-NOGROUP No such key 'a' or consumer group 'shop:g'\r\n"
    assert hidden(NOTHING, error) == error
    error = b"-NOGROUP No such consumer group 'shop:g' for key name 'shop:a'\r\n"
    assert hidden(IN_ERROR, error) == b"-NOGROUP No such consumer group 'shop:g' for key name 'a'\r\n"
    error = b"-ERR unknown command `LMPOP`"
    assert hidden(FIRST, error + b", with args beginning with: `1`, `shop:a`, `LEFT`, \r\n") == error + b"\r\n"
    said = hidden(NOTHING, crossslot(b"shop:bull:1:a", 1, b"shop:bull:1:b", 2))
    assert b"'bull:1:a' has slot 1, 'bull:1:b' 2; a hash tag in common" in said
    assert said.endswith(b"\r\n")
    assert b"shop" not in said


def test_a_transaction_loses_it_where_its_commands_name_keys() -> None:
    reply = b"*4\r\n" + bulks(b"shop:a", b"1") + bulks(b"shop:a", b"1") + b"-NOGROUP 'shop:a'\r\n:1\r\n"
    assert PREFIX.hide_each(reply, {1: FIRST, 2: IN_ERROR}) == (
        b"*4\r\n" + bulks(b"shop:a", b"1") + bulks(b"a", b"1") + b"-NOGROUP 'a'\r\n:1\r\n"
    )
    for other in (b"*-1\r\n", b"_\r\n", b"-EXECABORT\r\n"):
        assert PREFIX.hide_each(other, {0: FIRST}) == other
