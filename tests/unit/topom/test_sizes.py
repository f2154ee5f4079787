"""Sizes of slots: what a measurement changes, what is stale, what the store keeps, what the API takes and shows."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from migrator.progress import Progress
from slots.states import SlotState
from slots.table import Action, Group, Slot, SlotTable
from tests.unit.topom.operators import groups_of, send
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api import SIZES_BODY_BYTES
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import (
    BigKey,
    InvalidSizes,
    KnownSizes,
    SlotSize,
    Taking,
    by_group,
    duration,
    freshness,
    with_measurement,
)
from topom.cluster.speed import HALF_LIFE_SECONDS, PairSpeed, Speed
from topom.store import SIZES, STATE, Stored, StoreError
from topom.store.sqlite import SqliteStore
from topom.term.service import Topom
from topom.term.settings import TopomSettings

NOW = 1_000_000.0
DAY = 86_400.0
TOKEN = "secret"


def sized(count: int, taken_at: float = NOW, keys: int = 1, biggest: tuple[BigKey, ...] = ()) -> SlotSize:
    return SlotSize(count, keys, biggest, taken_at)


def taking(taken_at: float = NOW, complete: bool = True, **more: Any) -> Taking:
    return Taking(taken_at, 10.0, complete, **more)


def table(*group_ids: int) -> SlotTable:
    """Slots in these groups; one written as 12 is on its way from group 1 to group 2."""
    slots = [
        Slot(place, group_id // 10, Action(SlotState.MIGRATING, group_id % 10))
        if group_id > 9
        else Slot(place, group_id)
        for place, group_id in enumerate(group_ids)
    ]
    return SlotTable(1, tuple(slots), {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",)), 3: Group(3)})


# What a measurement changes


def test_of_a_complete_measurement_a_slot_that_is_not_named_is_empty() -> None:
    known = with_measurement(KnownSizes({0: sized(5, NOW - DAY)}), taking(), {1: sized(7)}, 4, NOW)
    assert known.slots == {0: sized(0, keys=0), 1: sized(7), 2: sized(0, keys=0), 3: sized(0, keys=0)}
    assert known.last == taking()


def test_of_a_part_a_slot_that_is_not_named_keeps_what_was_known() -> None:
    before = KnownSizes({0: sized(5, NOW - DAY)}, taking(NOW - DAY))
    known = with_measurement(before, taking(complete=False), {1: sized(7)}, 4, NOW)
    assert known.slots == {0: sized(5, NOW - DAY), 1: sized(7)}
    assert known.last == taking(complete=False)


def test_an_older_measurement_does_not_undo_a_newer_one() -> None:
    newer = with_measurement(KnownSizes(), taking(complete=False), {0: sized(5)}, 4, NOW)
    older = taking(NOW - DAY)
    known = with_measurement(newer, older, {0: sized(1, NOW - DAY), 1: sized(2, NOW - DAY)}, 4, NOW)
    assert known.slots[0] == sized(5)
    assert known.slots[1] == sized(2, NOW - DAY)
    assert known.slots[2] == sized(0, NOW - DAY, keys=0)
    assert known.last == newer.last


def test_what_cannot_be_taken_in() -> None:
    with pytest.raises(InvalidSizes, match="slot 4 is not within 0-3"):
        with_measurement(KnownSizes(), taking(), {4: sized(1)}, 4, NOW)
    with pytest.raises(InvalidSizes, match="future"):
        with_measurement(KnownSizes(), taking(NOW + 301), {}, 4, NOW)
    assert with_measurement(KnownSizes(), taking(NOW + 299), {}, 4, NOW).last is not None


def test_slots_count_for_the_group_in_which_they_come_to_rest() -> None:
    known = KnownSizes({0: sized(5), 1: sized(7, keys=3), 2: sized(11)})
    totals = {size.group_id: (size.slots, size.bytes, size.keys) for size in by_group(known, table(1, 12, 0, 1))}
    assert totals == {1: (2, 5, 1), 2: (1, 7, 3), 3: (0, 0, 0)}


# What is to be taken with care


def warned(known: KnownSizes, moved: dict[int, float] | None = None, now: float = NOW) -> list[str]:
    return freshness(known, table(1, 1, 2, 2), moved or {}, now, 7 * DAY).warnings


ALL = {slot: sized(1) for slot in range(4)}


def test_fresh_and_complete_sizes_need_no_warning() -> None:
    assert warned(KnownSizes(ALL, taking()), now=NOW + 7 * DAY) == []


def test_sizes_that_are_too_old_are_stale() -> None:
    known = KnownSizes({**ALL, 2: sized(1, NOW - DAY), 3: sized(1, NOW - DAY)}, taking())
    fresh = freshness(known, table(1, 1, 2, 2), {}, NOW + 6 * DAY + 1, 7 * DAY)
    assert (fresh.stale, fresh.moved, fresh.unknown) == ([2, 3], [], [])
    [warning] = fresh.warnings
    assert "the sizes of 2 slots (2-3) are stale" in warning
    assert "taken 7 days ago, at 1970-01-11T13:46:40Z" in warning
    assert "slotferry sizing run" in warning


def test_slots_that_moved_since_or_meanwhile_are_said() -> None:
    known = KnownSizes({**ALL, 3: sized(1, NOW + 5)}, taking())
    fresh = freshness(known, table(1, 1, 2, 2), {0: NOW - 0.001, 1: NOW, 2: NOW + 9, 3: NOW + 4}, NOW + 10, DAY)
    assert fresh.moved == [1, 2]
    assert fresh.warnings == [
        "sizes were taken before 2 slots (1-2) moved; they count with the bytes that they had before"
    ]


def test_slots_that_are_not_known() -> None:
    [warning] = warned(KnownSizes())
    assert "slotferry sizing run --topom URL --output DIR" in warning
    part = taking(complete=False, missing={"a:1": "timed out"}, sampled=0.1)
    warnings = warned(KnownSizes({0: sized(1)}, part))
    assert "the sizes of 3 slots (1-3) are not known; each counts as the mean of the others" in warnings
    assert "a:1 could not be read when sizes were last taken: timed out" in warnings
    assert "sizes are estimates from a sample of 0.1 of the keys" in warnings
    offline = freshness(KnownSizes({0: sized(1)}, taking()), table(1, 0, 0, 0), {}, NOW, DAY)
    assert (offline.unknown, offline.warnings) == ([], []), "what nobody owns has no keys to speak of"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 minute"), (7200, "2 hours"), (8 * DAY, "8 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# What the store keeps

BIGGEST = (BigKey("a\\xff€", 3, "hash", 400), BigKey("b", 0, "string", 1))


async def test_sizes_are_kept_over_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    book = SizeBook(store, 256, lambda: NOW)
    await book.start()
    assert book.known == KnownSizes()
    part = taking(complete=False, missing={"a:1": "timed out"}, sampled=0.5)
    await book.record(part, {0: sized(500, biggest=BIGGEST), 200: sized(7)})
    await book.record(taking(NOW - 1, complete=False), {1: sized(3, NOW - 1)})
    await store.close()

    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert (await store.book(STATE).read()).version == 0, "they have no part in the version of the state"
    again = SizeBook(store, 256, lambda: NOW)
    await again.start()
    assert again.known == book.known
    assert again.known.slots == {0: sized(500, biggest=BIGGEST), 1: sized(3, NOW - 1), 200: sized(7)}
    assert again.known.last == part
    await again.record(taking(NOW + 1), {5: sized(9, NOW + 1)})
    assert again.known.slots[0] == sized(0, NOW + 1, keys=0)
    await store.close()


async def test_only_documents_that_change_are_written() -> None:
    store = MemoryStore()
    book = SizeBook(store, 256, lambda: NOW)
    await book.record(taking(), {0: sized(1)})
    before = dict(store.sizes)
    assert sorted(before) == ["slots/0000", "slots/0001", "slots/0002", "slots/0003", "taking"]
    await book.record(taking(complete=False), {70: sized(5)})
    assert {name for name, value in store.sizes.items() if value is not before[name]} == {"taking", "slots/0001"}


async def test_a_store_from_before_there_were_sizes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    await store.book(STATE).write(0, 1, {"a": b"1"})
    await store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        connection.executescript("DROP TABLE sizes; DROP TABLE revision;")
    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert await store.book(SIZES).read() == Stored(0, {})
    await store.close()


async def test_a_failed_write_changes_nothing_and_the_next_one_holds() -> None:
    store = MemoryStore()
    book = SizeBook(store, 16, lambda: NOW)
    await book.start()
    store.fail_before = 1
    with pytest.raises(StoreError):
        await book.record(taking(), {0: sized(1)})
    assert book.known == KnownSizes()
    store.fail_after = 1
    with pytest.raises(StoreError):
        await book.record(taking(complete=False), {0: sized(1)})
    await book.record(taking(complete=False), {1: sized(2)})
    assert book.known.slots == {0: sized(1), 1: sized(2)}, "the write that failed was in the store all the same"


async def test_sizes_that_cannot_be_read_are_measured_again() -> None:
    store = MemoryStore()
    store.sizes, store.revision = {"slots/0000": b"{"}, 3
    book = SizeBook(store, 16, lambda: NOW)
    await book.start()
    assert book.known == KnownSizes()
    await book.record(taking(), {})
    assert len(book.known.slots) == 16


# How fast keys move


def test_speed_is_that_of_the_time_in_which_keys_moved() -> None:
    now = 0.0
    speed = Speed(lambda: now)
    assert speed.measured is None
    progress = Progress()
    with speed.following(progress):
        now = 10.0
        progress.keys_moved, progress.bytes_moved = 1000, 50_000
        speed.look(halted=False)
        assert speed.measured == PairSpeed(100.0, 5000.0)
        now = 500.0
        speed.look(halted=True)
        now = 510.0
        progress.keys_moved, progress.bytes_moved = 2000, 100_000
    now = 10_000.0
    speed.look(halted=False)
    assert speed.measured == PairSpeed(pytest.approx(100.0), pytest.approx(5000.0)), "nothing moved, nothing changes"


def test_what_is_long_ago_counts_less() -> None:
    now = 0.0
    speed = Speed(lambda: now)
    progress = Progress()
    with speed.following(progress):
        now = 1.0
        progress.keys_moved = 1000
        speed.look(halted=False)
        now += 20 * HALF_LIFE_SECONDS
        progress.keys_moved += 10 * int(20 * HALF_LIFE_SECONDS)
    assert speed.measured is not None
    assert speed.measured.keys == pytest.approx(10.0, rel=1e-3)


# When slots move


async def test_when_slots_came_to_rest_and_how_fast_is_stored(bench: Any) -> None:
    one = await bench(mover=FakeMover())
    assert one.actions.speed is None
    with one.actions.steps.speed.following(progress := Progress()):
        progress.keys_moved = 100
    one.actions.steps._clock = lambda: 77.12345
    one.run()
    await send(one, [3, 5])
    await one.until(lambda found: groups_of(found).count(2) == 2)
    await one.at_rest()
    assert one.ledger.state.moved == {3: 77.123, 5: 77.123}
    one.actions.steps._clock = lambda: 80.0
    await send(one, [5], 3)
    await one.until(lambda found: found.slots[5] == Slot(5, 3))
    again = await type(one)(one.store).start()
    assert again.actions.speed == one.actions.speed is not None
    assert again.ledger.state.moved == {3: 77.123, 5: 80.0}
    await again.stop()


# The API


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    one.sizes.clock = lambda: NOW
    await one.start()
    running = asyncio.create_task(one.run())
    yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api.build(topom, TOKEN), raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://topom/api/v1", headers=headers) as one:
        for group_id in (1, 2):
            await one.post("/groups", json={"id": group_id, "servers": [f"127.0.0.1:{group_id}"]})
            await one.post("/slots/assign", json={"slots": {1: "0-7", 2: "8-15"}[group_id], "group_id": group_id})
        yield one


BIG = {"key": "user:[1]", "database": 2, "type": "hash", "bytes": 90}


def measurement(*slots: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"taken_at": NOW - 60, "seconds": 4.5, "complete": True, "slots": list(slots), **more}


async def test_sizes_are_posted_and_shown(client: httpx.AsyncClient) -> None:
    empty = (await client.get("/sizes")).json()
    assert (empty["last"], empty["bytes"], empty["unknown"]) == (None, 0, "0-15")
    assert "bytes" not in (await client.get("/slots")).json()["slots"][0]

    small = {**BIG, "bytes": 9, "key": "x" * 300}
    slots = [{"slot": 3, "bytes": 100, "keys": 2, "biggest": [small, BIG]}, {"slot": 9, "bytes": 5, "keys": 1}]
    answer = await client.post("/sizes", json=measurement(*slots))
    assert answer.status_code == 200, answer.text
    found = (await client.get("/sizes")).json()
    assert found == answer.json()
    assert found["last"] == {
        "taken_at": NOW - 60,
        "age_seconds": 60.0,
        "seconds": 4.5,
        "complete": True,
        "missing": [],
        "sampled": 1.0,
    }
    assert found["groups"] == [
        {"group_id": 1, "slots": 8, "bytes": 100, "keys": 2},
        {"group_id": 2, "slots": 8, "bytes": 5, "keys": 1},
    ]
    assert (found["bytes"], found["keys"]) == (105, 3)
    assert (found["stale"], found["moved"], found["unknown"], found["warnings"]) == ("", "", "", [])

    shown = (await client.get("/slots")).json()["slots"]
    assert [shown[3]["bytes"], shown[3]["keys"], shown[3]["sized_at"]] == [100, 2, NOW - 60]
    assert shown[3]["biggest"] == [BIG, {**small, "key": "x" * 255 + "…"}]
    assert (shown[0]["bytes"], shown[0]["keys"], shown[0]["biggest"]) == (0, 0, [])
    assert (await client.get("/slots?biggest=1")).json()["slots"][3]["biggest"] == [BIG]
    assert "biggest" not in (await client.get("/slots?biggest=0")).json()["slots"][3]


async def test_a_partial_measurement_says_what_it_lacks(client: httpx.AsyncClient) -> None:
    missing = [{"server": "127.0.0.1:2", "reason": "it did not answer"}]
    part = measurement({"slot": 3, "bytes": 100, "keys": 2}, complete=False, missing=missing)
    found = (await client.post("/sizes", json=part)).json()
    assert found["last"]["missing"] == missing
    assert found["unknown"] == "0-2,4-15"
    assert "127.0.0.1:2 could not be read when sizes were last taken: it did not answer" in found["warnings"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (measurement({"slot": 16, "bytes": 1, "keys": 1}), "slot 16 is not within 0-15"),
        (measurement({"slot": 3, "bytes": -1, "keys": 1}), "slots.0.bytes"),
        (measurement({"slot": 3, "bytes": 1, "keys": 1, "biggest": [BIG] * 11}), "slots.0.biggest"),
        (
            measurement({"slot": 3, "bytes": 1, "keys": 1, "biggest": [{**BIG, "bytes": "x"}]}),
            "slots.0.biggest.0.bytes",
        ),
        (measurement("x"), "slots.0"),  # type: ignore[arg-type]
        (
            measurement({"slot": 3, "bytes": 1, "keys": 1}, {"slot": 3, "bytes": 1, "keys": 1}),
            "slot 3 is named more than",
        ),
        (measurement(taken_at=NOW + 1000), "in the future"),
        (measurement(sampled=0), "sampled"),
        (measurement(missing=[{"server": "h:1", "reason": "x"}]), "complete=false"),
        (measurement(nonsense=1), "nonsense"),
        ({}, "taken_at"),
    ],
)
async def test_measurements_that_do_not_hold_together(client: httpx.AsyncClient, body: Any, says: str) -> None:
    answer = await client.post("/sizes", json=body)
    assert answer.status_code == 422
    assert says in answer.json()["message"]
    assert (await client.get("/sizes")).json()["last"] is None


async def test_sizes_need_the_token(client: httpx.AsyncClient) -> None:
    del client.headers["Authorization"]
    assert (await client.get("/sizes")).status_code == 401
    assert (await client.post("/sizes", json=measurement())).status_code == 401


async def test_a_measurement_may_be_larger_than_other_requests_with_the_token(client: httpx.AsyncClient) -> None:
    biggest = [{"key": "k" * 8000, "database": 0, "type": "string", "bytes": number} for number in range(10)]
    large = json.dumps(
        measurement(*({"slot": slot, "bytes": 1, "keys": 10, "biggest": biggest} for slot in range(16)))
    ).encode()
    assert len(large) > 1024 * 1024
    assert (await client.post("/sizes", content=large)).status_code == 422, "no JSON without its content type"
    as_json = {"Content-Type": "application/json"}
    assert (await client.post("/sizes", content=large, headers=as_json)).status_code == 200
    assert (await client.post("/groups", content=large, headers=as_json)).status_code == 413
    announced = {**as_json, "Content-Length": str(SIZES_BODY_BYTES + 1)}
    assert (await client.post("/sizes", content=b"{}", headers=announced)).status_code == 413
    wrong = {**as_json, "Authorization": "Bearer wrong"}
    assert (await client.post("/sizes", content=large, headers=wrong)).status_code == 401


async def test_the_api_describes_what_it_takes(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("http://topom/openapi.json")).json()["components"]["schemas"]
    slots = schemas["Measurement"]["properties"]["slots"]
    assert slots["items"]["properties"]["biggest"]["items"] == {"$ref": "#/components/schemas/BigKey"}
    assert "BigKey" in schemas
