"""How a source behaves that is older than the commands and options that movers would use."""

from collections.abc import Awaitable, Callable

import hiredis
import pytest

from migrator.checks import Watch, check
from migrator.connection import Connection, Timeouts
from migrator.errors import (
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
    unknown_command,
)
from migrator.wanted import WantedList
from slots.access import ServerAccess
from slots.reserved import WANTED
from tests.unit.migrator.conftest import Answer, ScriptedServer

StartScripted = Callable[[Answer], Awaitable[ScriptedServer]]


def before_redis_4(command: list[bytes]) -> bytes:
    """A server that knows no modules."""
    match command[0]:
        case b"INFO":
            return b"$15\r\n# Keyspace\r\nx:1\r\n"
        case b"MODULE":
            return b"-ERR unknown command 'MODULE'\r\n"
        case b"EVAL":
            return b"$7\r\npayload\r\n"
        case b"EXEC":
            return b"*2\r\n+OK\r\n:1\r\n"
    return b"+OK\r\n"


async def test_a_server_that_knows_no_modules_is_fit(scripted: StartScripted) -> None:
    source, target = await scripted(before_redis_4), await scripted(before_redis_4)
    found = await check(
        source.address, target.address, share=1, databases=1, access=ServerAccess("secret"), instance="0" * 32
    )
    assert found.notes == ()
    assert [b"RESTORE", b"payload"] in [[command[0], command[-1]] for command in target.commands]


async def watching(source: ScriptedServer, target: ScriptedServer) -> Watch:
    access, timeouts = ServerAccess(), Timeouts()
    ends = ((source, SourceUnavailable, SourceRefused), (target, TargetUnavailable, TargetRefused))
    connections = [
        await Connection.open(
            server.address, name="test", access=access, unavailable=lost, refused=refused, timeouts=timeouts
        )
        for server, lost, refused in ends
    ]
    return Watch(connections, ("a", "b"))


def no_ping(command: list[bytes]) -> bytes:
    return b"-ERR no\r\n" if command == [b"PING"] else b"+OK\r\n"


async def test_run_id_either_server_may_have_gone(scripted: StartScripted) -> None:
    good = await scripted(lambda command: b"+OK\r\n")
    bad = await scripted(no_ping)
    await (await watching(good, good)).same()
    with pytest.raises(SourceRefused):
        await (await watching(bad, good)).same()
    with pytest.raises(TargetRefused):
        await (await watching(good, bad)).same()


async def test_a_lock_waits_for_both_servers_at_once(scripted: StartScripted) -> None:
    silent = await scripted(lambda command: b"" if command == [b"PING"] else b"+OK\r\n")
    target = await scripted(lambda command: b"+OK\r\n")
    with pytest.raises(SourceUnavailable):
        await (await watching(silent, target)).same()
    assert [b"PING"] in target.commands


async def test_a_source_that_does_not_give_the_keys_of_its_list_many_at_a_time(scripted: StartScripted) -> None:
    """LPOP has a count since Redis 6.2."""
    entries = [b"0:big", b"nothing", b"x:y", b"9999999999:z", b"3:another", b"0:not ours"]

    def answer(command: list[bytes]) -> bytes:
        match command:
            case [b"LPOP", _, _]:
                return b"-ERR wrong number of arguments for 'lpop' command\r\n"
            case [b"LRANGE", *_]:
                return b"*%d\r\n" % len(entries) + b"".join(b"$%d\r\n%b\r\n" % (len(entry), entry) for entry in entries)
        return b"+OK\r\n"

    source = await scripted(answer)
    connection = await Connection.open(
        source.address,
        name="test",
        access=ServerAccess(),
        unavailable=SourceUnavailable,
        refused=SourceRefused,
        timeouts=Timeouts(),
    )
    wanted_list = WantedList(connection, lambda database, key: key != b"not ours")
    for _ in range(2):
        assert await wanted_list.next() == [(0, b"big"), (3, b"another")]
    assert [command[:2] for command in source.commands if command[0] in (b"LPOP", b"LTRIM")] == [
        [b"LPOP", WANTED],
        [b"LTRIM", WANTED],
        [b"LTRIM", WANTED],
    ]
    connection.close()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"-ERR unknown command 'PEXPIRETIME'\r\n", True),
        (b"-ERR unknown command `MEMORY`, with args beginning with: `USAGE`, \r\n", True),
        (b"-NOPERM this user has no permissions to run the 'memory' command\r\n", False),
    ],
)
def test_an_unknown_command_is_told_from_one_that_is_not_allowed(reply: bytes, expected: bool) -> None:
    reader = hiredis.Reader()
    reader.feed(reply)
    assert unknown_command(str(reader.gets())) is expected
