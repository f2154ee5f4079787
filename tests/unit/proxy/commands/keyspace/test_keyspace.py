"""RANDOMKEY's search, among slots that switch meanwhile."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.commands.keyspace.fanout import ATTEMPTS, FanOutError
from proxy.commands.keyspace.keyspace import KeyspaceCommands
from proxy.commands.keyspace.listedkeys import ShownSlots
from proxy.commands.keyspace.moves import Moves
from proxy.commands.services import Services

PAGE = b"*2\r\n$1\r\n0\r\n*0\r\n"


class Switching:
    """A server that is asked while copied slots switch, so many times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0
        self.moves = cast(Moves, SimpleNamespace(switches=0, shown=ShownSlots(None)))

    async def settled(self) -> Moves:
        return self.moves

    async def ask_one(self, *about: Any) -> bytes:
        self.asked += 1
        if self.asked > self.times:
            return b"-ERR it has no page"
        self.moves.switches += 1
        return PAGE


def searching(server: Switching) -> KeyspaceCommands:
    services = SimpleNamespace(router=None, settings=SimpleNamespace(session_output_limit_bytes=1000))
    commands = KeyspaceCommands(cast(Services, services), lambda: server.moves)
    commands._fan_out = cast(Any, server)
    return commands


async def test_bounded_a_page_is_asked_for_again_so_many_times_only() -> None:
    server = Switching(times=10 * ATTEMPTS)
    with pytest.raises(FanOutError) as error:
        await searching(server)._search(cast(Any, SimpleNamespace(database=0)), "h:1")
    assert error.value.reply.startswith(b"-TRYAGAIN")
    assert server.asked == ATTEMPTS


async def test_a_page_is_asked_for_again_after_a_switch() -> None:
    server = Switching(times=ATTEMPTS - 1)
    assert await searching(server)._search(cast(Any, SimpleNamespace(database=0)), "h:1") is None
    assert server.asked == ATTEMPTS
