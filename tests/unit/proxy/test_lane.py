"""Keys that a lane moves: whatever fails, who waits for them is told."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from proxy import permits
from proxy.engine.router import Router
from proxy.lane import Lane
from proxy.move import Move, Origin
from proxy.permits import Permits
from proxy.settings import ProxySettings
from tests.unit.engine.inprocess import Server, Visit, engine, until

TARGET = "127.0.0.1:1"


class NoPermits(Permits):
    """Of which none can be renewed, for a reason that nobody thought of."""

    async def renew(self, source: str, target: str) -> str | None:
        raise KeyError("id")


class Mover:
    """Notes what became of moves."""

    def __init__(self, router: Router, permits: Permits) -> None:
        self.router = router
        self.settings = ProxySettings()
        self.permits = permits
        self.finished: list[tuple[Move, bytes | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def finish(self, move: Move, error: bytes | None) -> None:
        self.finished.append((move, error))

    def drop(self, move: Move) -> None:
        raise AssertionError("no other table has come")

    def found_big(self, move: Move, source: str | None) -> None:
        raise AssertionError("it is small")

    def is_current(self, move: Move, origin: Origin, target: str) -> bool:
        return True

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))


async def unsettled(visit: Visit, words: list[bytes]) -> None:
    """Answer as a source whose permit has gone."""
    visit.say(b"-UNSETTLED the permit has to be renewed\r\n")


async def test_drained_a_key_whose_permit_cannot_be_renewed_is_given_up() -> None:
    """given an error that nobody thought of, the key does not hold its slot for ever."""
    async with Server(unsettled) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            lane = Lane(mover, Origin(server.address), TARGET, 0)
            move = Move(3, (1, 0, b"key"), time.monotonic() + 0.2)
            lane.add(move)
            await until(lambda: bool(mover.finished))
            [(finished, error)] = mover.finished
            assert finished is move
            assert error is not None
            assert error.startswith(b"-TRYAGAIN")
            assert lane.idle
            lane.backend.close()


async def test_absent_first_an_odd_answer_moves_nothing() -> None:
    """given a source that answers for other keys than it was asked for, the key is not known to have left it."""

    async def odd(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"*4\r\n:2\r\n:0\r\n:0\r\n*1\r\n:7\r\n")

    async with Server(odd) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            lane = Lane(mover, Origin(server.address), TARGET, 0)
            lane.add(Move(3, (1, 0, b"key"), time.monotonic() + 0.2))
            await until(lambda: bool(mover.finished))
            [(_, error)] = mover.finished
            assert error is not None
            assert b"it answers" in error or b"others were moved" in error
            lane.backend.close()


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), OSError("gone")])
async def test_a_connection_that_is_lost_while_a_permit_is_renewed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """given a connection that uvloop has closed when something is to be written, the reason is said."""

    async def settle(*_: object) -> str:
        raise error

    monkeypatch.setattr(permits.moving, "settle", settle)
    mine = Permits(ProxySettings(), lambda: "name")
    assert await mine.renew("127.0.0.1:2", TARGET) == str(error)
    assert mine.get("127.0.0.1:2", TARGET) == ""


async def test_bounded_keys_that_are_late_are_given_up_a_batch_at_a_time() -> None:
    """given very many keys whose time is over, the worker's other clients have their turn in between."""
    async with Server(unsettled) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            lane = Lane(mover, Origin(server.address), TARGET, 0)
            for number in range(1000):
                lane.add(Move(3, (1, 0, b"%d" % number), time.monotonic() - 1.0))
            most, before = 0, 0
            while len(mover.finished) < 1000:
                await asyncio.sleep(0)
                most, before = max(most, len(mover.finished) - before), len(mover.finished)
            assert most <= mover.settings.move_batch_keys
            lane.backend.close()
