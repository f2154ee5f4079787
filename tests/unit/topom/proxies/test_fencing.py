"""The fences of removed proxies are put up everywhere by themselves."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping

import pytest

from tests.unit.topom.operators import eventually
from tests.unit.topom.proxies.test_barrier import remove
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom import periodic
from topom.proxies import fencing
from topom.proxies.fencing import Fences
from topom.servers.redis_servers import Fencing

MakeBench = Callable[..., Awaitable[Bench]]


async def test_fences_come_up_everywhere_by_themselves(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(fencing, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(periodic, "PAUSE_SECONDS", 0.01)
    one = await bench()
    await remove(one, await FakeProxy(one, 1).register())
    one.fencer.down.add("s3:6379")
    fences = Fences(one.ledger, one.barrier, lambda server: server not in one.fencer.down)
    running = asyncio.create_task(fences.run())
    await eventually(lambda: len(one.ledger.state.marked) == 2)
    await eventually(lambda: fences.says == "1 removed proxy is not fenced off every server yet")
    one.fencer.down.clear()
    await eventually(lambda: not one.ledger.state.fenced and not fences.says)
    running.cancel()


async def test_servers_that_are_alive_are_fenced_often_and_others_seldom(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "FIRST_SECONDS", 1000.0)
    monkeypatch.setattr(fencing, "LONGEST_SECONDS", 1000.0)
    monkeypatch.setattr(fencing, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(periodic, "PAUSE_SECONDS", 0.01)
    one = await bench()
    await remove(one, await FakeProxy(one, 1).register())
    one.fencer.down |= {"s2:6379", "s3:6379"}
    asked: Counter[str] = Counter()
    fence = one.fencer.fence

    async def count(wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        asked.update(wanted.keys())
        return await fence(wanted)

    monkeypatch.setattr(one.fencer, "fence", count)
    running = asyncio.create_task(Fences(one.ledger, one.barrier, lambda server: server != "s3:6379").run())
    await eventually(lambda: asked["s2:6379"] > 5)
    assert asked["s3:6379"] == 1
    # When: another proxy is removed. Then: all are asked at once.
    await remove(one, await FakeProxy(one, 2).register())
    await eventually(lambda: asked["s3:6379"] == 2)
    running.cancel()
