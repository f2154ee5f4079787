"""A process that asks servers knows for how long each is silent, whatever it answers, and asks no others."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from slots import probing
from slots.access import ServerAccess
from slots.probing import Probing


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that answers every command with this; with nothing, it is silent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sent := await reader.read(4096):
            writer.write(answer * sent.count(b"*"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def stop(seconds: float) -> None:
    """Stop this process, as a suspended machine does."""
    time.sleep(seconds)


@pytest.fixture(autouse=True)
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ASK_SECONDS", 0.01)


def silences(one: Probing, unanswered_seconds: float = 0.0) -> dict[str, float]:
    return one.silent(0.0, unanswered_seconds)[0]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


async def test_a_server_that_answers_is_named_with_its_process(redis_address: str) -> None:
    seen: list[tuple[str, str]] = []
    one = Probing(ServerAccess(), 5.0, lambda server, process: seen.append((server, process)))
    one.keep([redis_address])
    await until(lambda: len(seen) > 1)
    assert silences(one, 3600.0).keys() == {redis_address}, "it has answered"
    assert {server for server, _ in seen} == {redis_address}
    assert len({process for _, process in seen}) == 1
    one.keep([])
    assert silences(one) == {}
    await one.close()
    one.keep([redis_address])
    assert silences(one) == {}, "it was closed"


@pytest.mark.parametrize("answer", [b"-LOADING Redis is loading\r\n", b"-NOAUTH Authentication required.\r\n"])
async def test_an_error_is_an_answer(answer: bytes) -> None:
    async with answering(answer) as server:
        one = Probing(ServerAccess(), 5.0)
        one.keep([server])
        await until(lambda: server in silences(one, 3600.0))
        await one.close()


@pytest.mark.parametrize("answer", [b"", b"+PONG\r\n"])
async def test_silence_and_nonsense_are_none(answer: bytes) -> None:
    async with answering(answer) as server:
        one = Probing(ServerAccess(), 0.05)
        one.keep([server])
        await until(lambda: silences(one).get(server, 0) > 0.3)
        assert silences(one, 3600.0) == {}, "it has never answered"
        await one.close()


@pytest.mark.long
async def test_what_a_process_was_held_up_itself_is_no_silence_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep
    silent: list[float] = []

    async def late(seconds: float) -> None:
        silent.append(silences(one)[server])
        await sleep(2.0 if len(silent) == 1 else 3600.0)

    async with answering(b"") as server:
        one = Probing(ServerAccess(), 0.02)
        monkeypatch.setattr(probing.asyncio, "sleep", late)
        one.keep([server])
        async with asyncio.timeout(20):
            while len(silent) < 2:
                await sleep(0.002)
        monkeypatch.undo()
        assert silent[1] < 1.5
        await one.close()


async def test_a_process_that_was_stopped_names_no_server_before_it_has_asked_again() -> None:
    """given that the code that makes the heartbeat is the first to run."""
    async with answering(b"-ERR not now\r\n") as server:
        one = Probing(ServerAccess(), 0.1)
        one.keep([server])
        await until(lambda: one.silent(3600.0, 3600.0) == ({}, []))
        stop(0.6)
        assert one.silent(0.5, 0.5) == ({}, [])
        await one.close()


async def test_a_process_that_was_stopped_hears_nothing_in_advance() -> None:
    link = probing._Link("a:1", ServerAccess(), 0.1, lambda server, process: None, ("PING",), 10.0)
    link.heard = 99.0
    link.held_up(60.0, 100.0)
    assert link.heard == 100.0


async def test_an_answer_that_has_lain_here_while_the_process_was_stopped_is_none() -> None:
    seen: list[str] = []
    now = asyncio.get_running_loop().time()
    link = probing._Link("a:1", ServerAccess(), 1.0, lambda server, process: seen.append(process), ("PING",), now - 60)
    link._asked_at = now - 60
    link.answers("1" * 40, b"role:master")
    assert (link.answered, link.said, link.heard, seen) == (False, None, now - 60, [])
    link._asked_at = now - 0.5
    link.answers("1" * 40, b"role:master")
    assert (link.answered, link.said, seen) == (True, (now - 0.5, b"role:master"), ["1" * 40])


async def test_a_server_that_is_asked_rarely_is_not_silent_in_between(
    monkeypatch: pytest.MonkeyPatch, redis_address: str
) -> None:
    """given more servers than one process can ask as often as it should."""
    monkeypatch.setattr(probing, "MOST_A_SECOND", 1)
    seen: list[str] = []
    named: list[float] = []
    one = Probing(ServerAccess(), 5.0, lambda server, process: seen.append(process))
    one.keep([redis_address])

    def asked_again() -> bool:
        if seen:
            named.extend(one.silent(0.4, 0.4)[0].values())
        return len(seen) >= 3

    await until(asked_again)
    assert named == []
    await one.close()


def test_silence_counts_from_the_latest_answer_and_from_a_little_before_the_first_question_without_one() -> None:
    link = probing._Link("a:1", ServerAccess(), 0.1, lambda server, process: None, ("PING",), 100.0)
    assert link.silence(190.0, 0.5) == 0.0
    link._owes_since = 100.25
    assert link.silence(110.0, 0.5) == 10.0
    link._owes_since = 101.5
    assert link.silence(110.0, 0.5) == 9.0
    link.held_up(5.0, 110.0)
    assert link.silence(110.0, 0.5) == 4.0
