"""A call against servers that do what real ones do only rarely."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from migrator import move
from migrator.connection import Timeouts
from migrator.errors import KeysRemain, NotApart, SourceRefused, TargetRefused, TargetUnavailable
from migrator.move import migrate
from migrator.pace import Pace
from migrator.progress import Progress
from slots import flushes, moving
from slots.access import ServerAccess

Start = Callable[[Callable[[list[bytes]], bytes | None]], Awaitable[Any]]


RUN_ID = b"a" * 40
LISTED = b"$31\r\nid=1 age=5 name=test cmd=client\r\n"


def source_with(replies: Callable[[int], bytes]) -> Callable[[list[bytes]], bytes]:
    """Answers for a source that lists one key until moving it succeeds; its number of attempts gives the reply."""
    state = {"attempts": 0, "there": True, "permit": b""}

    def answer(command: list[bytes]) -> bytes:
        match command[0]:
            case b"CLIENT" if command[1] == b"LIST":
                return LISTED
            case b"INFO":
                text = b"run_id:%b\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n" % RUN_ID
                return b"$%d\r\n%b\r\n" % (len(text), text)
            case b"LPOP" | b"BLPOP":
                return b"*-1\r\n"
            case b"SCAN":
                return b"*2\r\n$1\r\n0\r\n" + (b"*1\r\n$3\r\nkey\r\n" if state["there"] else b"*0\r\n")
            case b"EVAL" if command[1] == flushes.STANDING.encode():
                return b"*0\r\n"
            case b"EVAL" if command[1] == moving.READ.encode():
                return array(RUN_ID, state["permit"], b"")
            case b"EVAL" if command[1] == moving.GRANT.encode():
                state["permit"] = command[5]
                return array(command[5])[4:]
            case b"EVALSHA":
                return b"-NOSCRIPT No matching script.\r\n"
            case b"EVAL" if command[1] == moving.MOVE.encode():
                if command[2] == b"0":
                    return ABSENT
                if not state["permit"] or command[4] != state["permit"]:
                    return b"-UNSETTLED the permit has to be renewed\r\n"
                state["attempts"] += 1
                reply = replies(state["attempts"])
                state["there"] = reply != MOVED
                if reply.startswith(b"-IOERR"):
                    state["permit"] = b""
                return reply
        return b"+OK\r\n"

    return answer


MOVED = b"*4\r\n:1\r\n:1\r\n:100\r\n*0\r\n"
ABSENT = b"*4\r\n:1\r\n:0\r\n:0\r\n*0\r\n"


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def target(run_id: bytes = b"b" * 40) -> Callable[[list[bytes]], bytes]:
    """Answers for a target that nobody else is connected to."""

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"INFO":
            return b"+run_id:%b\r\n" % run_id
        if command[:2] == [b"EVAL", flushes.STANDING.encode()]:
            return b"*0\r\n"
        return LISTED if command[:2] == [b"CLIENT", b"LIST"] else b"+PONG\r\n"

    return answer


async def run(source: Any, target: Any, progress: Progress | None = None, password: str | None = None) -> None:
    await migrate(
        source.address,
        target.address,
        range(16),
        function="crc32",
        number_of_slots=16,
        access=ServerAccess(password or ""),
        pace=Pace(),
        progress=progress or Progress(),
        instance="0" * 32,
        timeouts=Timeouts(migrate_seconds=1),
    )


def attempts(server: Any) -> list[list[bytes]]:
    """ARGV of each attempt to move, but for those that were refused the permit."""
    moves = [command for command in server.commands if command[0] == b"EVAL" and command[1] == moving.MOVE.encode()]
    return [command[4:] for command in moves if command[2] != b"0" and command[4]]


async def test_run_id_one_server_under_two_names_is_left_alone(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: MOVED))
    with pytest.raises(NotApart, match="under two names"):
        await run(source, await scripted(target(RUN_ID)))
    assert attempts(source) == []


async def test_run_id_a_server_that_does_not_say_who_it_is_gets_no_keys(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: MOVED))
    with pytest.raises(TargetUnavailable, match="run id"):
        await run(source, await scripted(target(b"")))
    assert attempts(source) == []


async def test_run_id_a_target_that_is_replaced_within_a_call_ends_it(scripted: Start) -> None:
    """given connections of one call that lead to two processes, then no key goes over them."""
    source = await scripted(source_with(lambda number: MOVED))
    answers = iter([target(), *[target(b"c" * 40)] * 100])
    at_target = await scripted(lambda command: (next(answers) if command[0] == b"INFO" else target())(command))
    with pytest.raises(TargetUnavailable, match=r"another process|did not last"):
        await run(source, at_target)
    assert attempts(source) == []


async def test_keys_that_never_go_away_end_the_call(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: ABSENT))
    at_target = await scripted(target())
    with pytest.raises(KeysRemain, match="3 passes in which none could be moved"):
        await run(source, at_target)
    assert len(attempts(source)) == 3


async def test_keys_that_come_again_and_again_end_the_call(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "MOST_PASSES", 5)
    answer = source_with(lambda number: MOVED)
    source = await scripted(
        lambda command: b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n" if command[0] == b"SCAN" else answer(command)
    )
    at_target = await scripted(target())
    with pytest.raises(KeysRemain, match="find the client that writes to it directly"):
        await run(source, at_target)


async def test_an_unknown_outcome_waits_for_the_target_and_is_tried_again_with_more_time(scripted: Start) -> None:
    unknown = b"-IOERR error or timeout reading to target instance\r\n"
    source = await scripted(source_with(lambda number: unknown if number < 3 else MOVED))
    at_target = await scripted(target())
    await run(source, at_target)
    assert [int(attempt[5]) for attempt in attempts(source)] == [1000, 2000, 4000]
    # Each with a permit of its own, for which the target's connections were looked at.
    assert len({attempt[0] for attempt in attempts(source)}) == 3
    # Thrice each time; one more is of the end of earlier calls.
    assert at_target.commands.count([b"CLIENT", b"LIST"]) == 3 * 3 + 1


async def test_a_target_that_answers_us_and_never_takes_keys(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"-IOERR error or timeout writing to target instance\r\n"))
    at_target = await scripted(target())
    with pytest.raises(TargetUnavailable, match="does not take keys within 60 s"):
        await run(source, at_target)


async def test_a_source_that_cannot_connect_to_the_target(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"-IOERR error or timeout connecting to the client\r\n"))
    at_target = await scripted(target())
    with pytest.raises(TargetUnavailable, match="cannot connect to target"):
        await run(source, at_target)
    assert len(attempts(source)) == 1


async def test_who_refuses_is_told_apart(scripted: Start) -> None:
    at_target = await scripted(target())
    source = await scripted(source_with(lambda number: b"-ERR Target instance replied with error: OOM no\r\n"))
    with pytest.raises(TargetRefused, match="maxmemory"):
        await run(source, at_target)
    source = await scripted(source_with(lambda number: b"-NOPERM no MIGRATE for you\r\n"))
    with pytest.raises(SourceRefused, match="ACL"):
        await run(source, at_target)


async def test_the_password_goes_to_both_servers_and_into_migrate(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: MOVED))
    at_target = await scripted(target())
    await run(source, at_target, password="secret")
    assert source.commands[0] == [b"AUTH", b"secret"]
    assert at_target.commands[0] == [b"AUTH", b"secret"]
    assert [attempt[-2:] for attempt in attempts(source)] == [[b"AUTH", b"secret"]]


async def test_arguments_are_checked(scripted: Start) -> None:
    async def call(source: str, target: str, slots: list[int]) -> None:
        await migrate(
            source,
            target,
            slots,
            function="crc32",
            number_of_slots=16,
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
