"""A key's RESTORE that arrives at the target long after the source has given it up, and the key has lived on since.

MIGRATE gives IOERR when it does not know what became of its RESTORE. The key is moved once more; a client deletes or
changes it at the target; then the first RESTORE arrives. It must neither bring the key back nor overwrite it.
"""

import asyncio
from itertools import count as count_up
from itertools import islice

import pytest

from slots.functions import slot
from tests.integration.breaking_relay import BreakingRelay, Direction, Fault, migrating_servers
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.faults.cluster import FaultCluster, Move, migrates_given_up

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESTORE = frozenset({Direction.TO_SERVER})


def keys_on_the_way(name: str, count: int) -> list[str]:
    """Keys of the slots that move."""
    named = (f"{name}:{number}" for number in count_up())
    return list(islice((key for key in named if slot("crc32", key.encode(), 1024) < 512), count))


async def given_up(move: Move, before: int) -> None:
    """Wait until the source has given up a MIGRATE, and lets others in again."""
    await eventually(
        lambda: migrates_given_up(move.source_server), lambda count: count > before, "a MIGRATE to be given up"
    )


async def arrives_late(relay: BreakingRelay, fault: Fault) -> None:
    """Let go what was held back, and wait until the target has dealt with it and with the ends behind it."""
    assert fault.only
    fault.mend()

    async def left() -> int:
        return relay.count_present(fault)

    await eventually(left, lambda count: not count, "the target to have had everything that was held back")


async def check_after_late_arrival(
    move: Move, fault: Fault, deleted: list[str], changed: list[str] | tuple[()] = ()
) -> None:
    """Delete keys and change others, let the bytes arrive, and look whether that holds."""
    async with plain_client(move.cluster.proxy_addresses[0]) as client:
        for key in deleted:
            assert await client.delete(key) == 1
        for key in changed:
            assert await client.set(key, "changed")
        await arrives_late(move.target_relay, fault)
        assert {key: await client.get(key) for key in deleted} == dict.fromkeys(deleted)
        assert {key: await client.get(key) for key in changed} == dict.fromkeys(changed, b"changed")


@pytest.mark.parametrize("stale", [False, True], ids=["RESTORE", "RESTORE REPLACE"])
async def test_of_a_key_that_the_migrator_moved(cluster: FaultCluster, stale: bool) -> None:
    """given copies at the target that nobody knows of (``stale``), what comes late is a RESTORE with REPLACE."""
    move = await Move.ready(cluster)
    keys = keys_on_the_way(f"late:{int(stale)}:{move.source}", 30)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        for key in keys:
            await client.set(key, "value")
    if stale:
        # Before that, keys of other slots make it a server that nobody knows, and no slots go there.
        await cluster.swept(move.target)
        async with plain_client(move.target_server.address) as target:
            for key in keys:
                await target.set(key, "stale")
    before = await migrates_given_up(move.source_server)
    fault = move.target_relay.hold(migrating_servers, RESTORE, containing=b"REPLACE" if stale else b"late:")
    await move.begin()
    await move.hurry()
    await given_up(move, before)
    move.target_relay.restrict_to_present(fault)
    await move.arrived()
    # Without REPLACE it can only bring back what is gone.
    if stale:
        await check_after_late_arrival(move, fault, keys[::2], keys[1::2])
    else:
        await check_after_late_arrival(move, fault, keys)
    assert await cluster.misplaced() == []


async def test_of_a_key_that_a_proxy_moved(cluster: FaultCluster) -> None:
    move = await Move.ready(cluster)
    keys = keys_on_the_way(f"wanted:{move.source}", 6)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        for key in keys:
            await client.set(key, "value")
        await move.begin()
        await cluster.in_state("migrating")
        await cluster.api.pause_migration()
        before = await migrates_given_up(move.source_server)
        fault = move.target_relay.hold(migrating_servers, RESTORE, containing=b"wanted:")
        asked = [asyncio.create_task(client.get(key)) for key in keys]
        await given_up(move, before)
        move.target_relay.restrict_to_present(fault)
        await asyncio.gather(*asked, return_exceptions=True)
        for key in keys:

            async def get(key: str = key) -> bytes | None:
                found: bytes | None = await client.get(key)
                return found

            await eventually(get, lambda value: value == b"value", f"{key} to be moved")
    await cluster.api.resume_migration()
    await check_after_late_arrival(move, fault, keys)
    await move.hurry()
    await move.arrived()
    assert await cluster.misplaced() == []
