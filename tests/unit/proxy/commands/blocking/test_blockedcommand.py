"""Ending a command that blocks: every order in which the server's two connections may be heard."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.commands.blocking.blockedcommand import ERROR, TIMEOUT, BlockedCommand
from proxy.engine.backend import command

ADDRESS = "127.0.0.1:1"
SLOT = 5
UNBLOCK = command(("CLIENT", "UNBLOCK", 7, ERROR))
NOT_BLOCKED = b":0\r\n"
UNBLOCKED = b":1\r\n"


class Connection:
    """A session's own connection that answers when the test says so."""

    address = ADDRESS
    client_id = 7

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, float, int]] = []
        self.answer: Callable[[bytes], None] | None = None

    def call(self, payload: bytes, callback: Callable[[bytes], None], seconds: float, before: int) -> None:
        self.sent.append((payload, seconds, before))
        self.answer = callback

    def come(self, reply: bytes) -> None:
        assert self.answer is not None
        answer, self.answer = self.answer, None
        answer(reply)


class Surroundings:
    """Pool, router, loop and shared connection in one, and what they saw."""

    address = ADDRESS

    def __init__(self) -> None:
        self.connection = Connection()
        self.back: list[str] = []
        self.held: list[int] = []
        self.told: list[tuple[bytes, Callable[[bytes], None]]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.loop = self
        self.event_loop = asyncio.get_running_loop()

    def hold_slot(self, slot: int) -> None:
        self.held.append(slot)

    def release_slot(self, slot: int) -> None:
        self.held.remove(slot)

    def give_back(self, connection: Any) -> None:
        self.back.append("given back")

    def discard(self, connection: Any, reason: str) -> None:
        self.back.append("discarded")
        if self.connection.answer is not None:
            self.connection.come(b"-ERR server " + reason.encode() + b"\r\n")

    def shared_backend(self, address: str) -> Any:
        assert address == ADDRESS
        return self

    def ask(self, payload: bytes) -> "asyncio.Future[bytes]":
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.told.append((payload, answered.set_result))
        return answered

    def start(self, coroutine: Any) -> None:
        self.tasks.append(asyncio.create_task(coroutine))

    def blocked(self, seconds: float = 20.0, slot: int = SLOT) -> BlockedCommand:
        here: Any = self
        return BlockedCommand(here, here, seconds, self.start, here.connection, slot)

    async def tell(self, reply: bytes) -> None:
        """Answer the next CLIENT UNBLOCK, once it has been asked."""
        await until(lambda: bool(self.told))
        payload, callback = self.told.pop(0)
        assert payload == UNBLOCK
        callback(reply)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def here() -> Surroundings:
    return Surroundings()


async def run(blocked: BlockedCommand) -> bytes:
    with blocked:
        return await blocked.ask(b"BLPOP", 1.5)


async def running(here: Surroundings, blocked: BlockedCommand) -> "asyncio.Task[bytes]":
    """Run it until it is at the server."""
    task = asyncio.create_task(run(blocked))
    await until(lambda: here.connection.answer is not None)
    assert here.held == [SLOT]
    return task


async def test_a_command_that_ends_by_itself(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    here.connection.come(b"+popped\r\n")
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
    here.connection.come(b"-UNBLOCKED\r\n")
    assert await task == b"-UNBLOCKED\r\n"
    assert await blocked.unblocked()
    assert here.back == ["given back"]
    assert here.told == []


async def test_what_was_popped_just_then_is_a_reply_like_any_other(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    blocked.stop()
    await until(lambda: bool(here.told))
    here.connection.come(b"+popped\r\n")
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
    here.connection.come(b"-UNBLOCKED\r\n")
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
    with here.blocked() as blocked:
        assert here.held == [SLOT]
        blocked.stop()
        assert blocked.stopped
    assert here.held == []
    assert here.back == ["given back"]
    assert here.told == []
    assert await blocked.unblocked()


async def test_drained_it_is_followed_to_its_end_when_its_client_leaves(here: Surroundings) -> None:
    blocked = here.blocked()
    task = await running(here, blocked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The server may still run it.
    assert here.held == [SLOT]
    assert here.back == []
    assert not blocked.over
    await here.tell(UNBLOCKED)
    assert here.held == [SLOT]
    here.connection.come(b"-UNBLOCKED\r\n")
    assert here.held == []
    assert await blocked.unblocked()
    await until(lambda: here.back == ["given back"])
