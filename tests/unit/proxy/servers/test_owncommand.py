"""A command on a connection of its own: what is held for it, and until when."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from proxy.servers.owncommand import OwnCommand

SLOT = 5


class Surroundings:
    """The pool, the loop and the connection in one, and what they saw."""

    def __init__(self) -> None:
        self.event_loop = asyncio.get_running_loop()
        self.held: list[int] = []
        self.done: list[str] = []
        self.sent: list[tuple[bytes, float, int]] = []
        self.answer: Callable[[bytes], None] | None = None
        self.at_once: bytes | None = None
        self.full = False

    def hold_slot(self, slot: int) -> None:
        self.held.append(slot)

    def release_slot(self, slot: int) -> None:
        self.held.remove(slot)

    def call(self, payload: bytes, callback: Callable[[bytes], None], seconds: float, before: int) -> None:
        if self.full:
            raise MemoryError
        self.sent.append((payload, seconds, before))
        if self.at_once is not None:
            callback(self.at_once)
        else:
            self.answer = callback

    def come(self, reply: bytes) -> None:
        assert self.answer is not None
        self.answer(reply)

    def give_back(self, connection: Any) -> None:
        self.done.append("given back")

    def discard(self, connection: Any, reason: str) -> None:
        self.done.append("discarded")
        self.come(b"-ERR server " + reason.encode() + b"\r\n")

    def command(self, slot: int = SLOT) -> OwnCommand:
        here: Any = self
        return OwnCommand(here, here, here, slot)

    async def run(self, slot: int = SLOT) -> bytes:
        with self.command(slot) as command:
            assert self.held == ([slot] if slot >= 0 else [])
            return await command.ask(b"X", math.inf, before=2)


@pytest.fixture
async def here() -> Surroundings:
    return Surroundings()


@pytest.mark.parametrize("slot", [SLOT, -1])
async def test_until_its_reply(here: Surroundings, slot: int) -> None:
    task = asyncio.create_task(here.run(slot))
    await asyncio.sleep(0)
    assert here.sent == [(b"X", math.inf, 2)]
    assert here.done == []
    assert here.held == ([slot] if slot >= 0 else [])
    here.come(b"+OK\r\n")
    assert here.held == []
    assert await task == b"+OK\r\n"
    assert here.done == ["given back"]


async def test_drained_a_client_that_leaves_costs_the_connection(here: Surroundings) -> None:
    task = asyncio.create_task(here.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert here.held == []
    assert here.done[0] == "discarded"


async def test_nothing_was_sent(here: Surroundings) -> None:
    with here.command() as command:
        assert here.held == [SLOT]
    assert command.over
    assert here.held == []
    assert here.done == ["given back"]


async def test_without_memory_nothing_is_held(here: Surroundings) -> None:
    here.full = True
    with pytest.raises(MemoryError):
        await here.run()
    assert here.held == []
    assert here.done == ["given back"]


async def test_a_connection_that_is_lost_answers_at_once(here: Surroundings) -> None:
    here.at_once = b"-ERR lost\r\n"
    assert await here.run() == b"-ERR lost\r\n"
    assert here.held == []
    assert here.done == ["given back"]
