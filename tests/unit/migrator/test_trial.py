"""What a trial key shows, by what both servers answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from migrator.connection import Connection, Timeouts
from migrator.errors import (
    MigrationError,
    Refusal,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
)
from migrator.trial import reads_payloads
from slots.access import ServerAccess
from tests.unit.migrator.conftest import Answer, ScriptedServer

StartScripted = Callable[[Answer], Awaitable[ScriptedServer]]
PAYLOAD = b"$7\r\npayload\r\n"
RAN = b"*2\r\n+OK\r\n:1\r\n"
NEWER = b"-ERR DUMP payload version or checksum are wrong\r\n"


async def tried(
    scripted: StartScripted, payload: bytes = PAYLOAD, restore: bytes = b"+QUEUED\r\n", ran: bytes | None = RAN
) -> bool:
    """Whether the target reads what the source gives; these are the replies to EVAL, RESTORE and EXEC."""
    source = await scripted(lambda argv: payload if argv[0] == b"EVAL" else b"+OK\r\n")
    replies = {b"RESTORE": restore, b"UNLINK": b"+QUEUED\r\n", b"EXEC": ran}
    target = await scripted(lambda argv: replies.get(argv[0], b"+OK\r\n"))
    ends: list[Connection] = []
    for server, unavailable, refused in (
        (source, SourceUnavailable, SourceRefused),
        (target, TargetUnavailable, TargetRefused),
    ):
        ends.append(
            await Connection.open(
                server.address,
                name="slotferry.test",
                access=ServerAccess(),
                unavailable=unavailable,
                refused=refused,
                timeouts=Timeouts(),
            )
        )
    try:
        return await reads_payloads(ends[0], ends[1])
    finally:
        for end in ends:
            end.close()


async def test_a_target_reads_payloads_or_does_not(scripted: StartScripted) -> None:
    assert await tried(scripted)
    assert not await tried(scripted, ran=b"*2\r\n" + NEWER + b":0\r\n")


@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", Refusal.READ_ONLY),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", Refusal.MEMORY),
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", Refusal.REPLICAS),
    ],
)
async def test_a_target_that_takes_no_writes_says_why(scripted: StartScripted, reply: bytes, refusal: Refusal) -> None:
    with pytest.raises(TargetRefused) as refused:
        await tried(scripted, restore=reply, ran=b"-EXECABORT Transaction discarded because of previous errors.\r\n")
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("ran", [None, b"$-1\r\n", b"*-1\r\n", b"+OK\r\n", b"*1\r\n+OK\r\n", b"*2\r\n+OK\r\n:0\r\n"])
async def test_a_target_that_does_not_say_that_the_key_was_there_is_not_fit(
    scripted: StartScripted, ran: bytes | None
) -> None:
    with pytest.raises(TargetUnavailable):
        await tried(scripted, ran=ran)


@pytest.mark.parametrize("payload", [b"$-1\r\n", b":1\r\n", b"*0\r\n"])
async def test_what_is_no_payload_does_not_tell_what_the_target_reads(scripted: StartScripted, payload: bytes) -> None:
    with pytest.raises(MigrationError) as found:
        await tried(scripted, payload=payload, ran=b"*2\r\n" + NEWER + b":0\r\n")
    assert isinstance(found.value, SourceUnavailable)
