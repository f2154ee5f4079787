"""A call against servers that do what real ones do only rarely."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from migrator import move
from migrator.connection import Timeouts
from migrator.errors import KeysRemain, SourceRefused, TargetRefused, TargetUnavailable
from migrator.move import migrate
from migrator.pace import Pace
from migrator.progress import Progress
from slots.access import ServerAccess

Start = Callable[[Callable[[list[bytes]], bytes | None]], Awaitable[Any]]


def source_with(migrate_replies: Callable[[int], bytes]) -> Callable[[list[bytes]], bytes]:
    """Answers for a source that lists one key until a MIGRATE of it succeeds."""
    state = {"migrates": 0, "there": True}

    def answer(command: list[bytes]) -> bytes:
        match command[0]:
            case b"CLIENT" if command[1] == b"LIST":
                return b"$0\r\n\r\n"
            case b"INFO":
                text = b"# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n"
                return b"$%d\r\n%b\r\n" % (len(text), text)
            case b"SCAN":
                return b"*2\r\n$1\r\n0\r\n" + (b"*1\r\n$3\r\nkey\r\n" if state["there"] else b"*0\r\n")
            case b"MEMORY":
                return b":100\r\n"
            case b"MIGRATE":
                state["migrates"] += 1
                reply = migrate_replies(state["migrates"])
                state["there"] = reply != b"+OK\r\n"
                return reply
        return b"+OK\r\n"

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


def migrates(server: Any) -> list[list[bytes]]:
    return [command for command in server.commands if command[0] == b"MIGRATE"]


async def test_keys_that_never_go_away_end_the_call(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"+NOKEY\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    with pytest.raises(KeysRemain, match="3 passes in which none could be moved"):
        await run(source, target)
    assert len(migrates(source)) == 3


async def test_keys_that_come_again_and_again_end_the_call(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "MOST_PASSES", 5)
    answer = source_with(lambda number: b"+OK\r\n")
    source = await scripted(
        lambda command: b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n" if command[0] == b"SCAN" else answer(command)
    )
    target = await scripted(lambda command: b"+PONG\r\n")
    with pytest.raises(KeysRemain, match="find the client that writes to it directly"):
        await run(source, target)


async def test_a_busy_key_goes_again_with_replace_and_never_before(scripted: Start) -> None:
    busy = b"-ERR Target instance replied with error: BUSYKEY Target key name already exists.\r\n"
    source = await scripted(source_with(lambda number: busy if number == 1 else b"+OK\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    progress = Progress()
    await run(source, target, progress)
    assert [b"REPLACE" in command for command in migrates(source)] == [False, True]
    assert progress.keys_moved == 1


async def test_an_unknown_outcome_waits_for_the_target_and_is_tried_again_with_more_time(scripted: Start) -> None:
    unknown = b"-IOERR error or timeout reading to target instance\r\n"
    source = await scripted(source_with(lambda number: unknown if number < 3 else b"+OK\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    await run(source, target)
    assert [int(command[5]) for command in migrates(source)] == [1000, 2000, 4000]
    assert target.commands.count([b"PING"]) > 2


async def test_a_target_that_answers_us_and_never_takes_keys(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"-IOERR error or timeout writing to target instance\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    with pytest.raises(TargetUnavailable, match="does not take keys within 60 s"):
        await run(source, target)


async def test_a_source_that_cannot_connect_to_the_target(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"-IOERR error or timeout connecting to the client\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    with pytest.raises(TargetUnavailable, match="cannot connect to target"):
        await run(source, target)
    assert len(migrates(source)) == 1


async def test_who_refuses_is_told_apart(scripted: Start) -> None:
    target = await scripted(lambda command: b"+PONG\r\n")
    source = await scripted(source_with(lambda number: b"-ERR Target instance replied with error: OOM no\r\n"))
    with pytest.raises(TargetRefused, match="maxmemory"):
        await run(source, target)
    source = await scripted(source_with(lambda number: b"-NOPERM no MIGRATE for you\r\n"))
    with pytest.raises(SourceRefused, match="ACL"):
        await run(source, target)


async def test_the_password_goes_to_both_servers_and_into_migrate(scripted: Start) -> None:
    source = await scripted(source_with(lambda number: b"+OK\r\n"))
    target = await scripted(lambda command: b"+PONG\r\n")
    await run(source, target, password="secret")
    assert source.commands[0] == [b"AUTH", b"secret"]
    assert target.commands[0] == [b"AUTH", b"secret"]
    host, port = target.address.split(":")
    expected = ["MIGRATE", host, port, "", "0", "1000", "AUTH", "secret", "KEYS", "key"]
    assert migrates(source) == [[part.encode() for part in expected]]


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
