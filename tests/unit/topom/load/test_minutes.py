"""Minutes as one topom tells them to another."""

import json
from array import array
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from topom.load.day import KINDS, DayMinute
from topom.load.measured import Kept
from topom.load.minutes import CLOCKS_SECONDS, MOST_NAMES, NoMinutes, heard, told

NOW = 10_000.0


def kept(*names: Any) -> Kept[Any]:
    return Kept(names, array("f", range(3 * len(names))))


def minute(began_at: float, **others: Kept[Any]) -> DayMinute:
    each = {
        "groups": kept(1, 2),
        "servers": kept("10.0.0.1:6379"),
        "proxies": kept(7),
        "users": kept(),
        "slots": kept(0),
    }
    return DayMinute(began_at, {kind: {**each, **others}[kind] for kind in KINDS})


def said(*minutes: DayMinute) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(told(minutes)))
    return found


def test_what_is_told_is_heard() -> None:
    minutes = [minute(60.0), minute(120.0, users=kept("ada", "default")), minute(180.0, users=kept("default"))]
    found, more = heard(json.dumps(told(minutes)).encode(), NOW)
    assert (found, more) == (minutes, False)
    assert heard(json.dumps(told([])).encode(), NOW) == ([], False)


def test_names_are_told_once_and_kept_once() -> None:
    document = said(minute(60.0), minute(120.0))
    assert document["minutes"][0]["servers"]["names"] == ["10.0.0.1:6379"]
    assert document["minutes"][1]["servers"]["names"] is None
    latest = minute(60.0)
    [first], _ = heard(json.dumps(said(minute(120.0))).encode(), NOW, latest)
    assert first.kept["servers"].names is latest.kept["servers"].names
    found, _ = heard(json.dumps(document).encode(), NOW)
    assert found[0].kept["groups"].names is found[1].kept["groups"].names


def test_an_answer_has_a_bound_and_at_least_one_minute() -> None:
    large = kept(*(f"10.0.{number // 250}.{number % 250}:6379" for number in range(1000)))
    minutes = [minute(60.0 * number, servers=large) for number in range(1, 10)]
    answer = told(minutes, 50_000)
    assert (len(answer["minutes"]), answer["more"]) == (2, True)
    assert len(json.dumps(answer, separators=(",", ":"))) < 100_000
    assert len(told(minutes, 1)["minutes"]) == 1
    assert heard(json.dumps(answer).encode(), NOW)[1]


def set_names(names: Any) -> Callable[[Any], None]:
    return lambda document: document["minutes"][0]["users"].update(names=names)


def set_values(*values: float) -> Callable[[Any], None]:
    text = b64encode(array("f", values).tobytes()).decode()
    return lambda document: document["minutes"][1]["proxies"].update(values=text)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.pop("more"),
        lambda document: document.update(minutes=7),
        lambda document: document["minutes"][0].pop("slots"),
        lambda document: document["minutes"][0].update(began_at=NOW + CLOCKS_SECONDS + 60),
        lambda document: document["minutes"][1].update(began_at=60.0),
        lambda document: document["minutes"][1].update(began_at=-1.0),
        lambda document: document["minutes"][1].update(began_at="x"),
        lambda document: document["minutes"][0]["groups"].update(names=[1, 0]),
        lambda document: document["minutes"][0]["slots"].update(names=[16384]),
        lambda document: document["minutes"][0]["servers"].update(names=["<script>"]),
        lambda document: document["minutes"][0]["servers"].update(names=None),
        lambda document: document["minutes"][0]["proxies"].update(values="x"),
        set_names(["a", "b\x1b"]),
        set_names(["a"]),
        set_names(["a"] * (MOST_NAMES + 1)),
        set_values(1.0, 2.0),
        set_values(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        set_values(1.0, -2.0, 3.0),
        set_values(1.0, float("nan"), 3.0),
        set_values(1.0, 2.0, float("inf")),
    ],
)
def test_what_cannot_be_is_refused(spoil: Callable[[Any], None]) -> None:
    document = said(minute(60.0), minute(120.0))
    heard(json.dumps(document).encode(), NOW)
    spoil(document)
    with pytest.raises(NoMinutes):
        heard(json.dumps(document).encode(), NOW)


def test_minutes_before_those_of_a_clock_that_is_ahead_are_taken() -> None:
    ahead = NOW + CLOCKS_SECONDS + 60
    answer = json.dumps(told([minute(60.0), minute(ahead), minute(ahead + 60)])).encode()
    assert heard(answer, NOW) == ([minute(60.0)], False)
    with pytest.raises(NoMinutes, match="360 s ahead"):
        heard(json.dumps(told([minute(ahead)])).encode(), NOW)


def test_what_is_no_json_is_refused() -> None:
    for answer in (b"", b"\xff", b"[", b"null", b"[" * 100_000):
        with pytest.raises(NoMinutes):
            heard(answer, NOW)
