"""Computing over sets in many short turns; tests/integration/worker/test_sets_over_slots.py compares the replies."""

import asyncio

import pytest

from proxy.commands.replies import array, bulk
from proxy.commands.sets import computing
from proxy.commands.sets.computing import Computation, UnexpectedReplyError
from proxy.commands.sets.request import SetRequest, understand
from proxy.commands.sets.scores import as_before_7_2
from slots import commands

COUNT = 5000
LARGE = {
    b"S": array(bulk(b"member:%d" % number) for number in range(COUNT)),
    b"Z": array(bulk(b"member:%d" % (index // 2) if index % 2 == 0 else b"1") for index in range(2 * COUNT)),
}


def computation(line: str) -> Computation:
    argv = line.encode().split()
    asked = understand(commands.find(argv), argv)
    assert isinstance(asked, SetRequest)
    return Computation(asked, (), 2, as_before_7_2)


@pytest.mark.parametrize(
    "line",
    [
        *("SUNION a b", "SINTER a b", "SDIFF a b", "SINTERCARD 2 a b"),
        *("ZUNION 2 a b WITHSCORES", "ZINTER 2 a b", "ZDIFF 2 a b", "ZINTERCARD 2 a b"),
        *("SUNIONSTORE c a b", "SINTERSTORE c a b", "SDIFFSTORE c a b"),
        *("ZUNIONSTORE c 2 a b", "ZINTERSTORE c 2 a b", "ZDIFFSTORE c 2 a b"),
    ],
)
async def test_others_have_turns_in_between(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "TURN_SECONDS", 0.0)
    large = LARGE[line[:1].encode()]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    said = {b"a": large, b"b": large}
    made = computation(line)
    reply = b""
    count = None
    if "STORE" in line:
        count, _ = await made.stored(said)
    else:
        reply = await made.reply(said)
    task.cancel()
    # One for each slice of each set, at least.
    assert turns >= 2 * COUNT // computing.AT_ONCE
    assert said == {}
    number = {"D": 0, "U": COUNT, "I": COUNT}[line[1]]
    if count is not None:
        assert count == number
    elif "CARD" in line:
        assert reply == b":%d\r\n" % number
    else:
        assert reply.startswith(b"*%d\r\n" % (number * (2 if "WITHSCORES" in line else 1)))


async def test_a_small_one_has_one_turn() -> None:
    coroutine = computation("SUNION a b").reply({b"a": array([bulk(b"x")]), b"b": array([bulk(b"x")])})
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value == b"*1\r\n$1\r\nx\r\n"


@pytest.mark.parametrize("reply", [b"+OK\r\n", b":1\r\n", b"$1\r\nx\r\n", b"*2\r\n$1\r\nx\r\n", b"$-1\r\n"])
async def test_what_is_no_set(reply: bytes) -> None:
    with pytest.raises(UnexpectedReplyError):
        await computation("SUNION a b").reply({b"a": reply, b"b": reply})


async def test_the_sets_are_taken_by_their_size() -> None:
    """Redis begins with the smallest, which decides on the last digits of a sum."""
    said = {
        b"a": array([bulk(b"m"), bulk(b"1e16"), bulk(b"x"), bulk(b"1"), bulk(b"y"), bulk(b"1")]),
        b"b": array([bulk(b"m"), bulk(b"-1e16"), bulk(b"x"), bulk(b"1")]),
        b"c": array([bulk(b"m"), bulk(b"1")]),
    }
    found = await computation("ZINTER 3 a b c WITHSCORES").reply(said)
    assert found == array([bulk(b"m"), bulk(b"0")])


async def test_what_is_stored_has_the_highest_score_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a server's own snapshots: so it finds the place of each at once."""
    monkeypatch.setattr(computing, "AT_ONCE", 3)
    pairs = [(b"%d" % number, b"%d" % (number * 7 % 10)) for number in range(10)]
    said = {key: array(bulk(word) for pair in pairs for word in pair) for key in (b"a", b"b")}
    count, value = await computation("ZUNIONSTORE c 2 a b WEIGHTS 1 0").stored(said)
    written = [b"\x01%b\x03%b.0" % pair for pair in sorted(pairs, key=lambda pair: pair[1], reverse=True)]
    assert (count, value[:-10]) == (10, b"\x03\x0a" + b"".join(written))
