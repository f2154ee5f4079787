"""The topom that leads is killed, or paused and woken, in each state that slots pass, under checked traffic.

Another leads, goes on from the store, and the batch ends. The old one, woken, follows, and changes nothing: no key is
moved from where its successor has put it, no state is stored, no table is given out.

States are held as in :mod:`tests.integration.cluster.test_topom_killed`.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from cli.calls import TopomRefused
from cli.client import TopomClient
from slots.connections import fence_user
from slots.moving import LEADER
from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.harness import (
    PATIENT,
    check_clean,
    eventually,
    log_of,
    plain_client,
    running,
    traffic_on,
)
from tests.integration.cluster.several import LEASE_SECONDS, SeveralTopoms
from tests.integration.stores.servers import need_etcd

MOVED = 256
SLOW = 100
SLACK_SECONDS = 5.0
"""What this machine may add to twice the lease."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SeveralTopoms]:
    need_etcd()
    yield from running(  # type: ignore[misc]
        SeveralTopoms(
            topoms=2,
            groups=2,
            proxies=2,
            topom_settings={"barrier_seconds": 30, "proxy_lease_seconds": 20},
            proxy_settings=PATIENT,
        )
    )


@pytest.fixture
async def cluster(shared_cluster: SeveralTopoms) -> AsyncIterator[SeveralTopoms]:
    """The cluster at rest, without keys, with both topoms well."""
    async with shared_cluster.visit():
        await shared_cluster.all_well()
        await shared_cluster.flush()
        await shared_cluster.at_rest()
        yield shared_cluster


@dataclass
class Move:
    """Slots on their way from the group that has them to the other one, and who leads."""

    cluster: SeveralTopoms
    source: int
    leader: int
    stack: AsyncExitStack
    after: Callable[[], None] = lambda: None
    """What lets the state go, once another leads."""

    @property
    def target(self) -> int:
        return 3 - self.source

    async def begin(self) -> None:
        await self.cluster.api.move_slots(f"0-{MOVED - 1}", self.target)

    def stop_worker(self) -> None:
        pid = self.cluster.worker_pids(1)[0]
        os.kill(pid, signal.SIGSTOP)
        self.after = lambda: os.kill(pid, signal.SIGCONT)


async def preparing(move: Move) -> None:
    move.stop_worker()
    await move.begin()
    await move.cluster.in_state("preparing")


async def prepared(move: Move) -> None:
    await move.stack.enter_async_context(move.cluster.held_locked(move.begin, move.source, MOVED))


async def migrating(move: Move) -> None:
    await move.cluster.api.set_migration(keys_per_second=SLOW)
    await move.begin()
    await move.cluster.moving(10)


async def finished(move: Move) -> None:
    await migrating(move)
    move.stop_worker()
    await move.cluster.api.set_migration(keys_per_second=0)
    await move.cluster.in_state("finished")


async def test_the_leader_goes_in_each_state(cluster: SeveralTopoms) -> None:
    """The slots move to and fro; each time the leader goes in another state, and what held the state lets go."""
    await cluster.load_ballast()
    async with traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic:
        for reach, pause in ((preparing, False), (prepared, True), (finished, True), (migrating, False)):
            former = await cluster.all_well()
            async with AsyncExitStack() as held:
                move = Move(cluster, (await cluster.api.slots())["slots"][0]["group_id"], former, held)
                await reach(move)
                if pause:
                    cluster.pause_topom(former)
                else:
                    await cluster.topoms[former].kill()
                leader, seconds = await cluster.taken_over(former)
                assert seconds < 2 * LEASE_SECONDS + SLACK_SECONDS
                print(f"{reach.__name__}: another leads after {seconds:.2f} s")
                if not pause:
                    cluster.topoms[former].start()
                move.after()
            await goes_on(cluster, leader, move.target)
            if pause:
                await wakes_in_vain(cluster, leader, former)
        await cluster.online(2)
        await check_clean(traffic, await cluster.layout())
    await cluster.check_ballast()
    assert await cluster.misplaced((0, 3)) == []


async def goes_on(cluster: SeveralTopoms, leader: int, group: int) -> None:
    """The new leader brings the slots to rest in this group."""
    async with cluster.asking(leader):
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest()
        assert {slot["group_id"] for slot in (await cluster.api.slots())["slots"][:MOVED]} == {group}


async def wakes_in_vain(cluster: SeveralTopoms, leader: int, former: int) -> None:
    """The former leader goes on, and finds that it follows; what is stored stays as it is."""
    async with cluster.asking(leader):
        before = await cluster.api.slots()
        terms = await terms_at(cluster)
        cluster.resume_topom(former)
        await eventually(
            lambda: cluster.health(former),
            lambda said: said == {"ok": True, "leads": False},
            "the former leader to follow",
        )
        await eventually(
            lambda: said_since_it_led(cluster, former), lambda said: "leading_ended" in said, "its term to end"
        )
        assert await cluster.api.slots() == before
        assert await terms_at(cluster) == terms
    async with cluster.asking(former):
        assert (await cluster.api.slots())["slots"] == before["slots"]


async def said_since_it_led(cluster: SeveralTopoms, topom: int) -> list[str]:
    """The events of its log after it last came to lead."""
    events = [entry["event"] for entry in log_of(cluster.topoms[topom])]
    return events[len(events) - events[::-1].index("leading") :]


async def terms_at(cluster: SeveralTopoms) -> list[dict[bytes, bytes]]:
    """Which leaders' migrators the servers have seen."""
    found = []
    for group in (1, 2):
        async with plain_client(cluster.groups[group][0]) as client:
            found.append(await client.hgetall(LEADER))
    return found


async def test_a_leader_that_wakes_cannot_undo_a_move_that_was_turned_meanwhile(cluster: SeveralTopoms) -> None:
    """It was moving keys when it was paused; its successor brought them back."""
    former = await cluster.all_well()
    source = (await cluster.api.slots())["slots"][0]["group_id"]
    await cluster.load_ballast()
    async with traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic, AsyncExitStack() as held:
        await migrating(Move(cluster, source, former, held))
        cluster.pause_topom(former)
        leader, _ = await cluster.taken_over(former)
        async with cluster.asking(leader):
            await cluster.api.cancel_migration()
        await goes_on(cluster, leader, source)
        await wakes_in_vain(cluster, leader, former)
        for marks in await terms_at(cluster):
            assert int(marks[b"term"]) > 1
            assert marks[b"alone"] == marks[b"term"]
        await check_clean(traffic, await cluster.layout())
    await cluster.check_ballast()
    assert await cluster.misplaced((0, 3)) == []


async def test_a_leader_that_is_paused_while_it_fences_fences_nobody_else(cluster: SeveralTopoms) -> None:
    """given a proxy that was removed and has come back as another, a late fence concerns the one that is no more."""
    former = await cluster.all_well()
    removed = (await cluster.online(2))[1]
    server = cluster.servers[2][0].pid
    everywhere = [cluster.groups[group][0] for group in (1, 2)]
    fence = fence_user(removed["instance"])
    os.kill(server, signal.SIGSTOP)
    async with TopomClient(cluster.urls[former], cluster.token) as client:
        removing = asyncio.create_task(client.remove_proxy(removed["id"], force=True))
        try:
            await eventually(
                lambda: cluster.fence_users(everywhere[0]), lambda found: fence in found, "a fence at the first server"
            )
            cluster.pause_topom(former)
            leader, _ = await cluster.taken_over(former)
            os.kill(server, signal.SIGCONT)
        finally:
            removing.cancel()
            await asyncio.gather(removing, return_exceptions=True)
    async with cluster.asking(leader):
        source = (await cluster.api.slots())["slots"][0]["group_id"]
        await cluster.api.move_slots(f"0-{MOVED - 1}", 3 - source)
        await cluster.at_rest()
        present = [proxy["instance"] for proxy in await cluster.online(2)]
        assert removed["instance"] not in present
        await wakes_in_vain(cluster, leader, former)
        assert [proxy["instance"] for proxy in await cluster.online(2)] == present
        for address in everywhere:
            fenced = set(await cluster.fence_users(address))
            assert fence in fenced
            assert not fenced & {fence_user(instance) for instance in present}


async def test_the_store_is_cut_off_and_comes_back(cluster: SeveralTopoms) -> None:
    """given no store, topoms say so and change nothing, and proxies serve on."""
    async with traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic:
        cluster.etcd.pause()
        for number in (0, 1):
            await eventually(
                lambda number=number: cluster.health(number),  # type: ignore[misc]
                lambda said: said.get("ok") is False and "etcd" in said["reason"],
                "topom to say that the store is cut off",
            )
        with pytest.raises(TopomRefused, match="etcd"):
            await cluster.api.move_slots("0", 2)
        shown = await status_of(cluster)
        assert "NOTHING CAN BE CHANGED NOW" in shown
        cluster.etcd.resume()
        await cluster.all_well()
        await cluster.online(2)
        await check_clean(traffic, await cluster.layout())
    shown = await status_of(cluster)
    assert "NOTHING CAN BE CHANGED" not in shown
    for text in (*cluster.urls, "leads", "follows"):
        assert text in shown
    leader = await cluster.all_well()
    assert await cluster.topoms[leader].stop() == 0
    _, seconds = await cluster.taken_over(leader)
    print(f"stopped in order: another leads after {seconds:.2f} s")
    cluster.topoms[leader].start()


async def status_of(cluster: SeveralTopoms) -> str:
    """What the command line shows."""
    outcome = await slotferry("status", SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token, COLUMNS="250")
    assert outcome.status == 0, outcome
    return outcome.out
