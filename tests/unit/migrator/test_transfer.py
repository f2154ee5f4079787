"""A server that answers what no Redis server does is a failure that names it. No key counts as moved by such an
answer."""

from typing import Any

import hiredis
import pytest

from migrator.claims import claim, is_held
from migrator.connection import Connection, Timeouts, pack
from migrator.errors import SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.options import Confirmation, MoveOptions
from migrator.pieces import finishing
from migrator.pieces.copying import Copied
from migrator.steps import Permit
from migrator.transfer import Transfer
from slots import moving, permits
from slots.beginning import Beginning
from slots.moving import Taken
from slots.replies import NotUnderstood

KEYS = [b"a", b"b", b"c"]
ODD: list[Any] = [None, 5, b"5", b"held?", [], [1], [[]], [1, 2, 3], [b"x"] * 4, [b"x"] * 6, [1, [], {}, []], {}]


class Odd(Connection):
    """A connection to a server that gives this reply to whatever it is asked."""

    def __init__(self, reply: Any, at_target: bool = False) -> None:
        errors = (TargetUnavailable, TargetRefused) if at_target else (SourceUnavailable, SourceRefused)
        super().__init__("odd:1", "test", *errors, Timeouts())
        self.reply = reply

    async def send(self, commands: bytes, replies: int, limit: float | None = None, *_: object) -> list[Any]:
        return [self.reply] * replies


class Steps(Odd):
    """Gives these replies, one after the other, and no more."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(None)
        self.replies = replies

    async def send(self, commands: bytes, replies: int, limit: float | None = None, *_: object) -> list[Any]:
        return [self.replies.pop(0)]


def transfer(source: Connection, target: Connection) -> Transfer:
    return Transfer(source, target, Permit(source, target, "odd:1", Beginning()), MoveOptions(), 1.0)


@pytest.mark.parametrize("reply", ODD)
async def test_claims(reply: Any) -> None:
    with pytest.raises(SourceUnavailable, match="odd:1"):
        await claim(Odd(reply), "permit", 0, b"a", "mover")
    if reply != 5:
        with pytest.raises(SourceUnavailable, match="odd:1"):
            await is_held(Odd(reply), "permit", 0, b"a", "mover")
    with pytest.raises(SourceUnavailable, match="odd:1"):
        await transfer(Odd(reply), Odd(None, at_target=True))._drop("permit", 0, [b"a"])


@pytest.mark.parametrize(
    "reply",
    [
        *ODD,
        [4, 0, [], [], [], [], [], [], []],
        [3, 0, [], [], [4], [b"payload"], [-1], [], []],
        [3, 0, [0], [], [], [], [], [], []],
        [3, 0, [], [0], [], [], [], [], []],
        [3, 0, [4], [], [], [], [], [], []],
        [3, 0, [], [], [1, 1], [b"payload"] * 2, [-1, -1], [], []],
        [3, 0, [1], [1], [], [], [], [], []],
        [3, 0, [], [1], [1], [b"payload"], [-1], [], []],
        [3, 0, [], [], [1, 2], [b"payload"], [-1, -1], [], []],
        [3, 0, [], [], [1], [b"payload"], [], [], []],
        [3, 0, [], [], [1], [None], [-1], [], []],
        [3, 0, [], [], [1], [b"payload"], [b"x"], [], []],
        [3, 0, [], [], [1], [b"payload"], [-2], [], []],
        [3, -1, [], [], [], [], [], [], []],
        [2, 0, [], [], [3], [b"payload"], [-1], [], []],
        [3, 0, [], [], [1], [b"payload"], [-1], [1], [b"ERR"]],
        [3, 0, [], [], [], [], [], [1], []],
        [2, 0, [], [], [], [], [], [3], [b"ERR"]],
    ],
)
def test_absent_first_what_was_not_asked_for_was_not_taken(reply: Any) -> None:
    with pytest.raises(NotUnderstood):
        Taken.of(reply, KEYS)
    found = Taken.of([3, 7, [], [], [1, 3], [b"x", b"y"], [-1, 5], [2], [b"ERR"]], KEYS)
    assert found == Taken(3, 7, (), (), (0, 2), [b"a", b"c"], [b"x", b"y"], [-1, 5], {1: b"ERR"})


@pytest.mark.parametrize(
    "reply",
    [*ODD, [4, []], [[4], [b"OOM"]], [[0], [b"OOM"]], [[1], []], [[1], [b""]], [[1], [None]], [[1, 1], [b"OOM"] * 2]],
)
def test_what_was_not_asked_for_was_not_placed(reply: Any) -> None:
    with pytest.raises(NotUnderstood):
        moving.refused(reply, 3)
    assert moving.refused([[], []], 3) == {}
    assert moving.refused([[3, 1], [b"OOM", b"ERR"]], 3) == {2: b"OOM", 0: b"ERR"}


@pytest.mark.parametrize("reply", [*ODD, [4, 0], [-1, 0], [b"3", 3]])
def test_what_was_not_asked_for_was_not_dropped(reply: Any) -> None:
    with pytest.raises(NotUnderstood):
        moving.dropped(reply, 3)
    assert moving.dropped([2, 1], 3) == 2


@pytest.mark.parametrize("reply", ODD)
async def test_small_keys(reply: Any) -> None:
    """given a source, or a target, that answers like that, nothing is dropped."""
    with pytest.raises((SourceUnavailable, TargetUnavailable), match="odd:1"):
        await transfer(Odd(reply), Odd(None, at_target=True)).move(0, KEYS, 1000)
    taken = [3, 7, [], [], [1], [b"payload"], [-1], [], []]
    source = Steps([taken])
    with pytest.raises(TargetUnavailable, match="odd:1"):
        await transfer(source, Odd(reply, at_target=True)).move(0, KEYS, 1000)
    assert not source.replies, "it was asked for no more"


@pytest.mark.parametrize("reply", ODD)
async def test_what_is_not_said_to_be_done_is_not_done(reply: Any) -> None:
    copied = Copied(b"hash", "HLEN", 1, 1, -1, 1, 1, 0.0, 0.0)
    with pytest.raises(TargetUnavailable, match="odd:1"):
        await finishing.finish(Odd(reply, at_target=True), "permit", 0, b"a", b"t", copied, keeps_target=False)
    if reply != 5:
        with pytest.raises(TargetUnavailable, match="odd:1"):
            await Confirmation(1).wait(Odd(reply, at_target=True), 0)


async def test_replicas_get_time_for_all_that_is_written_before() -> None:
    """given steps that write side by side, each waits for the bytes of all."""
    confirmation = Confirmation(1)
    waited: list[tuple[bytes, float | None]] = []

    class Asked(Odd):
        async def send(self, commands: bytes, replies: int, limit: float | None = None, *_: object) -> list[Any]:
            waited.append((commands, limit))
            if len(waited) == 1:
                await confirmation.wait(self, 4 * 1024 * 1024)
            return [self.reply]

    await confirmation.wait(Asked(1, at_target=True), 8 * 1024 * 1024)

    assert [commands for commands, _ in waited] == [pack("WAIT", 1, 4000), pack("WAIT", 1, 5000)]
    assert [limit for _, limit in waited] == [4 + Timeouts().reply_seconds, 5 + Timeouts().reply_seconds]
    assert confirmation.seconds(0) == 2
    assert Confirmation(0).seconds(8 * 1024 * 1024) == 0


@pytest.mark.parametrize("reply", ODD)
async def test_permits(reply: Any) -> None:
    with pytest.raises(permits.NoPermit, match=r"^t:1: its? answers?"):
        await permits.renew(Odd(reply), Odd(reply), "t:1")
    with pytest.raises(permits.NoPermit, match=r"the source of keys for t:1: its? answers?"):
        await permits.renew(Odd(reply), Odd([b"a" * 40, b""]), "t:1")
    with pytest.raises(permits.NoPermit, match="look at what is running there"):
        await permits._set(Odd(reply), "permit", "", "permit", "a" * 40, False)
    if reply != []:
        with pytest.raises(permits.NoPermit, match="look at what is running there"):
            await permits.flushes_over(Odd([]), Odd(5))


async def test_an_error_is_what_it_is() -> None:
    error = hiredis.ReplyError("NOTPERMITTED really")
    assert await claim(Odd(error), "permit", 0, b"a", "mover") is None
    assert await is_held(Odd(error), "permit", 0, b"a", "mover") is None
    assert await transfer(Odd(error), Odd(None, at_target=True))._drop("permit", 0, [b"a"]) is None
    with pytest.raises(SourceRefused, match="ACL"):
        await claim(Odd(hiredis.ReplyError("NOPERM no")), "permit", 0, b"a", "mover")
