"""The load over the API: what it shows, and how often it is written."""

import asyncio
import gc
import time
import weakref
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.messages.control import Load, Register
from slots.messages.load import HotKey, Notable, ServerTraffic, Traffic
from tests.unit.slots.test_slotrates import told
from tests.unit.topom.load.test_asking import Link
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api import load as load_api
from topom.api.load_models import History, NotableRequests
from topom.api.load_models import Load as LoadShown
from topom.load.asking import ASK_SECONDS
from topom.load.day import DayMinute
from topom.load.minutes import Told, heard
from topom.term.service import Topom
from topom.term.settings import TopomSettings


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    one = Topom(TopomSettings.load(None, data=tmp_path, number_of_slots=16), MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        await one.post("/groups", json={"id": 1, "servers": ["127.0.0.1:1"], "offline_ok": True})
        await one.post("/slots/assign", json={"slots": "0-15", "group_id": 1})
        yield one


async def tell(topom: Topom, **fields: Any) -> None:
    """A proxy of its own tells this, and the period ends."""
    link = Link()
    frame = Register(instance="a" * 32, address="p:1", hostname="h", pid=1, workers=1, version="0", epoch=0)
    member = await topom.members.register(frame, link)
    await topom.asking.look()
    topom.asking.answered(member, link, Load(number=link.said[-1].number, seconds=1.5, **fields))
    topom.load.end_period(ASK_SECONDS, topom.ledger.table)


def key(name: bytes, rate: float = 5.0) -> HotKey:
    return HotKey(0, 3, b64encode(name).decode(), len(name), rate, 0.0)


def notable(name: bytes, **fields: Any) -> Notable:
    """A reply of 2 MiB, and what else is said of it."""
    told = {
        "why": "big_reply",
        "command": "get",
        "database": 0,
        "slot": 3,
        "key": b64encode(name).decode(),
        "length": len(name),
        "user": "default",
        "client": "10.0.0.7:5",
        "server": "127.0.0.1:1",
        "seconds": 2.0,
        "microseconds": 1500.0,
        "bytes_in": 30,
        "bytes_out": 2**21,
        "elements": 0,
    }
    return Notable(**{**told, **fields})


async def test_nothing_is_known_at_first(client: httpx.AsyncClient) -> None:
    found = (await client.get("/load")).json()
    assert LoadShown.model_validate(found).measured_seconds == 0
    assert (found["slots"], found["proxies_telling"], found["proxies_total"]) == ([], 0, 0)
    assert found["total"] == {"requests": 0, "errors": 0, "bytes_in": 0, "bytes_out": 0}


async def test_what_proxies_tell_is_shown(client: httpx.AsyncClient, topom: Topom) -> None:
    await tell(
        topom,
        slots=b64encode(told((3, 50, 5, 500, 5000), (7, 5, 0, 50, 500))).decode(),
        servers={"127.0.0.1:1": ServerTraffic(60, 5, 500, 5000, 100_000.0, 50)},
        users={"default": Traffic(50, 0, 0, 0)},
        hot_keys=[key(b"user:1"), key(b"\xff\n", 1.0)],
        all=Traffic(100, 5, 1000, 10_000),
    )
    found = (await client.get("/load")).json()
    LoadShown.model_validate(found)
    busy = {"requests": 10, "errors": 1, "bytes_in": 100, "bytes_out": 1000}
    minute = {"requests": 0, "errors": 0, "bytes_in": 0, "bytes_out": 0}
    assert found["slots"][0] == {"slot": 3, "group_id": 1, **busy, "minute": minute}
    assert [slot["slot"] for slot in found["slots"]] == [3, 7]
    (group,) = found["groups"]
    # Ten requests waited at the server, and have no part in its time.
    assert (group["group_id"], group["slots"], group["requests"], group["milliseconds"]) == (1, 16, 11, 2.0)
    assert found["servers"] == [
        {"server": "127.0.0.1:1", "group_id": 1, **busy, "requests": 12, "minute": minute, "milliseconds": 2.0}
    ]
    assert [(proxy["proxy_id"], proxy["address"], proxy["requests"]) for proxy in found["proxies"]] == [(1, "p:1", 20)]
    assert [(user["user"], user["requests"]) for user in found["users"]] == [("default", 10)]
    assert [(each["key"], each["rate"], each["share"], each["group_id"]) for each in found["hot_keys"]] == [
        ("user:1", 5, 0.25, 1),
        (r"\xff\n", 1, 0.05, 1),
    ]
    assert (found["proxies_telling"], found["proxies_total"]) == (1, 1)


async def test_all_slots_are_shown_if_they_are_asked_for(client: httpx.AsyncClient, topom: Topom) -> None:
    await tell(topom, slots=b64encode(told((3, 50, 5, 500, 5000))).decode())
    found = (await client.get("/load", params={"slots": "all"})).json()
    assert [slot["slot"] for slot in found["slots"]] == list(range(16))
    assert found["slots"][3]["requests"] == 10
    assert (await client.get("/load", params={"slots": "some"})).status_code == 422


async def test_minutes_are_shown_as_series(client: httpx.AsyncClient, topom: Topom) -> None:
    await tell(topom, slots=b64encode(told((3, 60, 0, 0, 0), (4, 120, 0, 600, 0))).decode())
    for began_at in (0.0, 60.0):
        kept = {kind: measured.turn(60.0) for kind, measured in topom.load.kinds.items()}
        topom.load.day.add(DayMinute(began_at, kept))
    found = (await client.get("/load/history", params={"of": "slots", "minutes": 2})).json()
    History.model_validate(found)
    assert found["minutes"] == [0, 60]
    assert found["series"] == [
        {"name": "4", "requests": [2, None], "bytes_in": [10, None], "bytes_out": [0, None]},
        {"name": "3", "requests": [1, None], "bytes_in": [0, None], "bytes_out": [0, None]},
    ]
    groups = (await client.get("/load/history", params={"minutes": 1})).json()
    assert groups["series"] == [{"name": "1", "requests": [0], "bytes_in": [0], "bytes_out": [0]}]
    for wrong in ({"of": "keys"}, {"minutes": 0}, {"minutes": 1441}, {"most": 101}):
        assert (await client.get("/load/history", params=wrong)).status_code == 422


async def test_notable_requests_are_shown(client: httpx.AsyncClient, topom: Topom) -> None:
    none = (await client.get("/load/notable")).json()
    assert NotableRequests.model_validate(none).requests == []
    # Times are rounded to a tenth.
    assert time.time() - 60 < none["since"] <= time.time() + 0.1
    slow = {"why": "slow", "command": "config|get", "slot": -1, "length": 0, "client": "", "server": ""}
    await tell(
        topom,
        notable=[
            notable(b"", seconds=3.0, **slow),
            notable(b"<b>\xff\n"),
            notable(b"<b>\xff\n", user="ada", bytes_out=2**22),
        ],
    )
    found = (await client.get("/load/notable", params={"most": 5})).json()
    NotableRequests.model_validate(found)
    big, other = found["requests"]
    assert time.time() - 60 < big.pop("first_at") <= big.pop("last_at") <= time.time() + 0.1
    assert big == {
        "why": "big_reply",
        "command": "get",
        "key": r"<b>\xff\n",
        "hashed": False,
        "length": 5,
        "database": 0,
        "slot": 3,
        "group_id": 1,
        "times": 2,
        "milliseconds": 1.5,
        "bytes_in": 30,
        "bytes_out": 2**22,
        "elements": 0,
        "user": "ada",
        "client": "10.0.0.7:5",
        "server": "127.0.0.1:1",
        "proxy_id": 1,
        "proxy_address": "p:1",
    }
    assert (other["key"], other["length"], other["slot"], other["group_id"]) == ("", 0, None, 0)
    asked = {"why": "slow", "most": 1}
    assert (await client.get("/load/notable", params=asked)).json()["requests"] == [other]
    assert (await client.get("/load/notable", params={"most": 1})).json()["requests"][0]["why"] == "big_reply"
    for wrong in ({"why": "ugly"}, {"most": 0}, {"most": 513}):
        assert (await client.get("/load/notable", params=wrong)).status_code == 422


async def test_minutes_are_told_to_other_topoms(client: httpx.AsyncClient, topom: Topom) -> None:
    await tell(topom, slots=b64encode(told((3, 60, 0, 0, 0))).decode(), users={"ada": Traffic(60, 0, 0, 0)})
    for began_at in (60.0, 120.0, 180.0):
        kept = {kind: measured.turn(60.0) for kind, measured in topom.load.kinds.items()}
        topom.load.day.add(DayMinute(began_at, kept))
    answer = await client.get("/load/minutes")
    Told.model_validate_json(answer.content)
    minutes, more = heard(answer.content, 200.0)
    assert ([minute.began_at for minute in minutes], more) == ([60, 120, 180], False)
    assert {kind: list(kept.names) for kind, kept in minutes[0].kept.items()} == {
        "groups": [1],
        "servers": [],
        "proxies": [1],
        "users": ["ada"],
        "slots": [3],
    }
    later = await client.get("/load/minutes", params={"after": 120})
    assert [minute.began_at for minute in heard(later.content, 200.0)[0]] == [180]
    assert (await client.get("/load/minutes", params={"after": "inf"})).status_code == 422


async def test_ten_viewers_cost_as_one(
    client: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    describe = load_api.describe

    def counted(topom: Topom, all_slots: bool) -> Any:
        written.append(all_slots)
        return describe(topom, all_slots)

    monkeypatch.setattr(load_api, "describe", counted)
    answers = await asyncio.gather(*(client.get("/load") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert written == [False]
    await client.get("/load", params={"slots": "all"})
    assert written == [False, True]


class Other:
    instance = "other"


async def test_an_answer_is_written_anew_when_it_is_old_or_another_topoms(topom: Topom) -> None:
    now = 0.0
    pages = load_api.Pages(lambda: now)
    number = iter(range(100))
    ask = lambda of=topom, what="x": pages.page(what, of, lambda: {"n": next(number)})  # noqa: E731
    assert await ask() == await ask() == b'{"n":0}'
    now = 1.9
    assert await ask() == b'{"n":0}'
    now = 2.0
    assert await ask() == b'{"n":1}'
    other: Any = Other()
    assert await ask(other) == b'{"n":2}'
    assert await ask(other) == b'{"n":2}'
    term = weakref.ref(other)
    del other
    gc.collect()
    assert term() is None, "a term that is over is kept by no page"
    for what in range(50):
        await ask(what=str(what))
    assert len(pages._pages) == load_api.MOST_PAGES
