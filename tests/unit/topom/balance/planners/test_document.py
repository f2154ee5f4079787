"""Plans of documents with sizes; documents without sizes are in ``test_codis.py``."""

import copy
import json
from typing import Any

import pytest

from topom.balance import planners
from topom.balance.planners import PlanRequest

DOCUMENT: dict[str, Any] = {
    "groups": [{"id": 1, "servers": ["a:1"]}, {"id": 2, "servers": ["b:1"]}],
    "slots": [{"id": slot, "group_id": 1} for slot in range(4)],
    "sizes": {"0": 100, "1": 300, "2": 200},
    "keys": {"0": 1, "1": 3, "2": 2},
    "capacity": {"1": 2, "2": 1.0},
}


def test_a_document_is_planned_by_bytes() -> None:
    found = planners.plan_document("bytes", DOCUMENT)
    way = found["cost"]["pairs"][0].pop("way")
    assert (way["way"], way["keys"], way["bytes"], way["twice_bytes"], way["rounds"]) == ("keys", 2, 200, 200, 1)
    assert way["because"].startswith("2 keys (200 bytes) move in 0.0 s, and by the stream in ")
    assert "assumed: 40,000 keys a second by keys" in way["because"]
    assert found["cost"].pop("seconds") == 0.0
    assert found == {
        "moves": [{"slot": 2, "from": 1, "to": 2}],
        "reasons": [],
        "groups": [
            {
                "id": 1,
                "share_bytes": 400,
                "before": {"slots": 4, "bytes": 600, "keys": 6, "percent_off": 50.0},
                "after": {"slots": 3, "bytes": 400, "keys": 4, "percent_off": 0.0},
            },
            {
                "id": 2,
                "share_bytes": 200,
                "before": {"slots": 0, "bytes": 0, "keys": 0, "percent_off": -100.0},
                "after": {"slots": 1, "bytes": 200, "keys": 2, "percent_off": 0.0},
            },
        ],
        "cost": {
            "pairs": [{"from": 1, "to": 2, "slots": 1, "bytes": 200, "keys": 2}],
            "total": {"slots": 1, "bytes": 200, "keys": 2},
        },
    }


def test_options_go_along() -> None:
    answer = planners.plan_document("bytes", DOCUMENT, PlanRequest(drain=frozenset({1}), most_bytes=300))
    assert answer["moves"] == [{"slot": slot, "from": 1, "to": 2} for slot in (1, 3)]
    assert answer["cost"]["total"] == {"slots": 2, "bytes": 300, "keys": 3}
    assert "the limit of 300 bytes leaves out 2 moves of 300 bytes" in answer["reasons"][-1]


def test_the_policy_codis_answers_as_codis_does() -> None:
    assert planners.plan_document("codis", DOCUMENT, PlanRequest(most_slots=1)) == {
        "moves": [{"slot": 2, "from": 1, "to": 2}]
    }


@pytest.mark.parametrize("policy", ["bytes", "codis"])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sizes", [1], '"sizes" of the input has to be an object'),
        ("sizes", None, '"sizes" of the input has to be an object'),
        ("sizes", {"0": -1}, "slot 0 is -1; it has to be a whole number of bytes"),
        ("sizes", {"0": 1.5}, "slot 0 is 1.5; it has to be a whole number"),
        ("sizes", {"0": "12"}, "slot 0 is '12'; it has to be a number"),
        ("sizes", {"0": None}, "slot 0 is None; it has to be a number"),
        ("sizes", {"0": True}, "slot 0 is True; it has to be a number"),
        ("sizes", {"0": float("nan")}, "slot 0 is nan"),
        ("sizes", {"0": float("inf")}, "slot 0 is inf"),
        ("sizes", {"0": 10**400}, "below 2\\^63"),
        ("sizes", {"4": 1}, "names slot 4, which is not listed under slots"),
        ("sizes", {"-1": 1}, "names '-1', which is no slot id"),
        ("sizes", {"00": 1}, "names '00', which is no slot id"),
        ("sizes", {"first": 1}, "names 'first', which is no slot id"),
        ("sizes", {"9" * 5000: 1}, "which is no slot id"),
        ("keys", {"0": -1}, "slot 0 is -1; it has to be a whole number of keys"),
        ("keys", "many", '"keys" of the input has to be an object'),
        ("loads", {"0": 5}, '"loads" of the input has to be an object, with .requests, bytes in, bytes out. a second'),
        ("loads", {"0": [1, 2]}, '"loads" of the input has to be an object'),
        ("loads", [1], '"loads" of the input has to be an object'),
        ("loads", {"9": [1, 2, 3]}, "names slot 9, which is not listed under slots"),
        ("loads", {"0": [1, -2, 3]}, "has to be three numbers, each 0 or more"),
        ("loads", {"0": [1, "2", 3]}, "slot 0 is '2'; it has to be a number"),
        ("capacity", {"1": 0}, '"capacity" of group 1 is 0; it has to be above 0'),
        ("capacity", {"1": -2}, '"capacity" of group 1 is -2; it has to be above 0'),
        ("capacity", {"1": float("nan")}, '"capacity" of group 1 is nan'),
        ("capacity", {"1": False}, '"capacity" of group 1 is False; it has to be a number'),
        ("capacity", {"1": "2"}, "\"capacity\" of group 1 is '2'; it has to be a number"),
        ("capacity", {"3": 1}, "names group 3, which is not listed under groups"),
        ("capacity", {"0": 1}, "names group 0, which is not listed under groups"),
    ],
)
def test_figures_that_cannot_be(policy: str, name: str, value: object, message: str) -> None:
    with pytest.raises(planners.InvalidPlanInput, match=message):
        planners.plan_document(policy, {**DOCUMENT, name: value})


def test_a_document_may_be_in_any_order_and_is_not_changed() -> None:
    document = copy.deepcopy(DOCUMENT)
    other = {
        name: dict(reversed(part.items())) if isinstance(part, dict) else part[::-1] for name, part in DOCUMENT.items()
    }
    assert json.dumps(planners.plan_document("bytes", other)) == json.dumps(planners.plan_document("bytes", document))
    assert document == DOCUMENT
