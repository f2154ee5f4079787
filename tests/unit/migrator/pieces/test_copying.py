"""What not every server does: deadlines of a hash's fields, types no commands can take apart, clocks that jump."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import CannotBeCut, CopyLost, SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.options import Confirmation
from migrator.pace import Pace
from migrator.pieces import cutter
from migrator.pieces.copying import copy
from migrator.pieces.cutter import PieceCutter
from migrator.pieces.deadlines import read_deadline
from migrator.pieces.piece import timed
from slots.access import ServerAccess

Start = Callable[[Callable[[list[bytes]], bytes | None]], Awaitable[Any]]
DEADLINE = 2_000_000_000_123


def packed(reply: object) -> bytes:
    """A reply as it goes over the wire."""
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, str):
        return b"+" + reply.encode() + b"\r\n"
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if reply is None:
        return b"$-1\r\n"
    assert isinstance(reply, list)
    return b"*%d\r\n" % len(reply) + b"".join(map(packed, reply))


class Newer:
    """As much of a server whose hash fields can have deadlines as a copy needs.

    Attributes:
        fields: value and deadline of each field.
        gone: fields that go between the look at the fields and the look at their deadlines.
        known: whether it knows deadlines of fields.
    """

    def __init__(self, fields: dict[bytes, tuple[bytes, int]], gone: Sequence[bytes] = (), known: bool = True) -> None:
        self.fields = fields
        self.gone = gone
        self.known = known
        self.queue: list[list[bytes]] | None = None

    def __call__(self, command: list[bytes]) -> bytes:
        match command[0]:
            case b"MULTI":
                self.queue = []
                return packed("OK")
            case b"EXEC":
                queue, self.queue = self.queue or [], None
                return packed([self.reply(queued) for queued in queue])
        if self.queue is not None:
            self.queue.append(command)
            return packed("QUEUED")
        return packed(self.reply(command))

    def reply(self, command: list[bytes]) -> object:
        match command:
            case [b"TIME"]:
                return [b"1000", b"5"]
            case [b"TYPE", _]:
                return "hash" if self.fields else "none"
            case [b"HLEN", _]:
                return len(self.fields)
            case [b"EXISTS", _]:
                return int(bool(self.fields))
            case [b"MEMORY", *_]:
                return 1000
            case [b"PEXPIRETIME", _]:
                return -1
            case [b"COMMAND", _, name]:
                return [[name, -5] if self.known else None]
            case [b"HSCAN", *_]:
                flat = [b"0", [item for field, (value, _) in self.fields.items() for item in (field, value)]]
                for field in self.gone:
                    del self.fields[field]
                return flat
            case [b"HPEXPIRETIME", _, b"FIELDS", _, *names]:
                return [self.fields[name][1] if name in self.fields else -2 for name in names]
            case [b"HSET", _, *pairs]:
                self.fields |= {field: (value, -1) for field, value in zip(pairs[::2], pairs[1::2], strict=True)}
                return len(pairs) // 2
            case [b"HPEXPIREAT", _, deadline, b"FIELDS", count, *names]:
                assert int(count) == len(names)
                for name in names:
                    if int(deadline) < DEADLINE:
                        del self.fields[name]
                    else:
                        self.fields[name] = (self.fields[name][0], int(deadline))
                return [1] * len(names)
            case [b"UNLINK", _]:
                self.fields.clear()
                return 1
            case [b"CLIENT" | b"PEXPIRE", *_]:
                return 1
        raise AssertionError(command)


async def connect(start: Start, server: Callable[[list[bytes]], bytes | None], *, target: bool = False) -> Connection:
    scripted = await start(server)
    return await Connection.open(
        scripted.address,
        name="a-name",
        access=ServerAccess(),
        unavailable=TargetUnavailable if target else SourceUnavailable,
        refused=TargetRefused if target else SourceRefused,
        timeouts=Timeouts(reply_seconds=5),
    )


def many(count: int = 100) -> dict[bytes, tuple[bytes, int]]:
    """Fields: every third one has no deadline, and the others have one of two deadlines."""
    return {b"%d" % number: (b"value", (-1, DEADLINE, DEADLINE + 1)[number % 3]) for number in range(count)}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter, "PIECE_ELEMENTS", 10)


async def copied(source: Connection, target: Connection) -> Any:
    return await copy(source, target, b"key", b"temporary", PieceCutter(), Pace(), Confirmation())


async def test_deadlines_of_fields_are_kept(scripted: Start) -> None:
    ours, theirs = Newer(many()), Newer({})

    await copied(await connect(scripted, ours), await connect(scripted, theirs, target=True))

    assert theirs.fields == many()


async def test_fields_that_go_meanwhile_are_left_out(scripted: Start) -> None:
    ours, theirs = Newer(many(), (b"1", b"2", b"4")), Newer({})

    found = await copied(await connect(scripted, ours), await connect(scripted, theirs, target=True))

    assert theirs.fields == {field: value for field, value in many().items() if field not in (b"1", b"2", b"4")}
    assert found.least <= 97 <= found.most
    assert found.least >= 33  # those without a deadline have to be there


async def test_fields_may_go_at_the_target_before_they_go_at_the_source(scripted: Start) -> None:
    """given a source that still counts fields whose deadline is over, the target has dropped them."""
    ours, theirs = Newer(many() | {b"over": (b"value", 5), b"over too": (b"value", 6)}), Newer({})

    await copied(await connect(scripted, ours), await connect(scripted, theirs, target=True))

    assert theirs.fields == many()


async def test_a_copy_that_lacks_a_field_without_a_deadline_is_not_whole(scripted: Start) -> None:
    class Forgetful(Newer):
        def reply(self, command: list[bytes]) -> object:
            if command[0] == b"HLEN":
                return 33
            return super().reply(command)

    fields = {b"%d" % number: (b"value", DEADLINE if number < 3 else -1) for number in range(100)}
    with pytest.raises(CopyLost):
        await copied(await connect(scripted, Newer(fields)), await connect(scripted, Forgetful({}), target=True))


async def test_a_target_that_knows_no_deadlines_gets_no_hash_that_has_some(scripted: Start) -> None:
    target = Newer({}, known=False)
    with pytest.raises(CannotBeCut, match="upgrade it"):
        await copied(await connect(scripted, Newer(many())), await connect(scripted, target, target=True))
    assert not target.fields

    plain = {b"%d" % number: (b"value", -1) for number in range(100)}
    await copied(await connect(scripted, Newer(dict(plain))), await connect(scripted, target, target=True))
    assert target.fields == plain


async def test_a_type_of_a_module_cannot_be_cut(scripted: Start) -> None:
    server = await scripted(lambda command: b"+ReJSON-RL\r\n" if command[0] == b"TYPE" else b"+OK\r\n")
    source = await Connection.open(
        server.address,
        name="a-name",
        access=ServerAccess(),
        unavailable=SourceUnavailable,
        refused=SourceRefused,
        timeouts=Timeouts(),
    )
    with pytest.raises(CannotBeCut, match="is a ReJSON-RL"):
        await copied(source, source)
    assert [command[0] for command in server.commands] == [b"CLIENT", b"TYPE"]


@pytest.mark.parametrize(
    ("clocks", "left", "deadline"),
    [
        ([5000, 5000], 1000, 6000),
        # The first look falls into a change of the millisecond; the second does not.
        ([5000, 5001, 5002, 5002], 1000, 6002),
        ([5000, 5000], -1, -1),
        ([5000, 5001], -2, None),
    ],
)
async def test_deadlines_of_keys_at_older_servers(
    scripted: Start, clocks: list[int], left: int, deadline: int | None
) -> None:
    told = iter(clocks)

    def answer(command: list[bytes]) -> bytes:
        match command[0]:
            case b"PEXPIRETIME":
                return b"-ERR unknown command `PEXPIRETIME`, with args beginning with: `key`, \r\n"
            case b"TIME":
                now = next(told)
                return packed([b"%d" % (now // 1000), b"%d" % (now % 1000 * 1000 + 999)])
            case b"PTTL":
                return packed(left)
        return b"+OK\r\n"

    assert await read_deadline(await connect(scripted, answer), b"key") == deadline


async def test_a_clock_that_is_never_twice_the_same_is_not_asked_for_ever(scripted: Start) -> None:
    now = [5000]

    def answer(command: list[bytes]) -> bytes:
        now[0] += 1
        match command[0]:
            case b"PEXPIRETIME":
                return b"-ERR unknown command 'PEXPIRETIME'\r\n"
            case b"TIME":
                return packed([b"%d" % (now[0] // 1000), b"%d" % (now[0] % 1000 * 1000)])
        return packed(1000)

    deadline = await read_deadline(await connect(scripted, answer), b"key")
    assert deadline is not None
    assert 0 <= now[0] + 1000 - deadline <= 3


@pytest.mark.parametrize("step", [-(10**9), 10**9])
async def test_a_clock_that_is_set_does_no_harm(scripted: Start, step: int) -> None:
    now = [10**10]

    def answer(command: list[bytes]) -> bytes:
        if command[0] != b"TIME":
            return b"+OK\r\n"
        now[0] += step
        return packed([b"%d" % (now[0] // 10**6), b"%d" % (now[0] % 10**6)])

    connection = await connect(scripted, answer)
    replies, seconds = await timed(connection, [pack("PING")])
    assert replies == [b"OK"]
    assert 0 <= seconds <= connection.seconds
