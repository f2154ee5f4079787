"""A server that answers what no Redis server does is a failure that names it: nothing is taken for moved by that."""

from typing import Any

import hiredis
import pytest

from migrator import claims
from migrator.claims import Claims
from migrator.connection import Connection, Timeouts
from migrator.errors import SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.manner import Confirmation
from migrator.pieces import finishing
from migrator.pieces.copying import Copied
from slots import moving
from slots.moving import Moved
from slots.replies import NotUnderstood

KEYS = [b"a", b"b", b"c"]
ODD: list[Any] = [None, 5, b"5", b"held?", [], [1], [[]], [1, 2, 3], [b"x"] * 4, [b"x"] * 6, [1, [], {}, []], {}]


class Odd(Connection):
    """A connection to a server that gives this reply to whatever it is asked."""

    def __init__(self, reply: Any, at_target: bool = False) -> None:
        errors = (TargetUnavailable, TargetRefused) if at_target else (SourceUnavailable, SourceRefused)
        super().__init__("odd:1", "test", *errors, Timeouts())
        self.reply = reply

    async def send(self, commands: bytes, replies: int, limit: float | None = None) -> list[Any]:
        return [self.reply] * replies


@pytest.mark.parametrize("reply", ODD)
async def test_claims(reply: Any) -> None:
    asked = Claims(Odd(reply))
    with pytest.raises(SourceUnavailable, match="odd:1"):
        await asked.take(0, b"a", "permit")
    with pytest.raises(SourceUnavailable, match="odd:1"):
        await asked.take_and_dump(0, KEYS, "permit", 1, 1, 1)
    if reply != 5:
        with pytest.raises(SourceUnavailable, match="odd:1"):
            await asked.hold(0, *KEYS)
        with pytest.raises(SourceUnavailable, match="odd:1"):
            await asked.release(0, *KEYS, delete=True)


@pytest.mark.parametrize(
    "reply",
    [
        [4, 0, [], [], [], []],
        [3, 0, [], [4], [b"payload"], [-1]],
        [3, 0, [0], [], [], []],
        [3, 0, [], [1, 1], [b"payload"] * 2, [-1, -1]],
        [3, 0, [], [1, 2], [b"payload"], [-1, -1]],
        [3, 0, [], [1], [None], [-1]],
        [3, 0, [], [1], [b"payload"], [b"x"]],
        [3, -1, [], [], [], []],
    ],
)
def test_what_is_serialized_is_of_the_keys_that_were_asked_for(reply: Any) -> None:
    with pytest.raises(NotUnderstood):
        claims._dumped(reply, KEYS)
    assert claims._dumped([3, 7, [2], [1, 3], [b"x", b"y"], [-1, 5]], KEYS).keys == [b"a", b"c"]


@pytest.mark.parametrize(
    "reply", [*ODD, [4, 0, 0, []], [2, 3, 0, []], [3, 0, 0, [4]], [3, 0, 0, [0]], [3, 3, 0, [1]], [3, 0, 0, [1, 1]]]
)
def test_absent_first_what_was_not_asked_for_was_not_moved(reply: Any) -> None:
    with pytest.raises(NotUnderstood):
        Moved.of(reply, 3)
    assert Moved.of([3, 1, 9, [2]], 3) == Moved(3, 1, 9, (1,))


@pytest.mark.parametrize("reply", ODD)
async def test_what_is_not_said_to_be_done_is_not_done(reply: Any) -> None:
    with pytest.raises(TargetUnavailable, match="odd:1"):
        await finishing.finish(
            Odd(reply, at_target=True), b"a", b"t", Copied(b"hash", "HLEN", 1, 1, -1, 1, 1, 0.0, 0.0)
        )
    if reply != 5:
        with pytest.raises(TargetUnavailable, match="odd:1"):
            await Confirmation(1).wait(Odd(reply, at_target=True))


@pytest.mark.parametrize("reply", ODD)
async def test_settling(reply: Any) -> None:
    with pytest.raises(moving.NotSettled, match="look at what is running there"):
        await moving.end_migrations(Odd(reply))
    if reply != [1, 2, 3]:
        with pytest.raises(moving.NotSettled, match="the source of keys for t:1: it answers"):
            await moving.settle(Odd(reply), Odd(reply), "t:1")


async def test_an_error_is_what_it_is() -> None:
    error = hiredis.ReplyError("UNSETTLED really")
    assert await Claims(Odd(error)).take_and_dump(0, KEYS, "permit", 1, 1, 1) is None
