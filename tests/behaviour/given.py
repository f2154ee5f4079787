"""How things are when a feature begins."""

import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slots import ranges
from slots.functions import slot
from tests.behaviour import then, when
from tests.behaviour.clients import Clients
from tests.behaviour.whole import GROUPS, WholeCluster
from tests.integration.cluster.harness import Counting, check_clean, eventually, plain_client, traffic_on
from tests.integration.cluster.held import Move, migrating

SLOTS = 1024
OLD = next(key for key in (f"old:{n}" for n in range(9999)) if 342 <= slot("crc32", key.encode(), SLOTS) < 683)
"""A key of group 2."""
CONNECTIONS = 24
"""Connections to a proxy: so many that each of its workers has some."""
FIRST, SECOND, THIRD, FOURTH = "rack-1", "rack-2", "rack-3", "rack-4"
"""Nodes."""


async def all_is_well(cluster: WholeCluster) -> None:
    """All topoms are there, no slot has anything to do, and the proxies have the newest table and reach all masters."""
    await cluster.all_well()
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest()
    await cluster.online(2)
    await every_worker_reaches_every_group(cluster)


async def every_worker_reaches_every_group(cluster: WholeCluster) -> None:
    """That may take a while if the feature before killed a server: a worker tries to connect again only now and
    then."""
    names = [f"well:{number}" for number in range(64)]

    async def ask_all() -> bool:
        for address in cluster.proxy_addresses:
            for _ in range(CONNECTIONS):
                async with plain_client(address) as client:
                    await client.exists(*names)
        return True

    await eventually(ask_all, bool, "every worker to reach every group")


async def keys_nobody_touches(cluster: WholeCluster) -> None:
    """Some thousand of them."""
    await cluster.load_ballast()


@asynccontextmanager
async def clients_at_work(cluster: WholeCluster) -> AsyncIterator[Clients]:
    """They use keys of all groups, through both proxies; at the end every key is as it was answered last."""
    async with Clients(cluster.proxy_addresses) as clients:
        yield clients
    for address in cluster.proxy_addresses:
        await clients.check(address)


@asynccontextmanager
async def checked_traffic(cluster: WholeCluster) -> AsyncIterator[None]:
    """Commands of many kinds in two databases; at the end every key is as it was last written, and where it has to be.

    There is no error, at any time. Keys of earlier traffic are removed first.
    """
    for database, master in itertools.product((0, 3), (await cluster.masters()).values()):
        async with plain_client(master, db=database) as client:
            if left := [key async for key in client.scan_iter("traffic:*", 1000)]:
                await client.unlink(*left)
    async with traffic_on(cluster.proxy_addresses, keys=500, rate=200) as traffic:
        yield
        await cluster.online(2)
        await check_clean(traffic, await cluster.layout())


async def clients_of_group(cluster: WholeCluster, group: int) -> Counting:
    """They use keys of this group alone, of slots that no feature moves, and go on whatever errors they get."""
    owners = [entry["group_id"] for entry in (await cluster.api.slots())["slots"]]
    last = max(number for number, owner in enumerate(owners) if owner == group)
    tags = (f"{secrets.token_hex(4)}-group-{group}" for _ in itertools.count())
    tag = next(tag for tag in tags if slot("crc32", tag.encode(), SLOTS) == last)
    return Counting(cluster.proxy_addresses[group % 2], 4, f"{{{tag}}}")


async def slots_on_their_way(cluster: WholeCluster) -> Move:
    """Some slots have begun to move, and are slow."""
    move = Move(cluster, (await cluster.api.slots())["slots"][0]["group_id"])
    await migrating(move)
    return move


async def every_master_has_its_replica(cluster: WholeCluster) -> None:
    """It follows, and has all that its master has."""
    for group in GROUPS:
        await then.the_others_follow(cluster, group)


async def the_sentinels_watch_every_group(cluster: WholeCluster) -> None:
    """Each knows both others, the master and the replica. Before that, no Sentinel can fail over."""
    every = [(1, 2)] * len(GROUPS) * len(cluster.sentinels)

    async def known() -> list[tuple[int, int]]:
        found = [await sentinel.fields(group) for sentinel in cluster.sentinels for group in GROUPS]
        return [(int(one["num-slaves"]), int(one["num-other-sentinels"])) for one in found]

    await eventually(known, lambda found: found == every, "the Sentinels to know all there is to know")


async def topoms_are_to_decide_who_is_master(cluster: WholeCluster) -> None:
    """The Sentinels no longer decide: they are removed, and topoms have the setting ``ha = "topom"`` at the next
    start."""
    for sentinel in (await cluster.api.sentinels())["sentinels"]:
        await cluster.api.remove_sentinel(sentinel["address"])
    for topom in cluster.topoms:
        assert topom.environment is not None
        topom.environment = {**topom.environment, "SLOTFERRY_TOPOM_HA": "topom", "SLOTFERRY_TOPOM_SENTINELS": ""}


async def topoms_decide_who_is_master(cluster: WholeCluster) -> None:
    """They have been started again with that setting, and a majority of views of every server is there."""
    if (await cluster.api.sentinels())["ha"] != "topom":
        await topoms_are_to_decide_who_is_master(cluster)
        for number in await when.topoms_in_turn(cluster):
            await when.a_topom_is_started_again(cluster, number)
            await then.it_serves_again(cluster, number)

    async def seen() -> set[tuple[str, int]]:
        found = [server for group in await cluster.api.groups() for server in group["servers"]]
        return {(server["condition"], server["views"]) for server in found}

    # topom's view, and the two proxies'.
    await eventually(seen, lambda found: found == {("alive", 3)}, "three views of each server")


async def what_masters_have_is_at_their_replicas(cluster: WholeCluster) -> None:
    """All that was written until now."""
    for master in (await cluster.masters()).values():
        async with plain_client(master) as client:
            assert await client.wait(1, 60_000) == 1


async def an_empty_server(cluster: WholeCluster) -> str:
    """One that is in no group; its address."""
    return (await cluster.add_server(0)).address


async def a_server_with_old_data(cluster: WholeCluster) -> str:
    """One that is in no group, with another value of :data:`OLD` and a key that the cluster does not have; its
    address."""
    address = await an_empty_server(cluster)
    async with plain_client(address) as client:
        await client.mset({OLD: "old", "gone": "old"})
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.set(OLD, "new")
    return address


async def a_group_of_its_own(cluster: WholeCluster, group: int, slots: str) -> None:
    """Another group, of one server, which has some slots."""
    address = await an_empty_server(cluster)
    await cluster.api.add_group(group, [address])
    await cluster.api.move_slots(slots, group)
    # A topom that follows may still answer with the table from before.
    await eventually(
        cluster.api.groups,
        lambda found: {one["id"]: one["slots"] for one in found}.get(group) == len(ranges.parse(slots, 1024)),
        "the group to have its slots",
    )
    await cluster.at_rest()


async def servers_are_on_two_nodes(cluster: WholeCluster, one: str, other: str) -> None:
    """One server of each group; the masters of groups 1 and 3 are on the first node."""
    for group, (master, replica) in (await cluster.members()).items():
        for address, node in zip((master, replica), (other, one) if group == 2 else (one, other), strict=True):
            await cluster.api.set_place(group, address, node=node)


async def servers_of_the_pool(cluster: WholeCluster, node: str) -> None:
    """One for each group, empty, on a node of their own."""
    for _ in GROUPS:
        await cluster.api.add_to_pool(await an_empty_server(cluster), node=node)
