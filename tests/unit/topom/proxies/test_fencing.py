"""The fences of removed proxies are put up everywhere by themselves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.topom.operators import eventually
from tests.unit.topom.proxies.test_barrier import remove
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom import periodic
from topom.proxies import fencing
from topom.proxies.fencing import Fences

MakeBench = Callable[..., Awaitable[Bench]]


async def test_fences_come_up_everywhere_by_themselves(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(periodic, "PAUSE_SECONDS", 0.01)
    one = await bench()
    await remove(one, await FakeProxy(one, 1).register())
    one.fencer.down.add("s3:6379")
    fences = Fences(one.ledger, one.barrier)
    running = asyncio.create_task(fences.run())
    await eventually(lambda: len(one.ledger.state.marked) == 2)
    await eventually(lambda: fences.says == "1 removed proxies are not fenced off every server yet")
    one.fencer.down.clear()
    await eventually(lambda: not one.ledger.state.fenced and not fences.says)
    running.cancel()
