"""Viewers of the live picture: one writer for all, a bound on their number, and an end for those that are slow."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topom.operators import client_of, eventually
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api.live import viewers as module
from topom.api.live.taking import Taking
from topom.api.live.viewers import MOST_VIEWERS, MOST_WAITING_BYTES, TooManyViewers, Viewers
from topom.errors import NotLeading
from topom.reasons import Kind, Reason
from topom.term.service import Topom
from topom.term.settings import TopomSettings


@pytest.fixture
async def topom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Topom]:
    monkeypatch.setattr(module, "LEAST_SECONDS", 0.01)
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


class Page:
    """A viewer's stream, as it comes."""

    def __init__(self) -> None:
        self.text = ""
        self.reads = asyncio.Event()
        self.reads.set()
        self.begun: dict[str, Any] = {}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.begun = message
        self.text += message.get("body", b"").decode()

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    def messages(self) -> list[tuple[str, Any]]:
        found = []
        for part in self.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
            if lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found


@asynccontextmanager
async def watching(viewers: Viewers, page: Page, expires: float | None = None) -> AsyncIterator[asyncio.Task[None]]:
    viewer = viewers.join(expires)
    task = asyncio.create_task(viewer({"type": "http", "asgi": {"spec_version": "2.4"}}, page.receive, page.send))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_viewer_gets_the_whole_picture_and_then_what_changes(topom: Topom) -> None:
    viewers, page = Viewers(None, lambda: topom), Page()
    async with watching(viewers, page), client_of(topom) as client:
        await eventually(lambda: bool(page.messages()))
        [(name, picture)] = page.messages()
        assert name == "picture"
        assert picture["slots"] == [[0, 16, 0]]
        assert picture["cluster"]["number_of_slots"] == 16
        await client.post("/groups", json={"id": 3})
        await eventually(lambda: any(entry.get("events") for _, entry in page.messages()[1:]))
        assert {name for name, _ in page.messages()[1:]} == {"changes"}
        assert all("slots" not in entry for _, entry in page.messages()[1:])
    await eventually(lambda: not viewers.watched)


async def test_one_writer_makes_each_message_once(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    take = Taking.take

    def counted(self: Taking) -> Any:
        nonlocal looks
        looks += 1
        return take(self)

    monkeypatch.setattr(Taking, "take", counted)
    monkeypatch.setattr(module, "LEAST_SECONDS", 30)
    viewers, pages = Viewers(None, lambda: topom), [Page() for _ in range(5)]
    async with watching(viewers, pages[0]):
        await eventually(lambda: bool(pages[0].messages()))
        before = looks
        async with watching(viewers, pages[1]), watching(viewers, pages[2]):
            await eventually(lambda: bool(pages[1].messages() and pages[2].messages()))
        assert looks == before
    assert pages[1].messages()[0] == pages[2].messages()[0]


async def test_one_too_many_is_told_so(topom: Topom) -> None:
    viewers = Viewers(None, lambda: topom)
    joined = [viewers.join() for _ in range(MOST_VIEWERS)]
    for viewer in joined:
        viewers.enter(viewer)
    with pytest.raises(TooManyViewers, match="64 pages look at this cluster already"):
        viewers.join()
    viewers.leave(joined[0])
    viewers.join()
    viewers.close()
    with pytest.raises(NotLeading):
        viewers.join()


async def test_a_slow_viewer_is_cut_off_and_the_others_go_on(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    viewers, slow, quick = Viewers(None, lambda: topom), Page(), Page()
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 2000)
    async with watching(viewers, quick), watching(viewers, slow) as ended, client_of(topom) as client:
        await eventually(lambda: bool(quick.messages() and slow.messages()))
        slow.reads.clear()
        for number in range(1, 30):
            await client.post("/groups", json={"id": number})
            seen = len(quick.text)
            await eventually(lambda seen=seen: len(quick.text) > seen)  # type: ignore[misc]
        slow.reads.set()
        await eventually(ended.done)
        assert len(slow.text) < len(quick.text)
    assert MOST_WAITING_BYTES > 2000


async def test_a_viewer_that_takes_nothing_is_cut_off(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.05)
    viewers, page = Viewers(None, lambda: topom), Page()
    page.reads.clear()
    async with watching(viewers, page) as ended:
        await eventually(ended.done)
    await eventually(lambda: not viewers.watched)


async def test_a_stream_ends_with_its_session(topom: Topom) -> None:
    viewers, page = Viewers(None, lambda: topom), Page()
    async with watching(viewers, page, time.time() + 0.1) as ended:
        await eventually(ended.done)
    async with watching(viewers, page, time.time() - 5) as ended:
        await eventually(ended.done)


async def test_nothing_more_is_sent_once_a_session_is_over(topom: Topom) -> None:
    """Else a page that reads slowly would see on and on what comes after that, and keep its place as long."""
    viewers, page = Viewers(None, lambda: topom), Page()
    over = time.time() + 1.0
    async with watching(viewers, page, over) as ended, client_of(topom) as client:
        await eventually(lambda: bool(page.messages()))
        page.reads.clear()
        async with watching(viewers, other := Page()):
            await client.post("/groups", json={"id": 1})  # sending of this is under way
            await eventually(lambda: "group 1 was added" in other.text)
            await client.post("/groups", json={"id": 2})
            await eventually(lambda: "group 2 was added" in other.text)
            await asyncio.sleep(max(0.0, over - time.time()) + 0.1)
            await client.post("/groups", json={"id": 3})
            await eventually(lambda: "group 3 was added" in other.text)
        page.reads.set()
        await eventually(ended.done)
    assert "group 2 was added" not in page.text
    assert "group 3 was added" not in page.text


async def test_a_comment_comes_when_nothing_changes(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.02)
    viewers, page = Viewers(None, lambda: topom), Page()
    async with watching(viewers, page):
        await eventually(lambda: page.text.count(": nothing new\n\n") > 2)


async def test_when_another_topom_leads_all_are_told_and_their_streams_end(topom: Topom, tmp_path: Path) -> None:
    other = Topom(topom.settings, MemoryStore(), FakeMover())
    await other.start()
    serving = topom
    viewers, page = Viewers(None, lambda: serving), Page()
    try:
        async with watching(viewers, page) as ended:
            await eventually(lambda: bool(page.messages()))
            serving = other
            await eventually(ended.done)
            assert page.messages()[-1] == ("leader", {"url": None})
    finally:
        await other.close()


async def test_when_nobody_can_answer_the_streams_end(topom: Topom) -> None:
    leads = True

    def serving() -> Topom:
        if not leads:
            raise Reason(Kind.STORE, "nothing is known").to(NotLeading)
        return topom

    viewers, page = Viewers(None, serving), Page()
    async with watching(viewers, page) as ended:
        await eventually(lambda: bool(page.messages()))
        leads = False
        await eventually(ended.done)
    with pytest.raises(NotLeading):
        viewers.join()


async def test_over_the_api(topom: Topom) -> None:
    """The endpoint needs the token, and refuses one too many with a sentence."""
    async with client_of(topom) as client:
        assert (await client.get("/live", headers={"Authorization": "no"})).status_code == 401
        viewers: Viewers = client._transport.app.state.viewers  # type: ignore[attr-defined]
        for _ in range(MOST_VIEWERS):
            viewers.enter(viewers.join())
        refused = await client.get("/live")
        assert (refused.status_code, refused.json()["error"]) == (503, "TooManyViewers")
        viewers.close()
