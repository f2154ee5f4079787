"""A migrator registers, does what it is told, reports, and ends its copies whenever the stream ends."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog.testing
from websockets.asyncio.server import ServerConnection, serve

from migrator.process.copies import Copies
from migrator.process.stream import Stream
from slots import dialing
from slots.messages.control import Refused
from slots.messages.copies import (
    CloseCopy,
    CopyRequest,
    Done,
    MigratorMessage,
    MigratorRegistered,
    RegisterMigrator,
    Report,
    SetPace,
    ToMigrator,
)
from slots.messages.message import encode

SECONDS = 60.0
REGISTRATION = RegisterMigrator(instance="1" * 32, hostname="host", pid=7, version="0")
PACE = SetPace(keys_per_second=1, bytes_per_second=2, latency_goal_milliseconds=3.0, paused=False)


class FakeCopies:
    """Writes down what is asked, and says what a test has it say."""

    def __init__(self, say: Callable[[MigratorMessage], None]) -> None:
        self.say = say
        self.taken: list[CopyRequest | SetPace] = []
        self.closed = asyncio.Event()

    def take(self, message: CopyRequest) -> None:
        self.taken.append(message)
        assert isinstance(message, CloseCopy)
        self.say(Done(number=message.number))

    def set_pace(self, message: SetPace) -> None:
        self.taken.append(message)

    async def report(self) -> Report:
        return Report(copies=[])

    async def close(self) -> None:
        self.closed.set()


class Topom:
    """topom, played by the test."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self.url = ""
        self.made: list[FakeCopies] = []

    async def serve(self, stream: ServerConnection) -> None:
        self.streams.put_nowait(stream)
        await stream.wait_closed()

    def make(self, say: Callable[[MigratorMessage], None]) -> Copies:
        self.made.append(FakeCopies(say))
        return self.made[-1]  # type: ignore[return-value]

    async def stream(self) -> ServerConnection:
        async with asyncio.timeout(SECONDS):
            stream = await self.streams.get()
            assert json.loads(await stream.recv()) == json.loads(encode(REGISTRATION))
            return stream

    async def registered(self) -> ServerConnection:
        stream = await self.stream()
        await say(stream, MigratorRegistered(report_seconds=0.01))
        assert (await heard(stream, "report"))["copies"] == []
        return stream


async def say(stream: ServerConnection, message: ToMigrator) -> None:
    await stream.send(encode(message))


async def heard(stream: ServerConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            message: dict[str, Any] = json.loads(await stream.recv())
            if message["type"] == kind:
                return message


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 0.005)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 0.02)


@pytest.fixture
async def topom() -> AsyncIterator[Topom]:
    topom = Topom()
    async with serve(topom.serve, "127.0.0.1", 0) as server:
        topom.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        running = asyncio.create_task(Stream([topom.url], "secret", None, REGISTRATION, topom.make).run())
        yield topom
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_what_topom_asks_is_done_and_answered(topom: Topom) -> None:
    stream = await topom.registered()
    close = CloseCopy(number=5, copy_id="0" * 32)
    await say(stream, PACE)
    await stream.send(json.dumps({"type": "of a newer version"}))
    await say(stream, close)
    assert (await heard(stream, "done"))["number"] == 5
    assert topom.made[0].taken == [PACE, close]


@pytest.mark.parametrize(
    "last",
    ["", "no message", '{"type": "settle"}', encode(MigratorRegistered(report_seconds=1.0))],
    ids=["closed", "nonsense", "half a message", "registered twice"],
)
async def test_when_the_stream_ends_all_copies_end_and_topom_is_dialled_again(topom: Topom, last: str) -> None:
    stream = await topom.registered()
    if last:
        await stream.send(last)
    else:
        await stream.close()
    async with asyncio.timeout(SECONDS):
        await topom.made[0].closed.wait()
    await topom.registered()
    assert len(topom.made) == 2


@pytest.mark.long
async def test_a_topom_that_reads_nothing_is_given_up(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    await topom.registered()
    for number in range(10_000):
        topom.made[0].say(Done(number=number))
    async with asyncio.timeout(SECONDS):
        await topom.made[0].closed.wait()
    await topom.registered()


@pytest.mark.parametrize("reason", ["follower", "invalid"])
async def test_a_topom_that_refuses_is_asked_again(topom: Topom, reason: str) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            await say(await topom.stream(), Refused(reason=reason, message="not now", leader=topom.url))
        await topom.registered()
    assert "not now" in str([entry["reason"] for entry in logs if entry["event"] == "topom_unreachable"])
    assert len(topom.made) == 1


async def test_another_answer_than_to_the_registration_makes_no_copies(topom: Topom) -> None:
    await say(await topom.stream(), PACE)
    await (await topom.stream()).close()
    await topom.registered()
    assert len(topom.made) == 1
