"""A slow server and a slow process of our own are told apart."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from migrator import latency
from migrator.connection import Timeouts
from migrator.feedback import Sample
from migrator.latency import LoopDelay, probe
from slots.access import ServerAccess

Start = Callable[[Callable[[list[bytes]], bytes | None]], Awaitable[Any]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "RETRY_SECONDS", 0.01)


@asynccontextmanager
async def probing(
    address: str, interval: float = 0.01, timeouts: Timeouts | None = None
) -> AsyncIterator[list[Sample]]:
    """Samples of a server, as they come, one in so many seconds."""
    samples: list[Sample] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latency, "PROBE_SECONDS", interval)
        async with _probing(address, timeouts or Timeouts(), samples):
            yield samples


@asynccontextmanager
async def _probing(address: str, timeouts: Timeouts, samples: list[Sample]) -> AsyncIterator[None]:
    task = asyncio.create_task(probe(address, "probe", ServerAccess(), timeouts, lambda: True, samples.append))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


class SlowServer:
    """A server that keeps each request for a while without holding up this process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.address = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while await reader.read(1000):
            await asyncio.sleep(self.seconds)
            writer.write(b"+PONG\r\n")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SlowServer"]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield self
        for writer in self._writers:
            writer.close()
        server.close()


async def test_a_slow_server_is_seen_as_slow() -> None:
    async with SlowServer(0.2).running() as server, probing(server.address, 1.0) as samples:
        await until(lambda: bool(samples))
    assert all(sample.seconds >= 0.19 for sample in samples)
    assert any(sample.at_server > 0.1 for sample in samples)


async def test_a_long_answer_counts_for_the_requests_that_it_kept_away() -> None:
    async with SlowServer(0.4).running() as server, probing(server.address, 0.04) as samples:
        await until(lambda: len(samples) >= 10)
    longest = max(samples, key=lambda sample: sample.seconds)
    together = [sample for sample in samples if sample.at == longest.at]
    assert len(together) >= 9
    due = sorted(longest.seconds - sample.seconds for sample in together)
    steps = [after - before for before, after in pairwise(due)]
    assert min(steps) >= 0.02 * 0.99
    assert max(steps) <= 0.06 * 1.01
    assert max(steps) - min(steps) > 0.001, "at irregular intervals"
    assert min(sample.seconds for sample in together) >= 0


@pytest.mark.long
async def test_a_slow_server_is_asked_as_often_as_a_fast_one() -> None:
    """given answers that take three quarters of the interval, they do not make it longer."""
    async with SlowServer(0.03).running() as server, probing(server.address, 0.04) as samples:
        await until(lambda: bool(samples))
        began, before = time.monotonic(), len(samples)
        await asyncio.sleep(2)
        rate = (len(samples) - before) / (time.monotonic() - began)
    assert rate > 0.75 / 0.04, "by intervals that begin with the answer, it were 0.57"


async def test_one_answer_counts_for_a_bounded_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "MOST_MISSED", 5)
    async with SlowServer(0.4).running() as server, probing(server.address, 0.01) as samples:
        await until(lambda: len(samples) >= 12)
    longest = max(samples, key=lambda sample: sample.seconds)
    assert sum(sample.at == longest.at for sample in samples) == 6


async def test_requests_end_when_they_are_not_wanted() -> None:
    samples: list[Sample] = []
    async with SlowServer(0.0).running() as server:
        wanted = probe(server.address, "probe", ServerAccess(), Timeouts(), lambda: len(samples) < 3, samples.append)
        await asyncio.wait_for(wanted, 20)
    assert len(samples) >= 3


@contextmanager
def quick_server() -> Iterator[str]:
    """A server that answers each request at once, whatever this thread does; gives its address."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(ConnectionError):
            while connection.recv(1000):
                connection.sendall(b"+PONG\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


async def test_our_own_delay_is_not_taken_for_the_servers() -> None:
    """given a loop that is held up for 50 ms again and again, hardly a sample of a quick server is held against it."""
    held_up: list[Sample] = []
    with quick_server() as address:
        async with probing(address, 0.001) as samples:
            await until(lambda: bool(samples))
            while len(held_up) < 10:
                time.sleep(0.05)  # noqa: ASYNC251 - that is what is tested
                await asyncio.sleep(0.001)
                held_up = [sample for sample in samples if sample.seconds > 0.049]
    # The server's thread may have had to wait for a processor, too.
    assert sum(sample.at_server > 0.04 for sample in held_up) <= 2


async def test_the_loops_delay_is_the_longest_one_and_the_one_that_runs() -> None:
    with LoopDelay() as delay:
        await asyncio.sleep(0.005)
        time.sleep(0.05)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
    assert delay.until(time.monotonic()) >= 0.04
    with LoopDelay() as delay:
        time.sleep(0.05)  # noqa: ASYNC251
    assert delay.until(time.monotonic()) >= 0.04, "the timer had no chance to say so"
    with LoopDelay() as delay:
        pass
    assert delay.until(time.monotonic()) < 0.04


async def test_a_lost_connection_is_opened_again(scripted: Start) -> None:
    replies = {"count": 0}

    def answer(command: list[bytes]) -> bytes | None:
        replies["count"] += 1
        return None if replies["count"] == 5 else b"-NOPERM you may not\r\n" if command[0] == b"PING" else b"+OK\r\n"

    server = await scripted(answer)
    async with probing(server.address) as samples:
        await until(lambda: len(samples) > 10)
    names = [command for command in server.commands if command[0] == b"CLIENT"]
    assert len(names) == 2


async def test_a_server_that_never_answers_is_a_slow_one(scripted: Start) -> None:
    server = await scripted(lambda command: b"" if command[0] == b"PING" else b"+OK\r\n")
    async with probing(server.address, timeouts=Timeouts(reply_seconds=0.1)) as samples:
        await until(lambda: len(samples) >= 2)
    assert all(sample.seconds >= 0.1 for sample in samples)


async def test_a_server_that_is_not_there_is_asked_again() -> None:
    slow = SlowServer(0.0)
    async with slow.running():
        pass
    async with probing(slow.address) as samples:
        await asyncio.sleep(0.05)
        assert not samples
        server = await asyncio.start_server(slow.serve, "127.0.0.1", int(slow.address.split(":")[1]))
        await until(lambda: bool(samples))
        server.close()
