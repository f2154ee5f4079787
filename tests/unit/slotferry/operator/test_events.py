"""``slotferry events --follow``: every event once, whatever becomes of topom meanwhile."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from slotferry.client import TopomClient
from slotferry.operator import events

KEPT = range(3, 8)


def event(number: int) -> dict[str, Any]:
    return {"id": number, "text": f"event {number}"}


class Played:
    """Answers the requests for events one after the other, and notes what was asked."""

    def __init__(self, answers: Sequence[tuple[int, Sequence[int]] | None]) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(dict(request.url.params))
        answer = self._answers.pop(0)
        if answer is None:
            raise httpx.ConnectError("refused")
        newest, ids = answer
        return httpx.Response(200, json={"oldest": 1, "newest": newest, "events": [event(number) for number in ids]})


async def followed(played: Played, count: int, since: int | None) -> list[int]:
    async def stream() -> AsyncIterator[int]:
        async with TopomClient("http://topom", "t", httpx.MockTransport(played)) as client:
            async for one in events._stream(client, since, 50):
                yield one["id"]

    found: list[int] = []
    async for number in stream():
        found.append(number)
        if len(found) == count:
            break
    return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(events, "POLL_SECONDS", 0.001)


async def test_it_goes_on_after_the_last_one_it_had() -> None:
    played = Played([(7, KEPT), (7, ()), None, None, (9, (8, 9))])
    assert await followed(played, 7, None) == [3, 4, 5, 6, 7, 8, 9]
    assert [one.get("since") for one in played.asked] == [None, "7", "7", "7", "7"]


async def test_a_topom_without_any_event_is_followed_from_the_first() -> None:
    played = Played([(0, ()), (1, (1,))])
    assert await followed(played, 1, None) == [1]


async def test_events_of_another_store_begin_anew(capsys: pytest.CaptureFixture[str]) -> None:
    played = Played([(2, ()), (2, (1, 2))])
    assert await followed(played, 2, 99) == [1, 2]
    assert "start again" in capsys.readouterr().err


async def test_events_that_are_not_kept_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    played = Played([(9, (8, 9))])
    assert await followed(played, 2, 3) == [8, 9]
    assert "events 4 to 7 are not kept" in capsys.readouterr().err
