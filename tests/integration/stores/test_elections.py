"""Which topom leads, if several share a store."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from slotferry.processes import ManagedProcess, until
from tests.integration.stores.conftest import Open
from topom.store import STATE
from topom.store.lease import clock
from topom.term.settings import TopomSettings

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
URL = "http://127.0.0.1:"
LIMIT_SECONDS = 60.0
"""Against hanging only."""


@pytest.fixture(params=["etcd", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_one_leads_and_the_next_follows_at_once(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    async with asyncio.timeout(LIMIT_SECONDS):
        first = await stores[0].campaign(ONE, URL + "1", 30.0)
        waiting = {
            asyncio.create_task(store.campaign(instance, URL + instance[0], 30.0))
            for store, instance in zip(stores[1:], (TWO, THREE), strict=True)
        }
        _, waiting = await asyncio.wait(waiting, timeout=0.3)
        assert len(waiting) == 2
        assert [await store.leader() for store in stores] == [first.leader] * 3
        began = clock()
        await first.resign()
        assert first.lost.is_set()
        assert not first.valid()
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert clock() - began < 20.0, "nobody waits for a lease that was given up"
        (second,) = [task.result() for task in done]
        assert len(waiting) == 1
        assert second.leader.term > first.leader.term
        assert await stores[0].leader() == second.leader
        assert second.leader.instance in (TWO, THREE)
        await second.resign()
        third = await waiting.pop()
        assert third.leader.term > second.leader.term
        assert {second.leader.instance, third.leader.instance} == {TWO, THREE}
        await third.resign()
        assert await stores[0].leader() is None


async def test_who_is_cancelled_stands_for_nothing(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    async with asyncio.timeout(LIMIT_SECONDS):
        first = await stores[0].campaign(ONE, URL, 30.0)
        given_up = asyncio.create_task(stores[1].campaign(TWO, URL, 30.0))
        await asyncio.wait([given_up], timeout=0.2)
        given_up.cancel()
        await asyncio.wait([given_up])
        third = asyncio.create_task(stores[2].campaign(THREE, URL, 30.0))
        await first.resign()
        assert (await third).leader.instance == THREE


async def test_a_closed_store_gives_its_place_up(another: Open) -> None:
    first, second = await another(), await another()
    async with asyncio.timeout(LIMIT_SECONDS):
        lease = await first.campaign(ONE, URL, 30.0)
        await first.close()
        assert lease.lost.is_set()
        assert (await second.campaign(TWO, URL, 30.0)).leader.instance == TWO


@pytest.mark.long
async def test_a_lease_is_kept(another: Open) -> None:
    store, other = await another(), await another()
    for _ in range(5):  # on a machine so loaded that a renewal is late, the place may be lost
        async with asyncio.timeout(LIMIT_SECONDS):
            lease = await store.campaign(ONE, URL, 1.5)
            contender = asyncio.create_task(other.campaign(TWO, URL, 1.5))
            await asyncio.wait([contender], timeout=2.5)
            kept = lease.valid()
            assert not (kept and contender.done())
            contender.cancel()
            await asyncio.gather(contender, return_exceptions=True)
            await lease.resign()
            if kept:
                return
            if not contender.cancelled():
                await contender.result().resign()
    pytest.fail("a lease of 1.5 s is lost within 2.5 s")


@pytest.mark.long
async def test_a_paused_leader_wakes_and_knows(another: Open, settings: TopomSettings, tmp_path: Path) -> None:
    store = await another()
    told = settings.model_dump(
        mode="json", include={"store", "store_servers", "store_prefix", "store_timeout_seconds", "data"}
    )
    arguments = [sys.executable, "-m", "tests.integration.stores.paused_leader", json.dumps(told)]
    leader = ManagedProcess("leader", arguments, tmp_path / "leader.log")
    leader.start()
    try:

        async def leads() -> bool:
            return leader.logged("leads")

        await until(leads, "the place of the leader", LIMIT_SECONDS, [leader])
        first = await store.leader()
        assert first is not None
        os.kill(leader.pid, signal.SIGSTOP)
        async with asyncio.timeout(LIMIT_SECONDS):
            second = await store.campaign(TWO, URL, 10.0)
        assert second.leader.term > first.term
        await store.book(STATE).write(0, 1, {"who": b"the new one"})
        os.kill(leader.pid, signal.SIGCONT)
        await leader.wait(LIMIT_SECONDS)
        # Events of its log stand between what it prints: it finds the store's session lost at any moment.
        answers = ("woke", "wrote", "too late", "done")
        printed = [line for line in leader.log.read_text().splitlines() if line.startswith(answers)]
        assert printed == ["woke False True", "too late", "done"], leader.tail()
        assert (await store.book(STATE).read()).documents == {"who": b"the new one"}
        assert await store.leader() == second.leader
    finally:
        await leader.kill()
