"""A leader that was paused wakes after another one has taken over: it can undo nothing, and fences no proxy.

What becomes of slots in each of their states when the leader goes: :mod:`tests.behaviour.test_features`. The same over
ZooKeeper: :mod:`tests.integration.cluster.test_topoms_over_zookeeper`.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import AuthenticationError, RedisError

from slotferry.calls import TopomRefused
from slotferry.client import TopomClient
from slots.connections import fence_user
from slots.functions import slot
from tests.integration.cluster.harness import check_clean, eventually, in_flight, plain_client, running, traffic_on
from tests.integration.cluster.held import MOVED, goes_on, held, terms_at, wakes_in_vain
from tests.integration.cluster.several import SeveralTopoms
from tests.integration.cluster.test_rule_changes import over
from tests.integration.stores.servers import need_etcd


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SeveralTopoms]:
    need_etcd()
    yield from running(  # type: ignore[misc]
        SeveralTopoms(
            topoms=2,
            groups=2,
            proxies=2,
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


@pytest.mark.long
async def test_a_leader_that_wakes_cannot_undo_a_move_that_was_turned_meanwhile(cluster: SeveralTopoms) -> None:
    """It was moving keys when it was paused; its successor brought them back."""
    former = await cluster.all_well()
    source = (await cluster.api.slots())["slots"][0]["group_id"]
    await cluster.load_ballast()
    async with (
        traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic,
        held(cluster, "migrating"),
    ):
        cluster.pause_topom(former)
        leader, _ = await cluster.taken_over(former)
        async with cluster.asking(leader):
            await cluster.api.cancel_migration()
        await goes_on(cluster, leader, source)
        await wakes_in_vain(cluster, leader, former)
        for marks in await terms_at(cluster):
            assert int(marks[b"term"]) > 1
            assert marks[b"ended"] == marks[b"term"]
        await check_clean(traffic, await cluster.layout())
    await cluster.check_ballast()
    assert await cluster.misplaced((0, 3)) == []


@pytest.mark.long
async def test_a_leader_that_is_paused_while_it_fences_fences_nobody_else(cluster: SeveralTopoms) -> None:
    """given a proxy that was removed and has come back as another, a late fence concerns the former identity only."""
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


@pytest.mark.long
async def test_users_outlive_the_leader_and_a_leader_that_wakes_brings_none_back(cluster: SeveralTopoms) -> None:
    """A removed user stays removed at all proxies, also while the former leader still takes itself for one."""
    former = await cluster.all_well()
    digest = hashlib.sha256(b"secret").hexdigest()

    async def gets_in(name: str) -> list[bool]:
        found = []
        for address in cluster.proxy_addresses:
            async with plain_client(address, username=name, password="secret") as client:
                try:
                    found.append(bool(await client.ping()))
                except AuthenticationError:
                    found.append(False)
        return found

    # Any topom takes the change.
    async with cluster.asking(1 - former):
        for name in ("ada", "b/ob"):
            said = await cluster.api.set_user(name, {"password_sha256": digest})
    assert (said["behind"], said["left_out"]) == ([], [])
    assert await gets_in("ada") == await gets_in("b/ob") == [True, True]
    cluster.pause_topom(former)
    leader, _ = await cluster.taken_over(former)
    async with cluster.asking(leader):
        assert [user["name"] for user in (await cluster.api.users())["users"]] == ["ada", "b/ob"]
        await cluster.online(2)
        said = await cluster.api.remove_user("ada")
        assert said["behind"] == []
        assert await gets_in("ada") == [False, False]
        await wakes_in_vain(cluster, leader, former)
        assert await gets_in("ada") == [False, False]
        assert await gets_in("b/ob") == [True, True]
        assert (await cluster.api.remove_user("b/ob"))["users"] == []
        assert await gets_in("b/ob") == [False, False]


@pytest.mark.long
async def test_a_leader_that_is_paused_while_slot_rules_change(cluster: SeveralTopoms) -> None:
    """All proxies have locked for it when it is paused. Its successor takes the change back, and makes it anew."""
    former = await cluster.all_well()
    rule = {"pattern": "bull:(*):*", "database": None}
    slots = (await cluster.api.slots())["slots"]
    # Its server is the one whose writes wait. A key of that server would wait there, if the lock is not there yet.
    tag = next(f"{{{number}}}" for number in range(100) if is_of_group_1(slots, f"{{{number}}}"))
    queue = next(f"bull:{number}:0" for number in range(100) if not is_of_group_1(slots, f"bull:{number}:0"))
    async with (
        plain_client(cluster.proxy_addresses[0], client_name="writes") as writer,
        plain_client(cluster.proxy_addresses[0]) as client,
        plain_client(cluster.proxy_addresses[1]) as other,
        plain_client(await cluster.master_of(1)) as server,
    ):

        async def used() -> list[bool]:
            found = []
            for one in (client, other):
                with suppress(RedisError):
                    found.append(bool(await one.set(queue, "1")))
            return found

        await server.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        # The lock waits for it.
        writing = asyncio.create_task(writer.set(tag, "1"))
        await in_flight(client, "writes")
        await cluster.api.change_rules([rule], [])
        await eventually(cluster.api.rules, lambda found: found["change"]["stage"] == "locking", "the lock")
        await eventually(used, lambda found: not found, "clients to be kept off")
        cluster.pause_topom(former)
        await server.execute_command("CLIENT", "UNPAUSE")
        assert await writing
        leader, _ = await cluster.taken_over(former)
        async with cluster.asking(leader):
            await eventually(used, lambda found: found == [True, True], "the change to be taken back")
            await client.delete(queue)
            await eventually(lambda: changed(cluster, [rule], []), bool, "the change to be made anew")
            assert await used() == [True, True]
            await wakes_in_vain(cluster, leader, former)
            assert [rule["pattern"] for rule in (await cluster.api.rules())["rules"]] == [rule["pattern"]]
            assert await used() == [True, True]
            await client.delete(queue, tag)
            await eventually(lambda: changed(cluster, [], [rule]), bool, "the old rules")


def is_of_group_1(slots: list[dict[str, Any]], key: str) -> bool:
    """Whether group 1 owns a key's slot."""
    owner: int = slots[slot("crc32", key.encode(), len(slots))]["group_id"]
    return owner == 1


async def changed(cluster: SeveralTopoms, added: list[dict[str, Any]], removed: list[dict[str, Any]]) -> bool:
    """Change the slot rules; whether that was done."""
    try:
        await cluster.api.change_rules(added, removed)
    except TopomRefused:
        return False
    return (await over(cluster))["stage"] == "done"
