"""Reads and deletes in parts, when some parts break off: what the client is told, and when the slots are let go."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.engine.router import MIGRATING
from proxy.moving.fulltargets import FullTargets, _Part, _Request
from proxy.moving.move import Sleeper

ERROR = b"-TRYAGAIN the key is on its way; nothing was run\r\n"
SAID = b"-TRYAGAIN the key is on its way; some keys may be deleted\r\n"
RunPart = Callable[[_Request, _Part], Awaitable[bytes | None]]


class Scene:
    """A session whose request has a key in each of two slots, which are in use while it runs."""

    def __init__(self, run_part: RunPart, name: bytes = b"DEL") -> None:
        self.in_use: list[int] = []
        self.replies: list[bytes] = []
        keys = {b"a": 1, b"b": 2}
        payload = b""
        session = SimpleNamespace(
            front=lambda: ([name, *keys], payload),
            stage=0,
            database=0,
            complete=self.replies.append,
            has_left=lambda: False,
        )
        loop = SimpleNamespace(hold_slot=self.in_use.append, release_slot=self.in_use.remove)
        router = SimpleNamespace(
            loop=loop, slot_of_key=lambda database, key: keys[key], route=lambda slot: (MIGRATING, "target:1", 1)
        )
        self.targets = FullTargets(*cast(Any, (router, None, None, None, None)), start=self._start)
        self.targets._run_part = run_part  # type: ignore[method-assign, assignment]
        assert self.targets.begin(cast(Sleeper, SimpleNamespace(session=session)), ERROR)
        assert self.in_use == [1, 2]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.create_task(work)


async def test_drained_slots_are_in_use_until_all_parts_have_ended() -> None:
    going_on, ended = asyncio.Event(), asyncio.Event()

    async def run_part(request: _Request, part: _Part) -> bytes | None:
        if part.slot == 1:
            raise OSError("it broke off")
        part.touched = True
        going_on.set()
        await ended.wait()
        return b":1\r\n"

    scene = Scene(run_part)
    await going_on.wait()
    await asyncio.wait([scene.task], timeout=0.05)
    assert scene.in_use == [1, 2]
    assert not scene.replies
    ended.set()
    await scene.task
    assert scene.in_use == []
    assert scene.replies == [SAID]


@pytest.mark.parametrize("touched", [True, False])
@pytest.mark.parametrize("ends", [True, False])
async def test_nothing_was_run_is_said_only_if_it_is_so(touched: bool, ends: bool) -> None:
    """The worker ends, or a part breaks off."""
    under_way = asyncio.Event()

    async def run_part(request: _Request, part: _Part) -> bytes | None:
        if part.slot == 1:
            return ERROR
        part.touched = touched
        under_way.set()
        if not ends:
            raise OSError("it broke off")
        await asyncio.Event().wait()
        return None

    scene = Scene(run_part)
    await under_way.wait()
    if ends:
        scene.task.cancel()
    await asyncio.gather(scene.task, return_exceptions=True)
    assert scene.in_use == []
    assert scene.replies == [SAID if touched else ERROR]


async def test_a_read_in_parts_deletes_nothing() -> None:
    async def run_part(request: _Request, part: _Part) -> bytes | None:
        return ERROR

    scene = Scene(run_part, b"EXISTS")
    await scene.task
    assert scene.replies == [ERROR]
