"""A call against servers that do what real ones do only rarely."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from migrator import move, pace
from migrator.errors import KeysRemain, NotApart, SourceRefused, TargetRefused, TargetUnavailable
from migrator.move import migrate
from migrator.options import MoveOptions
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.steps import MOST_RENEWALS, Permit
from migrator.transfer import Moved
from slots import flushes, moving, permits
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.unit.migrator.conftest import Answer, ScriptedServer

Start = Callable[[Answer], Awaitable[ScriptedServer]]


RUN_ID = b"a" * 40
LISTED = b"$31\r\nid=1 age=5 name=test cmd=client\r\n"
KEY = b"key"
PAYLOAD = b"what DUMP gave"


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def text(part: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(part), part)


TAKEN = b"*9\r\n:1\r\n:100\r\n*0\r\n*0\r\n*1\r\n:1\r\n" + array(PAYLOAD) + b"*1\r\n:-1\r\n*0\r\n*0\r\n"
ABSENT = b"*9\r\n:1\r\n:0\r\n" + b"*0\r\n" * 7
BUSY = b"*9\r\n:1\r\n:0\r\n*1\r\n:1\r\n" + b"*0\r\n" * 6
DROPPED = b"*2\r\n:1\r\n:1\r\n"
RELEASED = b"*2\r\n:1\r\n:0\r\n"
PLACED = b"*2\r\n*0\r\n*0\r\n"
NOT_PERMITTED = b"-NOTPERMITTED the permit to move keys has to be renewed\r\n"


class End:
    """Answers for a server at one end of a move, which has its permit as ``field``."""

    def __init__(self, field: bytes, run_id: bytes) -> None:
        self.field = field
        self.run_id = run_id
        self.permit = b""
        self.renewals = 0

    def __call__(self, command: list[bytes]) -> bytes:
        match command:
            case [b"CLIENT", b"LIST"]:
                return LISTED
            case [b"INFO", *_]:
                return text(b"run_id:%b\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n" % self.run_id)
            case [b"LPOP" | b"BLPOP", *_]:
                return b"*-1\r\n"
            case [b"EVALSHA", *_]:
                return b"-NOSCRIPT No matching script.\r\n"
            case [b"EVAL", script, *_] if script == flushes.UNDER_WAY.text.encode():
                return b"*0\r\n"
            case [b"EVAL", script, _, _, field, nobody] if script == permits._READ.text.encode():
                self.permit = self.permit or nobody
                assert field == self.field
                return array(self.run_id, self.permit)
            case [b"EVAL", script, _, _, field, before, after, run_id, _] if script == permits._SET.text.encode():
                assert (field, before, run_id) == (self.field, self.permit, self.run_id)
                self.permit = after
                self.renewals += 1
                return text(b"done")
            case [b"EVAL", script, _, _, *_] if script in STEPS:
                # After the keys.
                permit = command[3 + int(command[2])]
                return self.step(script, command) if permit == self.permit else NOT_PERMITTED
        return b"+OK\r\n"

    def step(self, script: bytes, command: list[bytes]) -> bytes:
        raise NotImplementedError


STEPS = {script.text.encode() for script in (moving.TAKE, moving.PLACE, moving.DROP)}


class Source(End):
    """Lists one key until it was dropped; what the nth *take* finds is given by ``takes``."""

    def __init__(self, takes: Callable[[int], bytes] = lambda number: TAKEN) -> None:
        super().__init__(b"permit", RUN_ID)
        self.takes = takes
        self.taken = 0
        self.there = True

    def __call__(self, command: list[bytes]) -> bytes:
        if command[0] == b"SCAN":
            return b"*2\r\n$1\r\n0\r\n" + (array(KEY) if self.there else b"*0\r\n")
        return super().__call__(command)

    def step(self, script: bytes, command: list[bytes]) -> bytes:
        if script == moving.DROP.text.encode():
            self.there = command[-1] == b"0"
            return RELEASED if self.there else DROPPED
        self.taken += 1
        return self.takes(self.taken)


class Target(End):
    """What the nth *place* says is given by ``places``."""

    def __init__(self, places: Callable[[int], bytes] = lambda number: PLACED, run_id: bytes = b"b" * 40) -> None:
        super().__init__(b"accepts", run_id)
        self.places = places
        self.placed = 0

    def step(self, script: bytes, command: list[bytes]) -> bytes:
        assert command[-2:] == [PAYLOAD, b"-1"]
        self.placed += 1
        return self.places(self.placed)


async def run(source: Any, target: Any, progress: Progress | None = None, password: str | None = None) -> None:
    await migrate(
        source.address,
        target.address,
        range(16),
        key_slots=KeySlots("crc32", 16),
        access=ServerAccess(password or ""),
        pace=Pace(),
        progress=progress or Progress(),
        instance="0" * 32,
    )


async def test_run_id_one_server_under_two_names_is_left_alone(scripted: Start) -> None:
    source = Source()
    with pytest.raises(NotApart, match="under two names"):
        await run(await scripted(source), await scripted(Target(run_id=RUN_ID)))
    assert source.taken == 0


async def test_run_id_a_server_that_does_not_say_who_it_is_gets_no_keys(scripted: Start) -> None:
    source = Source()
    with pytest.raises(TargetUnavailable, match="run id"):
        await run(await scripted(source), await scripted(Target(run_id=b"")))
    assert source.taken == 0


async def test_run_id_a_target_that_is_replaced_within_a_call_ends_it(scripted: Start) -> None:
    """given connections of one call that lead to two processes, then no key goes over them."""
    source, target = Source(), Target()
    answers = iter([target, *[Target(run_id=b"c" * 40)] * 100])
    at_target = await scripted(lambda command: (next(answers) if command[0] == b"INFO" else target)(command))
    with pytest.raises(TargetUnavailable, match="another process"):
        await run(await scripted(source), at_target)
    assert source.taken == 0


async def test_the_steps_of_a_key(scripted: Start) -> None:
    source, target, progress = Source(), Target(), Progress()
    at_source, at_target = await scripted(source), await scripted(target)
    await run(at_source, at_target, progress)
    assert (source.taken, target.placed, source.there) == (1, 1, False)
    assert (progress.keys_moved, progress.bytes_moved, progress.passes) == (1, 100, 2)
    assert source.permit == target.permit != b""
    assert source.renewals == target.renewals == 1
    for server, script in ((at_target, permits._WITHDRAW_AT_TARGET), (at_source, permits._WITHDRAW_AT_SOURCE)):
        assert [command[1] for command in server.commands if command[0] == b"EVAL"][-1] == script.text.encode()


async def test_keys_that_never_go_away_end_the_call(scripted: Start) -> None:
    source = Source(lambda number: ABSENT)
    with pytest.raises(KeysRemain, match="3 passes in which none could be moved"):
        await run(await scripted(source), await scripted(Target()))
    assert source.taken == 3


async def test_keys_that_come_again_and_again_end_the_call(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "MOST_PASSES", 5)
    source = Source()
    at_source = await scripted(
        lambda command: b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n" if command[0] == b"SCAN" else source(command)
    )
    with pytest.raises(KeysRemain, match="find the client that writes to it directly"):
        await run(at_source, await scripted(Target()))


@pytest.mark.parametrize("step", ["take", "place"])
async def test_a_permit_that_does_not_hold_is_renewed_and_the_key_taken_anew(scripted: Start, step: str) -> None:
    source, target = Source(), Target()

    def lost(number: int) -> bytes:
        return NOT_PERMITTED if number < 3 else TAKEN if step == "take" else PLACED

    if step == "take":
        source.takes = lost
    else:
        target.places = lost
    await run(await scripted(source), await scripted(target))
    assert not source.there
    assert (source.taken, target.placed) == ((3, 1) if step == "take" else (3, 3))
    assert source.renewals == target.renewals == 3


async def test_a_permit_that_never_holds_ends_the_call(scripted: Start) -> None:
    source = Source(lambda number: NOT_PERMITTED)
    with pytest.raises(TargetUnavailable, match="others renew it all the time"):
        await run(await scripted(source), await scripted(Target()))
    assert source.taken == MOST_RENEWALS


async def test_who_renews_looks_first_whether_another_batch_has_done_so() -> None:
    """given two batches that both find that a permit does not hold, only one of them renews it."""
    permit = object.__new__(Permit)
    permit._renewing = asyncio.Lock()
    permit.held = "the latest"
    await permit.renew("the one before")
    assert permit.held == "the latest"


async def test_a_key_that_another_is_moving_is_waited_for(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "LOOK_SECONDS", 0.001)
    source = Source(lambda number: BUSY if number < 5 else TAKEN)
    at_source = await scripted(source)
    await run(at_source, await scripted(Target()))
    assert source.taken == 5
    assert source.renewals == 1
    assert [command[0] for command in at_source.commands].count(b"SCAN") == 2


async def test_who_has_moved_a_key_for_too_long_is_taken_for_dead(
    scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(move, "BUSY_SECONDS", 0.01)
    source = Source()
    source.takes = lambda number: BUSY if source.renewals < 3 else TAKEN
    await run(await scripted(source), await scripted(Target()))
    assert not source.there


async def test_a_target_that_closes_the_connection_ends_the_call_and_the_key_is_not_dropped(scripted: Start) -> None:
    source, target = Source(), Target()
    digest = moving.PLACE.digest.encode()
    at_target = await scripted(lambda command: None if command[:2] == [b"EVALSHA", digest] else target(command))
    with pytest.raises(TargetUnavailable):
        await run(await scripted(source), at_target)
    assert source.there
    assert (source.taken, target.placed) == (1, 0)


async def test_who_refuses_is_told_apart(scripted: Start) -> None:
    source = Source()
    at_source = await scripted(source)
    no_memory = b"OOM command not allowed when used memory > 'maxmemory'."
    with pytest.raises(TargetRefused, match="maxmemory"):
        await run(at_source, await scripted(Target(lambda number: b"*2\r\n*1\r\n:1\r\n" + array(no_memory))))
    dropped = [command for command in at_source.commands if command[:2] == [b"EVAL", moving.DROP.text.encode()]]
    assert [command[-1] for command in dropped] == [b"0"], "the claim was given back, and nothing deleted"
    at_source = await scripted(Source(lambda number: b"-NOPERM no DUMP for you\r\n"))
    with pytest.raises(SourceRefused, match="ACL"):
        await run(at_source, await scripted(Target()))


class TwoBatches:
    """Two batches of one key each: the first fails, and the other one takes so long."""

    def __init__(self, error: Exception, seconds: float) -> None:
        self.error = error
        self.seconds = seconds
        self.ended = False

    async def move(self, database: int, keys: list[bytes], enough_bytes: int) -> tuple[Moved, float]:
        if keys == [b"first"]:
            await asyncio.sleep(0.01)
            raise self.error
        await asyncio.sleep(self.seconds)
        self.ended = True
        return Moved(1, 1, 100, (), ()), 0.0

    async def run(self) -> None:
        call = move._Run(Any, self, Any, "crc32", b"", Pace(), Progress())  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pace, "BATCH_KEYS", 1)
            await call._move_once(0, [b"first", b"other"])


async def test_a_batch_that_is_refused_lets_the_other_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is full stays so for long: the other batch drops what it has placed, and leaves no claims."""
    refused = TargetRefused("h:1", "OOM")
    batches = TwoBatches(refused, 0.1)
    with pytest.raises(TargetRefused):
        await batches.run()
    assert batches.ended
    monkeypatch.setattr(move, "ENDING_SECONDS", 0.05)
    for error, seconds in ((refused, 60.0), (TargetUnavailable("it is down"), 0.1)):
        batches = TwoBatches(error, seconds)
        with pytest.raises(type(error)):
            await asyncio.wait_for(batches.run(), 30)
        assert not batches.ended


async def test_the_password_goes_to_both_servers(scripted: Start) -> None:
    source, target = await scripted(Source()), await scripted(Target())
    await run(source, target, password="secret")
    assert source.commands[0] == target.commands[0] == [b"AUTH", b"secret"]


@pytest.mark.parametrize("lost", [True, False])
async def test_nothing_is_dropped_once_a_server_is_not_what_it_was(scripted: Start, lost: bool) -> None:
    """given a master that was replaced after it had taken a key, the source keeps the key."""
    source, target = Source(), Target()

    def require() -> None:
        if lost and target.placed:
            raise TargetUnavailable("the target's group has another master")

    call = migrate(
        (await scripted(source)).address,
        (await scripted(target)).address,
        range(16),
        key_slots=KeySlots("crc32", 16),
        access=ServerAccess(""),
        pace=Pace(),
        progress=Progress(),
        instance="0" * 32,
        options=MoveOptions(require=require),
    )
    if lost:
        with pytest.raises(TargetUnavailable, match="another master"):
            await call
    else:
        await call
    assert target.placed == 1
    assert source.there is lost


async def test_arguments_are_checked(scripted: Start) -> None:
    async def call(source: str, target: str, slots: list[int]) -> None:
        await migrate(
            source,
            target,
            slots,
            key_slots=KeySlots("crc32", 16),
            access=ServerAccess(),
            pace=Pace(),
            progress=Progress(),
            instance="0",
        )

    with pytest.raises(ValueError, match="same server"):
        await call("h:1", "h:1", [1])
    with pytest.raises(ValueError, match="slot 16 is not within 0-15"):
        await call("h:1", "h:2", [16])
    await call("h:1", "h:2", [])  # nothing to do
