"""Foreign keys: no client sees them, they are removed, and never alive again; unknown ones are kept."""

from pathlib import Path
from typing import Any

import pytest

from slotferry.calls import TopomRefused
from slotferry.redis_server import start_redis
from slots.functions import slot
from slots.reserved import RESERVED
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

NAMES = [f"key-{number}" for number in range(1000)]
SLOTS = 1024


def slot_of(name: str) -> int:
    return slot("crc32", name.encode(), SLOTS)


async def names_at(address: str) -> set[str]:
    async with plain_client(address) as server:
        return {key.decode() for key in await server.keys("*") if not key.startswith(RESERVED)}


async def events(cluster: Cluster, what: str) -> list[str]:
    return [event["text"] for event in (await cluster.api.events(limit=1000))["events"] if event["what"] == what]


async def come_back_with_older_data(cluster: Cluster, group: int, leaving: str, to: int, gone: list[str]) -> None:
    """Slots leave a group, keys of theirs are deleted, and its master is restarted with data from before all that."""
    server = cluster.servers[group][0]
    async with plain_client(server.address) as direct:
        await direct.save()
    await cluster.api.move_slots(leaving, to)
    await cluster.at_rest()
    async with plain_client(cluster.proxy_addresses[0]) as client:
        assert await client.delete(*gone) == len(gone)
    await server.kill()
    server.start()
    await server.ready()


@pytest.mark.long
async def test_what_came_back_with_older_data_is_not_seen_and_removed(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=1, workers=2)
    leaving = range(256)
    left = [name for name in NAMES if slot_of(name) in leaving]
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "before"))
        await cluster.swept(1)
        gone, kept = left[::2], sorted({*NAMES} - {*left[::2]})
        await come_back_with_older_data(cluster, 1, "0-255", 2, gone)

        async def listed() -> list[str]:
            return sorted(key.decode() for key in await client.keys("*"))

        # At once, and through every proxy: each key is seen once.
        assert await eventually(listed, lambda keys: True, "the server to answer") == kept
        assert sorted([key.decode() async for key in client.scan_iter(count=100)]) == kept
        await cluster.swept(1)
        assert await client.dbsize() == len(kept)
        assert not await names_at(cluster.groups[1][0]) & {*left}
        assert [text.split()[0] for text in await events(cluster, "server_swept")] == [str(len(left))]
        # The same data once more, and the slots come back at once.
        server = cluster.servers[1][0]
        await server.kill()
        server.start()
        await cluster.api.move_slots("0-255", 1)
        await cluster.at_rest()
        assert [name for name in gone if await client.exists(name)] == []
        assert await listed() == kept
        await cluster.swept(2)
        assert await client.dbsize() == len(kept)
        assert await cluster.misplaced() == []


@pytest.mark.long
async def test_a_sweep_goes_on_after_topom_and_the_server_were_killed_in_the_middle(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(groups=2, proxies=1)
    left = [name for name in NAMES if slot_of(name) < 512]
    address = cluster.groups[1][0]
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "before"))
        await cluster.swept(1)
        gone = left[::2]
        kept = sorted({*NAMES} - {*gone})
        async with plain_client(address) as direct:
            await direct.save()
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest()
        assert await client.delete(*gone) == len(gone)
        await cluster.api.set_migration(keys_per_second=20)
        server = cluster.servers[1][0]
        await server.kill()
        server.start()
        await eventually(lambda: names_at(address), lambda names: 0 < len(names) < len(left) - 20, "keys to be removed")
        await cluster.topom.kill()
        await cluster.restart_topom()
        few = len(await names_at(address))
        assert few > 20
        await eventually(lambda: names_at(address), lambda names: len(names) < few, "keys to be removed again")
        # The older data once more: this is another life, and its keys go as well.
        await server.kill()
        server.start()
        await server.ready()
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.swept(1)
        assert await names_at(address) == set()
        assert await client.dbsize() == len(kept)
        await cluster.api.move_slots("0-511", 1)
        await cluster.at_rest()
        assert sorted(key.decode() for key in await client.keys("*")) == kept


@pytest.mark.long
async def test_slots_are_assigned_while_their_server_is_swept(start_cluster: StartCluster) -> None:
    """What is assigned is taken as it is: the sweep ends, and what was not removed by then is served."""
    cluster = await start_cluster(groups=2, proxies=1)
    left = [name for name in NAMES if slot_of(name) < 512]
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "before"))
        await cluster.swept(1)
        async with plain_client(cluster.groups[1][0]) as direct:
            await direct.save()
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest()
        await cluster.api.set_migration(keys_per_second=20)
        server = cluster.servers[1][0]
        await server.kill()
        server.start()
        address = server.address
        await eventually(lambda: names_at(address), lambda names: 0 < len(names) < len(left) - 20, "keys to be removed")
        await cluster.api.take_slots_offline("0-511")
        await cluster.api.assign_slots("0-511", 1)
        there = await names_at(address)
        assert len(there) > 20
        after = dict.fromkeys(left, "after")
        await eventually(lambda: client.mset(after), bool, "the proxy to serve the slots")
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.swept(1)
        assert await names_at(address) == {*left}
        assert await client.mget(left) == [b"after"] * len(left)
        # What group 2 has of these slots was not moved away from there, so it may be needed.
        found = await eventually(cluster.api.groups, lambda groups: bool(groups[1]["servers"][0]["not_swept"]), "it")
        reason = found[1]["servers"][0]["not_swept"]
        assert f"holds {len(left):,} keys of slots that belong to other groups" in reason["what"]
        assert (reason["kind"], "slotferry server sweep " in reason["to_do"]) == ("data", True)
        assert await names_at(cluster.groups[2][0]) == {*NAMES}
        assert sorted(key.decode() for key in await client.keys("*")) == sorted(NAMES)


@pytest.mark.long
async def test_a_slot_that_was_copied_away_does_not_come_back_to_its_old_keys(start_cluster: StartCluster) -> None:
    """Its former group cannot be swept for a while, in which topom is restarted; the slot goes offline."""
    cluster = await start_cluster(groups=2, proxies=1)
    source, other = cluster.groups[1][0], cluster.groups[2][0]
    left = [name for name in NAMES if slot_of(name) < 256]
    async with plain_client(cluster.proxy_addresses[0]) as client, plain_client(source) as direct:
        await client.mset(dict.fromkeys(NAMES, "before"))
        await cluster.swept(1)
        await direct.config_set("repl-diskless-sync-delay", 0)
        # The copy takes some seconds, in which the server is made one that cannot be swept.
        await cluster.api.set_migration(way="stream", keys_per_second=100)
        await cluster.api.move_slots("0-255", 2)
        await cluster.in_state("copying")
        await direct.execute_command("ACL", "SETUSER", "default", "-scan")
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 256, 2: 768})
        assert await client.delete(*left) == len(left)
        assert {*left} <= await names_at(source)
        await cluster.topom.kill()
        await cluster.restart_topom()
        await cluster.api.take_slots_offline("0-255")
        with pytest.raises(TopomRefused, match="may still have old keys of slots 0-255"):
            await cluster.api.assign_slots("0-255", 1)
        await direct.execute_command("ACL", "SETUSER", "default", "+scan")

        async def assigned() -> bool:
            try:
                await cluster.api.assign_slots("0-255", 1)
            except TopomRefused:
                return False
            return True

        await eventually(assigned, bool, "the slots to be assigned")
        found = await eventually(lambda: client.exists(*left), lambda found: True, "the slots to be served")
        assert found == 0, "they were deleted before"
        assert await names_at(source) == {name for name in NAMES if slot_of(name) in range(512)} - {*left}
        assert not await names_at(other) & {*left}


async def test_a_server_with_keys_that_nobody_knows_is_no_target(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = await start_cluster(groups=2, proxies=1)
    filled = await start_redis("filled", tmp_path)
    try:
        async with plain_client(cluster.proxy_addresses[0]) as client, plain_client(filled.address) as direct:
            await client.mset(dict.fromkeys(NAMES, "value"))
            await direct.mset(dict.fromkeys(NAMES, "somebody's"))
            await cluster.api.add_group(3, [filled.address])
            await cluster.api.move_slots("0-9", 3)
            word = f"slotferry server sweep {filled.address}"

            async def said() -> Any:
                return await cluster.api.migration(), await cluster.api.groups()

            def is_said(found: Any) -> bool:
                return word in str(found[0]) and word in str(found[1][2]["servers"][0]["not_swept"])

            await eventually(said, is_said, "the reason to be told")
            assert f"holds {len(NAMES):,} keys" in (await events(cluster, "foreign_keys"))[0]
            assert {slot["action"]["state"] for slot in (await cluster.api.slots())["slots"][:10]} == {"pending"}
            assert await names_at(filled.address) == {*NAMES}
            assert await client.mget(NAMES) == [b"value"] * len(NAMES)
            with pytest.raises(TopomRefused, match="is not the master of group 1"):
                await cluster.api.sweep_server(1, filled.address)
            assert (await cluster.api.sweep_server(3, filled.address))["removed"] == len(NAMES)
            await cluster.api.retry_migration()
            await cluster.at_rest()
            assert await client.mget(NAMES) == [b"value"] * len(NAMES)
            assert await cluster.misplaced() == []
            assert await names_at(filled.address) == {name for name in NAMES if slot_of(name) < 10}
    finally:
        await filled.stop()
