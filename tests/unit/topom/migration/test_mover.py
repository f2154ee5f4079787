"""The limits of the pace hold for all that moves: by key within topom, and by copies at migrators."""

import asyncio
from dataclasses import replace

import pytest

from migrator.pace import Pace
from migrator.progress import Progress
from slots.access import ServerAccess
from slots.beginning import UNKNOWN
from slots.keyslots import KeySlots
from slots.messages.copies import SetPace
from tests.unit.topom.migrators.fakes import FakeLink, registration
from topom.cluster.state import MigrationSettings
from topom.migration.mover import RedisMover
from topom.migrators.copies import RemoteCopy
from topom.migrators.gathering import Gathering, Place
from topom.migrators.members import Migrators

KEY_SLOTS = KeySlots("crc32", 16)
SETTINGS = MigrationSettings(parallel_slots=1, keys_per_second=900, bytes_per_second=90, latency_goal_milliseconds=2.0)


async def test_limits_are_divided_among_copies_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = asyncio.Event(), asyncio.Event()
    paces: list[Pace] = []

    async def migrate(*arguments: object, pace: Pace, **others: object) -> None:
        paces.append(pace)
        begun.set()
        await over.wait()

    async def make_ready(*arguments: object, **others: object) -> tuple[str, str]:
        return "a" * 40, "b" * 40

    monkeypatch.setattr("topom.migration.mover.migrate", migrate)
    monkeypatch.setattr("topom.migration.mover.make_ready", make_ready)
    link, migrators = FakeLink(), Migrators()
    mover = RedisMover(16, lambda: KEY_SLOTS, ServerAccess(), "1" * 32, migrators=migrators)
    mover.set_pace(SETTINGS)
    migrators.register(registration(), True, link)

    def told() -> tuple[int, int, bool]:
        pace = next(message for message in reversed(link.said) if isinstance(message, SetPace))
        return pace.keys_per_second, pace.bytes_per_second, pace.paused

    copies = [
        mover.copy("a:1", "b:1", ("a" * 40, "b" * 40), [1], id, Progress(), [], Place(Gathering(), id, id))
        for id in (f"{number:032x}" for number in range(2))
    ]
    assert isinstance(copies[0], RemoteCopy)
    leveling = [asyncio.create_task(copy.nearly_level()) for copy in copies]
    while migrators.copies < 2:
        await asyncio.sleep(0)
    assert told() == (900, 90, False), "both are at this migrator"
    moving = asyncio.create_task(mover.move("c:1", "d:1", [1], Progress(), UNKNOWN, lambda: None))
    await begun.wait()
    assert told() == (600, 60, False)
    assert (paces[0].settings.keys_per_second, paces[0].settings.bytes_per_second) == (300, 30)
    mover.set_pace(MigrationSettings(parallel_slots=1, keys_per_second=0, bytes_per_second=1, paused=True))
    assert told() == (0, 1, True)
    assert (paces[0].settings.bytes_per_second, paces[0].paused) == (1, True)
    mover.set_pace(SETTINGS)
    over.set()
    await moving
    assert told() == (900, 90, False)
    assert paces[0].settings.keys_per_second == 900
    assert not paces[0].paused
    for task in leveling:
        task.cancel()
    await asyncio.gather(*leveling, return_exceptions=True)


async def test_a_copy_is_made_ready_for_the_stream_that_it_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier streams have at the source and at its replicas is ended, and what copies of this one have is not."""
    ready: list[tuple[object, object, object]] = []

    async def make_ready(*arguments: object, stream: str, replicas: object, **others: object) -> tuple[str, str]:
        ready.append((arguments[2], stream, replicas))
        return "a" * 40, "b" * 40

    monkeypatch.setattr("topom.migration.mover.make_ready", make_ready)
    migrators = Migrators()
    mover = RedisMover(16, lambda: KEY_SLOTS, ServerAccess(), "1" * 32, migrators=migrators)
    migrators.register(registration(), True, FakeLink())
    shared = Gathering()
    ids = [f"{number:032x}" for number in range(3)]
    for id in ids[:2]:
        shared.join(id)
    leveling = [
        asyncio.create_task(
            mover.copy(
                "a:1", "b:1", ("a" * 40, "b" * 40), [1], id, Progress(), ["r:1"], Place(gathering, id, id)
            ).nearly_level()
        )
        for id, gathering in zip(ids, (shared, shared, Gathering()), strict=True)
    ]
    while len(ready) < len(ids):
        await asyncio.sleep(0)
    streams = (shared.id, shared.id, ids[2])
    assert sorted(map(str, ready)) == sorted(
        str((id, stream, ["r:1"])) for id, stream in zip(ids, streams, strict=True)
    )
    for task in leveling:
        task.cancel()


async def test_by_forecast_the_own_migrator_is_started_for_the_first_copy_only() -> None:
    migrators = Migrators()
    mover = RedisMover(16, lambda: KEY_SLOTS, ServerAccess(), "1" * 32, migrators=migrators)
    for way, wanted in (("keys", False), ("auto", False), ("stream", True)):
        mover.set_pace(replace(SETTINGS, way=way))
        assert migrators.wanted.is_set() is wanted, way
    migrators.wanted.clear()
    mover.set_pace(replace(SETTINGS, way="auto"))
    copy = mover.copy("a:1", "b:1", ("a" * 40, "b" * 40), [1], "0" * 32, Progress(), [], Place(Gathering(), "0", "0"))
    leveling = asyncio.create_task(copy.nearly_level())
    async with asyncio.timeout(20):
        await migrators.wanted.wait()
    leveling.cancel()
    await asyncio.gather(leveling, return_exceptions=True)
