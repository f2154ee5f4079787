"""A topom that follows keeps the load of the last day, and leads with it."""

import asyncio
import json
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.unit.topom.operators import eventually
from tests.unit.topom.term.test_node import TOKEN, Topoms, topoms, two  # noqa: F401 (fixtures)
from topom.api import load
from topom.load import minutes
from topom.load.day import KINDS, Day, DayMinute
from topom.load.measured import Kept
from topom.term import loadkeeping
from topom.term.loadkeeping import LoadKeeping
from topom.term.tokens import Role, Token, Tokens

BEGAN = 60.0 * (time.time() // 60 - 60)


def minute(number: int) -> DayMinute:
    return DayMinute(BEGAN + 60 * number, {kind: Kept((), array("f")) for kind in KINDS})


def numbers(day: Day) -> list[float]:
    return [(one.began_at - BEGAN) / 60 for one in day.after(0.0)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECONDS", "MORE_SECONDS"):
        monkeypatch.setattr(loadkeeping, name, 0.01)
    monkeypatch.setattr(LoadKeeping, "pause_seconds", 0.01)
    monkeypatch.setattr(load, "FRESH_SECONDS", 0.0)


@asynccontextmanager
async def keeping(two: Topoms, *names: str) -> AsyncIterator[list[LoadKeeping]]:  # noqa: F811
    loops = [
        LoadKeeping(two.nodes[name], Tokens("old", Token(Role.OPERATOR, "next", TOKEN.encode()))) for name in names
    ]
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    try:
        yield loops
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_follower_has_the_leaders_minutes_and_leads_with_them(
    two: Topoms,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(minutes, "told", lambda known, told=minutes.told: told(known, 1))
    a, b = two.nodes["a"], two.nodes["b"]
    a.day.take(minute(number) for number in range(5))
    led = a.leading
    assert led is not None
    async with keeping(two, "a", "b"):
        await eventually(lambda: numbers(b.day) == [0, 1, 2, 3, 4])
        a.day.add(minute(7))
        await eventually(lambda: numbers(b.day) == [0, 1, 2, 3, 4, 7])
        assert two.store.place is not None
        a.day.add(minute(8))
        await eventually(lambda: numbers(b.day)[-1] == 8)
        two.store.end(two.store.place)
        leads = await two.led_by("b")
        assert leads.load.day is b.day
        leads.load.day.add(minute(9))
        await eventually(lambda: numbers(a.day)[-1] == 9)
    answer = await two.ask("b", "GET", "/load/history?of=groups&minutes=100")
    assert [(at - BEGAN) / 60 for at in answer.json()["minutes"]] == [0, 1, 2, 3, 4, 7, 8, 9]


async def test_a_follower_shows_the_day_while_nobody_leads(two: Topoms) -> None:  # noqa: F811
    two.nodes["b"].day.take([minute(3)])
    two.network.transports.pop("a")
    answer = await two.ask("b", "GET", "/load/history")
    assert [(at - BEGAN) / 60 for at in answer.json()["minutes"]] == [3]
    assert (await two.ask("b", "GET", "/load")).status_code == 503


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(200, content=b'{"minutes": 7}'), "can be used: minutes:"),
        (httpx.Response(200, json={"minutes": [], "more": False, "x": "y" * 4_194_304}), "more than 4194304 bytes"),
        (httpx.Response(500), "can be used: it answers with status 500"),
        (None, "does not tell the load"),
    ],
)
async def test_an_answer_that_is_of_no_use_changes_nothing(
    two: Topoms,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    answer: httpx.Response | None,
    says: str,
) -> None:
    monkeypatch.setattr(loadkeeping, "ANSWER_SECONDS", 0.2)
    b = two.nodes["b"]
    b.day.take([minute(1)])
    asked: list[str] = []

    async def app(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return httpx.Response(answer.status_code, content=answer.content)

    wrong: Any = httpx.MockTransport(app)
    right = two.network.transports["a"]
    two.network.transports["a"] = wrong
    async with keeping(two, "b") as [loop]:
        await eventually(lambda: says in loop.says)
        assert set(asked) == {"/api/v1/load/minutes"}
        assert numbers(b.day) == [1]
        # It goes on as soon as the leader is well.
        two.network.transports["a"] = right
        two.nodes["a"].day.take([minute(2)])
        await eventually(lambda: numbers(b.day) == [1, 2])
        assert loop.says == ""


def test_the_answer_of_the_largest_cluster_has_room() -> None:
    names = [f"server-{number:04}.datacenter-1.example.com:6379" for number in range(4096)]
    kept = {kind: Kept(tuple(range(1, 2049)), array("f", [1.5] * 3 * 2048)) for kind in KINDS}
    kept["servers"] = Kept(tuple(names), array("f", [1.5] * 3 * 4096))  # type: ignore[arg-type]
    full = [DayMinute(BEGAN + 60 * number, kept) for number in range(100)]
    answer = minutes.told(full)
    assert len(json.dumps(answer)) < loadkeeping.MOST_BYTES
    assert len(answer["minutes"]) < 100
