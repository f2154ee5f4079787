"""Keys that arrive at the target long after their mover has given them up, and that have lived on since.

A mover that does not hear what became of a *place* renews the permit, and moves the keys once more; a client deletes or
changes them at the target; then the first *place* arrives. It must neither bring keys back nor overwrite them.
"""

import asyncio
from itertools import count as count_up
from itertools import islice

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots.functions import slot
from tests.integration.breaking_relay import BreakingRelay, Direction, Fault, Matches, control_plane, proxies
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.faults.cluster import FaultCluster, Move
from tests.integration.faults.ways import felt

pytestmark = pytest.mark.asyncio(loop_scope="module")


def hold_places(relay: BreakingRelay, by: Matches, name: bytes) -> Fault:
    """Hold up every *place* by these peers of keys whose names have this in them.

    No proxy sends the target a command for these keys before that: a client that wants one waits until it is there.
    """
    return relay.hold(by, frozenset({Direction.TO_SERVER}), containing=name)


def keys_on_the_way(name: str, count: int) -> list[str]:
    """Keys of the slots that move."""
    named = (f"{name}:{number}" for number in count_up())
    return list(islice((key for key in named if slot("crc32", key.encode(), 1024) < 512), count))


async def arrives_late(relay: BreakingRelay, fault: Fault) -> None:
    """Let go what was held back, and wait until the target has dealt with it and with the ends behind it."""
    assert fault.only
    fault.mend()

    async def left() -> int:
        return relay.count_present(fault)

    await eventually(left, lambda count: not count, "the target to have had everything that was held back")


async def store(client: Redis, keys: list[str]) -> None:
    for key in keys:
        await client.set(key, "value")


async def until_moved(client: Redis, keys: list[str]) -> None:
    """Wait until a client is given each of the keys."""
    for key in keys:

        async def get(key: str = key) -> bytes | None:
            try:
                found: bytes | None = await client.get(key)
            except ResponseError:  # it is on its way
                return None
            return found

        await eventually(get, lambda value: value == b"value", f"{key} to be moved")


async def delete_and_change(client: Redis, keys: list[str]) -> None:
    """Delete every other key, and change the others."""
    for key in keys[::2]:
        assert await client.delete(key) == 1
    for key in keys[1::2]:
        assert await client.set(key, "changed")


async def check_deleted_and_changed(client: Redis, keys: list[str]) -> None:
    """The keys still have to be as :func:`delete_and_change` has left them."""
    assert {key: await client.get(key) for key in keys[::2]} == dict.fromkeys(keys[::2])
    assert {key: await client.get(key) for key in keys[1::2]} == dict.fromkeys(keys[1::2], b"changed")


async def check_after_late_arrival(move: Move, fault: Fault, keys: list[str]) -> None:
    """Delete half of the keys and change the others, let the bytes arrive, and look whether that holds."""
    async with plain_client(move.cluster.proxy_addresses[0]) as client:
        await delete_and_change(client, keys)
        await arrives_late(move.target_relay, fault)
        await check_deleted_and_changed(client, keys)


async def test_of_keys_that_the_migrator_moved(cluster: FaultCluster) -> None:
    move = await Move.ready(cluster)
    keys = keys_on_the_way(f"late:{move.source}", 30)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await store(client, keys)
    fault = hold_places(move.target_relay, control_plane, b"late:")
    await move.begin()
    await move.hurry()
    await felt(fault)
    await cluster.waits_for(move.target_relay.address)
    move.target_relay.restrict_to_caught(fault)
    await move.arrived()
    await check_after_late_arrival(move, fault, keys)
    assert await cluster.misplaced() == []


async def test_of_keys_that_a_proxy_moved(cluster: FaultCluster) -> None:
    move = await Move.ready(cluster)
    keys = keys_on_the_way(f"wanted:{move.source}", 6)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await store(client, keys)
        await move.begin()
        await cluster.in_state("migrating")
        await cluster.api.pause_migration()
        fault = hold_places(move.target_relay, proxies, b"wanted:")
        asked = [asyncio.create_task(client.get(key)) for key in keys]
        await felt(fault)
        await asyncio.gather(*asked, return_exceptions=True)
        move.target_relay.restrict_to_caught(fault)
        await until_moved(client, keys)
    # While the slots are on their way still; the permit is another one by now.
    await check_after_late_arrival(move, fault, keys)
    await cluster.api.resume_migration()
    await move.hurry()
    await move.arrived()
    assert await cluster.misplaced() == []


async def test_of_keys_that_a_proxy_moved_while_the_migrator_waits(cluster: FaultCluster) -> None:
    """given a migrator that is taken for dead and is not, its *place* comes over a connection that still exists."""
    move = await Move.ready(cluster)
    keys = keys_on_the_way(f"waits:{move.source}", 6)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await store(client, keys)
        fault = hold_places(move.target_relay, control_plane, b"waits:")
        await move.begin()
        await move.hurry()
        await felt(fault)
        move.target_relay.restrict_to_caught(fault)
        await until_moved(client, keys)
        await delete_and_change(client, keys)
        fault.mend()
        await move.arrived()
        await check_deleted_and_changed(client, keys)
    assert await cluster.misplaced() == []
