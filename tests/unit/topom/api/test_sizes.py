"""Measurements of sizes over the API: what it takes and shows, and what it refuses."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.topom.balance.measurements import NOW
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api import SIZES_BODY_BYTES
from topom.term.service import Topom
from topom.term.settings import TopomSettings


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        for group_id in (1, 2):
            await one.post("/groups", json={"id": group_id, "servers": [f"127.0.0.1:{group_id}"], "offline_ok": True})
            await one.post("/slots/assign", json={"slots": {1: "0-7", 2: "8-15"}[group_id], "group_id": group_id})
        yield one


BIG = {"key": "user:[1]", "database": 2, "type": "hash", "bytes": 90}


def measurement(*slots: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"taken_at": NOW - 60, "seconds": 4.5, "complete": True, "slots": list(slots), **more}


def prefix(**more: Any) -> dict[str, Any]:
    return {"depth": 1, "prefix": "user:", "keys": 2, "bytes": 90, **more}


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
        "bytes": 105,
        "keys": 3,
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


async def test_prefixes_are_kept_in_readable_form_until_the_next_measurement(client: httpx.AsyncClient) -> None:
    assert (await client.get("/sizes")).json()["prefixes"] == []
    odd = ["<script>:", "a\n\x1b[31m:", "\\xff€:", "x" * 70 + ":", ""]
    sent = [prefix(prefix=name, bytes=number, depth=min(1, len(name))) for number, name in enumerate(odd)]
    found = (await client.post("/sizes", json=measurement({"slot": 3, "bytes": 9, "keys": 5}, prefixes=sent))).json()
    shown = ["", "x" * 59 + "…", "\\xff€:", "a\\n\\x1b[31m:", "<script>:"]
    assert [one["prefix"] for one in found["prefixes"]] == shown
    assert found["prefixes"][1] == {"depth": 1, "prefix": "x" * 59 + "…", "keys": 2, "bytes": 3}
    earlier = measurement(complete=False, prefixes=[prefix(prefix="old:")], taken_at=NOW - 90)
    assert (await client.post("/sizes", json=earlier)).json()["prefixes"] == found["prefixes"]
    assert (await client.post("/sizes", json=measurement())).json()["prefixes"] == []


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
        (measurement(prefixes=[prefix()] * 101), "prefixes"),
        (measurement(prefixes=[prefix(depth=9)]), "prefixes.0.depth"),
        (measurement(prefixes=[prefix(depth=-1)]), "prefixes.0.depth"),
        (measurement(prefixes=[prefix(bytes=-1)]), "prefixes.0.bytes"),
        (measurement(prefixes=[prefix(keys=2**63)]), "prefixes.0.keys"),
        (measurement(prefixes=[prefix(prefix="x" * 4097)]), "prefixes.0.prefix"),
        (measurement(prefixes=[prefix(prefix="\ud800")]), "prefixes.0.prefix"),
        (measurement(prefixes=[prefix(value="x")]), "prefixes.0.value"),
        (measurement(prefixes=["user:"]), "prefixes.0"),
        ({}, "taken_at"),
    ],
)
async def test_measurements_that_do_not_hold_together(client: httpx.AsyncClient, body: Any, says: str) -> None:
    as_json = {"Content-Type": "application/json"}
    answer = await client.post("/sizes", content=json.dumps(body), headers=as_json)
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
