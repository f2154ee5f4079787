"""The end of a worker whose clients wait for keys."""

import asyncio

from proxy.moving.migrating import KeyMover
from proxy.settings import ProxySettings
from tests.unit.proxy.engine.inprocess import engine


async def test_a_worker_that_ends_begins_no_more_moves() -> None:
    """given a batch that is due once the background work was stopped: nobody would end its work."""
    begun: list[None] = []

    async def work() -> None:
        begun.append(None)

    with engine("127.0.0.1:1") as made:
        mover = KeyMover(made.router, ProxySettings())
        mover.start(work())
        await asyncio.sleep(0)
        await mover.close()
        mover.start(work())
        await asyncio.sleep(0)
    assert len(begun) == 1
    assert not mover._tasks
