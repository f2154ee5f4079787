"""What the API makes of what the doctor finds."""

import time
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from starlette.requests import Request

from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api import doctor
from topom.api.doctor import MOST_OF_A_RULE
from topom.doctor import replication, serving
from topom.doctor.examining import Examination
from topom.term.service import Topom
from topom.term.settings import TopomSettings


def request() -> Request:
    app = SimpleNamespace(state=SimpleNamespace(node=None, settings=None))
    return Request({"type": "http", "app": app})


def topom_of(data: Path, **settings: object) -> Topom:
    return Topom(TopomSettings.load(None, data=data, number_of_slots=16, **settings), MemoryStore(), FakeMover())


async def test_of_one_rule_the_answer_has_some_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topom = topom_of(tmp_path)
    await topom.start()
    many = [replication.ALONE.of(f"server h:{number}", group=number) for number in range(1000)]
    findings = (serving.SILENT.of("server g:1", why="it hangs", command="redis-cli"), *many)

    async def examine(*_: object) -> Examination:
        return Examination(7.0, 1001, 3, findings)

    monkeypatch.setattr(topom.doctor, "examine", examine)
    found = await doctor.examine(request(), topom)
    assert (found.at, found.servers, found.not_asked) == (7.0, 1001, 3)
    assert found.counts == {"critical": 1, "warning": 1000, "note": 0}
    assert found.more == {"no-replica": 1000 - MOST_OF_A_RULE}
    assert len(found.findings) == 1 + MOST_OF_A_RULE
    assert found.findings[0].seen == "it does not answer topom: it hangs"
    await topom.close()


async def test_a_cluster_without_groups_has_what_the_status_says_is_wrong(tmp_path: Path) -> None:
    topom = topom_of(tmp_path)
    await topom.start()
    found = await doctor.examine(request(), topom)
    assert [one.rule for one in found.findings if one.subject != "topom"] == ["hurts-now"]
    assert found.findings[0].seen == "there is no group yet, so proxies refuse all commands"
    await topom.close()


@pytest.mark.parametrize(
    ("listen", "public"),
    [
        *(("127.0.0.1:8380", False), ("[::1]:8380", False), ("localhost:8380", False), ("127.0.0.1:0", False)),
        *(("0.0.0.0:8380", True), (":8380", True), ("[::]:8380", True), ("10.0.0.1:8380", True)),
    ],
)
async def test_whether_other_machines_reach_topom(tmp_path: Path, listen: str, public: bool) -> None:
    topom = topom_of(tmp_path, listen=listen)
    await topom.start()
    found = await doctor.examine(request(), topom)
    assert ("topom-in-the-clear" in [one.rule for one in found.findings]) == public
    await topom.close()


async def test_a_topom_that_is_reached_by_tls_is_not_in_the_clear(tmp_path: Path) -> None:
    topom = topom_of(tmp_path, listen="0.0.0.0:8380", url="https://topom")
    await topom.start()
    found = await doctor.examine(request(), topom)
    assert "topom-in-the-clear" not in [one.rule for one in found.findings]
    await topom.close()


async def test_clocks_of_the_topoms_that_follow() -> None:
    dates = {"b": 60.0, "c": -60.0, "e": None}

    def answer(asked: httpx.Request) -> httpx.Response:
        assert asked.url.path == "/livez"
        if asked.url.host == "d":
            raise httpx.ReadTimeout("it hangs")
        ahead = dates[asked.url.host]
        date = "yesterday" if ahead is None else format_datetime(datetime.fromtimestamp(time.time() + ahead, UTC))
        return httpx.Response(200, headers={"date": date})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        found = await doctor.clocks(http, ["http://b", "http://c", "http://d", "http://e", "http://["])
    assert {url: round(ahead / 60) for url, ahead in found.items()} == {"http://b": 1, "http://c": -1}
