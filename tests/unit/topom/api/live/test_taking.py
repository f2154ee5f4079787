"""What the live picture is made of: the state, what servers say, sizes and load."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from migrator.progress import Progress
from slots.messages.copies import Report
from slots.messages.load import Traffic
from tests.unit.slots.test_slotrates import told
from tests.unit.topom.api.test_load import key, notable, tell
from tests.unit.topom.migrators.fakes import FakeLink, copy_of, registration
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api import load
from topom.api.live import taking as module
from topom.api.live.picture import Picture, changes
from topom.api.live.taking import MOST_BUSY, MOST_COPIES, MOST_NOTABLE, Taking
from topom.term.service import Topom
from topom.term.settings import TopomSettings


@pytest.fixture
async def topom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Topom]:
    for name in ("SIZES_SECONDS", "LOAD_SECONDS"):
        monkeypatch.setattr(module, name, 0.0)
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        await one.post("/groups", json={"id": 1, "servers": ["127.0.0.1:1"], "offline_ok": True})
        await one.post("/slots/assign", json={"slots": "0-15", "group_id": 1})
        yield one


@pytest.fixture
async def taking(topom: Topom, client: httpx.AsyncClient) -> AsyncIterator[Taking]:
    one = Taking(None, topom)
    yield one
    await one.close()


async def later(taking: Taking) -> Picture:
    """A picture with the load as it is: the one that was being written may be of before."""
    await taking.first()
    return await taking.first()


async def test_the_first_picture_waits_for_the_servers(taking: Taking) -> None:
    picture = await taking.first()
    [server] = picture.sections["groups"]["1"]["servers"]
    assert (server["address"], server["node"]) == ("127.0.0.1:1", "127.0.0.1")
    assert not server.get("up")
    assert picture.sections["figures"] == {"1": [[None, None, None]]}
    assert picture.sections["cluster"]["number_of_slots"] == 16
    assert picture.sections["migration"]["slots_moving"] == 0
    assert [slot.group_id for slot in picture.slots] == [1] * 16
    assert (picture.sections["sizes"]["last"], picture.sections["load"], dict(picture.heat)) == (None, {}, {})


async def test_migrators_are_told_with_what_each_copies_and_follows(topom: Topom, taking: Taking) -> None:
    assert (await taking.first()).sections["migrators"] == {}
    migrator = topom.migrators.register(registration(7, "node-1", "dc-1"), False, FakeLink())
    migrator.take(Report(copies=[], disk=1_234_567))
    followed = ("", "a:1", "a:2")
    for number, server in enumerate(followed):
        progress = Progress()
        progress.followed = server
        migrator.copies[str(number)] = copy_of(topom.migrators, progress)
    told = taking.take().sections["migrators"]["1"]
    assert {name: told[name] for name in ("hostname", "pid", "node", "datacenter", "own", "disk_bytes", "copying")} == {
        "hostname": "host",
        "pid": 7,
        "node": "node-1",
        "datacenter": "dc-1",
        "own": False,
        "disk_bytes": 1_230_000,
        "copying": 3,
    }
    copies = [(copy["source"], copy["slots"], copy["followed"], copy["follows"]) for copy in told["copies"]]
    assert copies == [("a:1", 2, None, None), ("a:1", 2, "a:1", "master"), ("a:1", 2, "a:2", "replica")]
    for number in range(MOST_COPIES):
        migrator.copies[f"another {number}"] = copy_of(topom.migrators, Progress())
    told = taking.take().sections["migrators"]["1"]
    assert (told["copying"], len(told["copies"])) == (MOST_COPIES + 3, MOST_COPIES)
    topom.migrators.disconnected(migrator)
    assert taking.take().sections["migrators"] == {}


async def test_what_does_not_change_is_not_told_again(taking: Taking) -> None:
    first = await taking.first()
    assert changes(first, taking.take()) == {}


async def test_sizes_are_told_with_the_heat_of_slots(taking: Taking, client: httpx.AsyncClient) -> None:
    first = await taking.first()
    measured: dict[str, Any] = {
        "taken_at": 5.0,
        "seconds": 1.0,
        "complete": False,
        "slots": [{"slot": 3, "bytes": 123_456, "keys": 2}],
        "prefixes": [{"depth": 1, "prefix": "user:", "keys": 1, "bytes": 9}],
    }
    await client.post("/sizes", json=measured)
    said = changes(first, taking.take())
    assert said["sizes"]["bytes"] == 123_456
    assert said["sizes"]["prefixes"] == measured["prefixes"]
    assert said["heat"] == {"bytes": [None] * 3 + [123_000] + [None] * 12}
    second = taking.take()
    assert changes(second, taking.take()) == {}
    await client.post("/sizes", json={**measured, "taken_at": 6.0})
    again = changes(second, taking.take())
    assert again["sizes"]["last"]["taken_at"] == 6.0
    assert "prefixes" not in again["sizes"], "they are as they were"


async def test_load_is_told_with_the_heat_of_slots(taking: Taking, topom: Topom) -> None:
    first = await taking.first()
    slots = b64encode(told((3, 50, 5, 500, 5000))).decode()
    await tell(topom, slots=slots, hot_keys=[key(b"user:1")], all=Traffic(100, 5, 1000, 10_000))
    said = changes(first, await later(taking))
    assert said["load"]["proxies_telling"] == 1
    assert said["load"]["hot_keys"][0]["key"] == "user:1"
    assert said["load"]["slots"][0]["slot"] == 3
    assert list(said["load"]["groups"]) == ["1"]
    assert said["load"]["groups"]["1"] == 10
    assert list(said["load"]["proxies"].values()) == [20]
    # What a proxy counts from its start on changes with each request, and is no news.
    [proxy] = said["proxies"].values()
    assert set(proxy["counters"]) == {"clients"}
    assert [slot for slot, value in enumerate(said["heat"]["load"]) if value] == [3]
    assert len(said["load"]["slots"]) <= MOST_BUSY


async def test_notable_requests_are_told_when_they_have_changed(taking: Taking, topom: Topom) -> None:
    first = await taking.first()
    assert first.sections["notable"] == {}
    await tell(topom, notable=[notable(b"<b>")])
    told_once = await later(taking)
    [one] = changes(first, told_once)["notable"]["requests"]
    assert (one["key"], one["why"], one["bytes_out"]) == ("<b>", "big_reply", 2**21)
    topom.load.end_period(5.0, topom.ledger.table)
    again = await later(taking)
    assert again.sections["notable"] is told_once.sections["notable"]
    requests = [(notable(b"%d" % number), b"%d" % number) for number in range(20)]
    topom.load.notable.take(1, requests, False)
    assert len(changes(again, await later(taking))["notable"]["requests"]) == MOST_NOTABLE


async def test_the_event_loop_goes_on_while_the_load_is_written(
    taking: Taking, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    write = load.describe

    def describe(*arguments: Any, **options: Any) -> Any:
        assert written.wait(30)
        return write(*arguments, **options)

    first = await taking.first()
    await tell(topom, all=Traffic(100, 5, 1000, 10_000))
    monkeypatch.setattr(load, "describe", describe)
    for _ in range(5):
        assert taking.take().sections["load"] == first.sections["load"] == {}
        await asyncio.sleep(0.01)
    written.set()
    assert (await later(taking)).sections["load"]["proxies_telling"] == 1


async def test_what_an_operator_said_is_in_the_problems(taking: Taking, client: httpx.AsyncClient) -> None:
    await taking.first()
    await client.post("/pause", json={"why": "switches"})
    assert "switches" in taking.take().sections["problems"]["topom: paused"]["what"]
