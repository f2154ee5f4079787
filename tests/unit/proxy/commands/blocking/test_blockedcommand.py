"""Ending a command that blocks: every order in which the server's two connections may be heard."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.commands.blocking.blockedcommand import ERROR, TIMEOUT, BlockedCommand, StoppedError
from proxy.engine.backend import command

ADDRESS = "127.0.0.1:1"
UNBLOCK = command(("CLIENT", "UNBLOCK", 7, ERROR))
NOT_BLOCKED = b":0\r\n"
UNBLOCKED = b":1\r\n"


class Connection:
    """A session's own connection that answers when the test says so."""

    address = ADDRESS
    client_id = 7

    def __init__(self) -> None:
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class Surroundings:
    """Pool, router and shared connection in one, and what they saw."""

    address = ADDRESS

    def __init__(self) -> None:
        self.connection = Connection()
        self.connected = asyncio.Event()
        self.connected.set()
        self.back: list[str] = []
        self.told: list[tuple[bytes, Callable[[bytes], None]]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def take_idle(self, address: str, database: int, protocol: int) -> Any:
        return None

    async def take(self, address: str, database: int, protocol: int) -> Any:
        await self.connected.wait()
        return self.connection

    def give_back(self, connection: Any) -> None:
        self.back.append("given back")

    def discard(self, connection: Any, reason: str) -> None:
        self.back.append("discarded")
        if not self.connection.reply.done():
            self.connection.reply.set_result(b"-ERR server " + reason.encode() + b"\r\n")

    def shared_backend(self, address: str) -> Any:
        assert address == ADDRESS
        return self

    def ask(self, payload: bytes) -> "asyncio.Future[bytes]":
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.told.append((payload, answered.set_result))
        return answered

    def start(self, coroutine: Any) -> None:
        self.tasks.append(asyncio.create_task(coroutine))

    def blocked(self, seconds: float = 20.0) -> BlockedCommand:
        here: Any = self
        return BlockedCommand(here, here, seconds, self.start)

    async def tell(self, reply: bytes) -> None:
        """Answer the next CLIENT UNBLOCK, once it has been asked."""
        await until(lambda: bool(self.told))
        payload, callback = self.told.pop(0)
        assert payload == UNBLOCK
        callback(reply)

    async def talk(self, connection: Any) -> bytes:
        reply: bytes = await connection.reply
        return reply


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def here() -> Surroundings:
    return Surroundings()


def run(here: Surroundings, blocked: BlockedCommand) -> "asyncio.Task[bytes]":
    return asyncio.create_task(blocked.run(ADDRESS, 0, 2, here.talk))


async def running(here: Surroundings, blocked: BlockedCommand) -> "asyncio.Task[bytes]":
    """Run it until it is at the server."""
    task = run(here, blocked)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_a_command_that_ends_by_itself(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    here.connection.reply.set_result(b"+popped\r\n")
    assert await task == b"+popped\r\n"
    assert here.back == ["given back"]
    assert blocked.over
    blocked.stop()
    assert here.told == []
    assert not await blocked.unblocked()


async def test_it_is_told_until_it_has_heard(here: Surroundings) -> None:
    """CLIENT UNBLOCK may be read by the server before the command is."""
    blocked = here.blocked()
    task = await running(here, blocked)
    blocked.stop()
    blocked.stop(TIMEOUT)
    for _ in range(3):
        await here.tell(NOT_BLOCKED)
    await here.tell(UNBLOCKED)
    assert here.back == []
    here.connection.reply.set_result(b"-UNBLOCKED\r\n")
    assert await task == b"-UNBLOCKED\r\n"
    assert await blocked.unblocked()
    assert here.back == ["given back"]
    assert here.told == []


async def test_what_was_popped_just_then_is_a_reply_like_any_other(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    blocked.stop()
    await until(lambda: bool(here.told))
    here.connection.reply.set_result(b"+popped\r\n")
    assert await task == b"+popped\r\n"
    # The connection is not for others yet: what it is told may reach the server late.
    assert here.back == []
    await here.tell(NOT_BLOCKED)
    assert not await blocked.unblocked()
    await until(lambda: here.back == ["given back"])


async def test_an_unblock_of_unknown_outcome_costs_the_connection(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    blocked.stop()
    await here.tell(b"-ERR server 127.0.0.1:1 closed the connection\r\n")
    await here.tell(UNBLOCKED)
    here.connection.reply.set_result(b"-UNBLOCKED\r\n")
    await task
    await until(lambda: here.back == ["discarded"])


async def test_bounded_a_server_that_does_not_end_it(here: Surroundings) -> None:
    for reply in (UNBLOCKED, None):
        here.connection = Connection()
        here.back.clear()
        here.told.clear()
        blocked = here.blocked(seconds=0.05)
        task = await running(here, blocked)
        blocked.stop()
        if reply is not None:
            await here.tell(reply)
        assert b"did not end a blocked command within 0.05 s" in await task
        await until(lambda: len(here.back) > 1)
        assert here.back[0] == "discarded"


async def test_stopped_before_it_was_sent(here: Surroundings) -> None:
    # Before it began,
    blocked = here.blocked()
    blocked.stop()
    with pytest.raises(StoppedError):
        await run(here, blocked)
    # while the connection is made,
    here.connected.clear()
    blocked = here.blocked()
    task = await running(here, blocked)
    blocked.stop()
    with pytest.raises(StoppedError):
        await task
    assert here.back == []
    # and in the moment it is there.
    here.connected.set()
    blocked = here.blocked()
    task = run(here, blocked)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    blocked.stop()
    with pytest.raises(StoppedError):
        await task
    assert here.back in (["given back"], [])
    assert blocked.over
    assert here.told == []
    assert await blocked.unblocked()


async def test_whoever_runs_it_may_be_cancelled(here: Surroundings) -> None:
    here.connected.clear()
    blocked = here.blocked()
    task = await running(here, blocked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert blocked.over
