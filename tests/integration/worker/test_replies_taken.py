"""Replies that are larger than what is kept of one: what was taken reaches its client, and no error says otherwise."""

from collections.abc import Awaitable, Callable

import pytest

from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
USERS = [{"name": "shop", "password": "p", "prefix": "shop:"}, {"name": "default", "no_password": True}]
ELEMENT = b"$1000\r\n" + b"x" * 1000 + b"\r\n"
NUMBER = 4000
LIMIT_BYTES = 1_000_000


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """Two groups with half of the slots each; of a reply, a quarter of what the lists have is kept."""
    worker = await start_worker(
        users=USERS, session_output_limit_bytes=LIMIT_BYTES, session_output_pause_bytes=LIMIT_BYTES // 2
    )
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


async def fill(wire: Wire, key: str) -> None:
    assert await wire.say("RPUSH", key, *["x" * 1000] * NUMBER) == b":%d\r\n" % NUMBER


@pytest.mark.parametrize(
    ("user", "other"), [("shop", "{list}none"), ("shop", "nothing"), ("default", "{list}none"), ("default", "nothing")]
)
async def test_what_is_taken_reaches_its_client(worker: WorkerHarness, user: str, other: str) -> None:
    assert slot_of("{list}") != slot_of("nothing")
    async with Wire(worker.settings.listen) as wire:
        await wire.say("AUTH", user, "p")
        await fill(wire, "{list}")
        wire.send("ECHO", "before")
        wire.send("LMPOP", 2, other, "{list}", "LEFT", "COUNT", NUMBER)
        wire.send("ECHO", "behind")
        reply = b"*2\r\n$6\r\n{list}\r\n*%d\r\n" % NUMBER + ELEMENT * NUMBER
        expected = b"$6\r\nbefore\r\n" + reply + b"$6\r\nbehind\r\n"
        assert await wire.read(len(expected)) == expected
        assert await wire.say("EXISTS", "{list}") == b":0\r\n"
        assert b"cmdstat_lmpop:calls=1," in await wire.say("INFO", "commandstats")


@pytest.mark.parametrize(
    ("user", "requests"),
    [
        ("default", [("BLMPOP", "1", "1", "list", "LEFT", "COUNT", NUMBER)]),
        ("default", [("WATCH", "list"), ("MULTI",), ("LPOP", "list", NUMBER), ("EXEC",)]),
        ("shop", [("BLMPOP", "1", "1", "list", "LEFT", "COUNT", NUMBER)]),
        ("shop", [("MULTI",), ("LMPOP", "1", "list", "LEFT", "COUNT", NUMBER), ("EXEC",)]),
    ],
    ids=str,
)
async def test_a_client_that_cannot_have_it_gets_no_error_but_loses_its_connection(
    worker: WorkerHarness, user: str, requests: list[tuple[str | int, ...]]
) -> None:
    async with Wire(worker.settings.listen) as wire:
        await wire.say("AUTH", user, "p")
        await fill(wire, "list")
        for request in requests:
            wire.send(*request)
        assert b"-" not in await wire.ended()
