"""Events over the API."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api.event_stream import EventStreams
from topom.term.service import Topom
from topom.term.settings import TopomSettings


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2, waiters=2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom, {"X-Slotferry-User": "ada@host"}) as one:
        yield one


async def ask(client: httpx.AsyncClient, **query: Any) -> Any:
    answer = await client.get("/events", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_api_gives_events(client: httpx.AsyncClient) -> None:
    for group_id in range(1, 5):
        assert (await client.post("/groups", json={"id": group_id})).status_code == 201
    found = await ask(client)
    assert (found["oldest"], found["newest"]) == (1, 5)
    assert [event["what"] for event in found["events"]] == ["topom_started"] + 4 * ["group_added"]
    assert found["events"][0]["who"].startswith("topom ")
    assert {event["who"] for event in found["events"][1:]} == {"ada@host (by operator)"}
    assert [event["id"] for event in (await ask(client, limit=2))["events"]] == [4, 5]
    assert [event["id"] for event in (await ask(client, since=1, limit=2))["events"]] == [2, 3]
    assert (await ask(client, since=5))["events"] == []
    assert (await ask(client, since=99))["newest"] == 5


@pytest.mark.parametrize("left", [0.2, -5])
async def test_a_stream_of_events_ends_with_its_session(topom: Topom, left: float) -> None:
    streams = EventStreams(lambda: topom)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        stream = streams.begin(0, time.time() + left)
        await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert not sent[-1]["more_body"]
    assert not streams.open
    if left > 0:
        assert any(b"topom_started" in message.get("body", b"") for message in sent)
