"""How things are when a feature begins."""

import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from slots.functions import slot
from tests.behaviour import then, when
from tests.behaviour.clients import Clients
from tests.behaviour.whole import GROUPS, WholeCluster
from tests.integration.cluster.harness import Counting, eventually, plain_client

SLOTS = 1024
MOVED = 128
"""Slots that go to and fro between groups 1 and 2: the first ones."""
SLOW = 40
"""Keys a second, of some hundreds that nobody but the migrator moves."""


@dataclass(frozen=True)
class Move:
    """Slots on their way."""

    source: int
    target: int


async def all_is_well(cluster: WholeCluster) -> None:
    """All topoms are there, no slot has anything to do, and the proxies have the newest table."""
    await cluster.all_well()
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest()
    await cluster.online(2)


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


async def clients_of_group(cluster: WholeCluster, group: int) -> Counting:
    """They use keys of this group alone, of slots that no feature moves, and go on whatever errors they get."""
    owners = [entry["group_id"] for entry in (await cluster.api.slots())["slots"]]
    last = max(number for number, owner in enumerate(owners) if owner == group)
    tags = (f"{secrets.token_hex(4)}-group-{group}" for _ in itertools.count())
    tag = next(tag for tag in tags if slot("crc32", tag.encode(), SLOTS) == last)
    return Counting(cluster.proxy_addresses[group % 2], 4, f"{{{tag}}}")


async def slots_on_their_way(cluster: WholeCluster) -> Move:
    """Some slots have begun to move, and are slow."""
    source = (await cluster.api.slots())["slots"][0]["group_id"]
    move = Move(source, 3 - source)
    await cluster.api.set_migration(keys_per_second=SLOW)
    await cluster.api.move_slots(f"0-{MOVED - 1}", move.target)
    await cluster.moving(SLOW // 4)
    return move


async def every_master_has_its_replica(cluster: WholeCluster) -> None:
    """It follows, and has all that its master has."""
    for group in GROUPS:
        await then.the_others_follow(cluster, group)


async def the_sentinels_watch_every_group(cluster: WholeCluster) -> None:
    """Each knows both others, the master and the replica: before that, none can fail over."""
    every = [(1, 2)] * len(GROUPS) * len(cluster.sentinels)

    async def known() -> list[tuple[int, int]]:
        found = [await sentinel.fields(group) for sentinel in cluster.sentinels for group in GROUPS]
        return [(int(one["num-slaves"]), int(one["num-other-sentinels"])) for one in found]

    await eventually(known, lambda found: found == every, "the Sentinels to know all there is to know")


async def topoms_are_to_decide_who_is_master(cluster: WholeCluster) -> None:
    """No longer the Sentinels: they are removed, and ``ha = "topom"`` is among topoms' settings at the next start."""
    for sentinel in (await cluster.api.sentinels())["sentinels"]:
        await cluster.api.remove_sentinel(sentinel["address"])
    for topom in cluster.topoms:
        assert topom.environment is not None
        topom.environment = {**topom.environment, "SLOTFERRY_TOPOM_HA": "topom", "SLOTFERRY_TOPOM_SENTINELS": ""}


async def topoms_decide_who_is_master(cluster: WholeCluster) -> None:
    """They have been started again with that, and a majority of views of every server is there."""
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
    """What was written until now."""
    for master in (await cluster.masters()).values():
        async with plain_client(master) as client:
            assert await client.wait(1, 60_000) == 1
