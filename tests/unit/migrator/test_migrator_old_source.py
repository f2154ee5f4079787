"""What a source does that is older than the commands and options that movers would use."""

from collections.abc import Awaitable, Callable

import hiredis
import pytest

from migrator.checks import Way, check
from migrator.errors import SourceRefused, unknown_command
from slots.access import ServerAccess
from tests.unit.migrator.conftest import Answer, ScriptedServer

StartScripted = Callable[[Answer], Awaitable[ScriptedServer]]


def without_login(command: list[bytes]) -> bytes:
    """A server before Redis 4.0.7: its MIGRATE has no option AUTH."""
    match command[0]:
        case b"INFO":
            return b"$15\r\n# Keyspace\r\nx:1\r\n"
        case b"MODULE":
            return b"-ERR unknown command 'MODULE'\r\n"
        case b"EVAL" if b"MIGRATE" in command[1]:
            return b"-ERR syntax error\r\n"
        case b"EVAL":
            return b"$7\r\npayload\r\n"
    return b"+OK\r\n"


async def test_keys_are_carried_where_the_source_cannot_log_in_at_the_target(scripted: StartScripted) -> None:
    source, target = await scripted(without_login), await scripted(without_login)

    async def checked(way: Way, password: str) -> bool:
        found = await check(
            source.address,
            target.address,
            share=1,
            databases=1,
            access=ServerAccess(password),
            instance="0" * 32,
            way=way,
        )
        return found.carried

    assert await checked(Way.AUTO, "secret")
    assert [b"RESTORE", b"payload"] in [[command[0], command[-1]] for command in target.commands]
    for way, password in ((Way.DIRECT, "secret"), (Way.AUTO, "")):
        with pytest.raises(SourceRefused):
            await checked(way, password)


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
