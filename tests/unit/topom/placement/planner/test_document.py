"""Documents to place: what they may leave out, and what is said of those that make no sense."""

import json
from typing import Any

import pytest

from topom.placement.planner import InvalidPlacement, Rules, place_document
from topom.placement.planner.document import doubles

TABLE = [{"slot": 0, "leader": "n0", "followers": ["n1"]}, {"slot": 1, "leader": "n1", "followers": ["n0"]}]


def document(**changes: Any) -> dict[str, Any]:
    return {"replicas": 2, "nodes": ["n0", "n1"], "table": TABLE} | changes


def test_a_document_at_rest_is_answered_with_itself() -> None:
    assert place_document(document()) == {
        "table": TABLE,
        "rounds": 0,
        "promotions": 0,
        "leader_copies": 0,
        "follower_copies": 0,
    }


def test_an_answer_is_part_of_the_next_input() -> None:
    answer = place_document(
        document(table=[], slots=9, nodes=["n0", {"name": "n1"}, {"name": "n2", "datacenter": "x"}])
    )
    again = place_document({"replicas": 2, "nodes": ["n0", "n1", {"name": "n2", "datacenter": "x"}], **answer})
    assert again["table"] == answer["table"]
    assert again["rounds"] == 0


def test_a_document_starts_afresh() -> None:
    answer = place_document(document(table=[], slots=4))
    assert [entry["slot"] for entry in answer["table"]] == [0, 1, 2, 3]
    assert (answer["rounds"], answer["promotions"]) == (1, 0)
    assert (answer["leader_copies"], answer["follower_copies"]) == (4, 4)


def test_a_node_that_only_the_table_names_has_left() -> None:
    answer = place_document(document(nodes=["n1", {"name": "n2", "datacenter": "east"}]))
    assert {entry["leader"] for entry in answer["table"]} == {"n1", "n2"} or answer["promotions"] == 1
    assert all(set(entry["followers"]) | {entry["leader"]} == {"n1", "n2"} for entry in answer["table"])
    assert (answer["leader_copies"], answer["follower_copies"]) == (0, 2)


def test_a_node_that_is_named_twice_in_a_slot_is_said() -> None:
    named = [{"slot": 0, "leader": "n0", "followers": ["n1", "n0", "n1"]}, {"slot": 1, "leader": "n1"}]
    assert doubles(document(table=named)) == [
        "slot 0 names node n0 2 times; it is taken to have one copy there",
        "slot 0 names node n1 2 times; it is taken to have one copy there",
    ]
    assert doubles(document()) == []


def test_a_document_is_an_object() -> None:
    with pytest.raises(InvalidPlacement, match="not an object"):
        place_document([])


@pytest.mark.parametrize(
    "table",
    [
        [{"slot": 1, "leader": "n1", "followers": ["n0"]}],
        [
            {"slot": 0, "leader": None, "followers": ["n0", "n0"]},
            {"slot": 1, "leader": "n1", "followers": ["n1", "n0"]},
        ],
        [{"slot": 0}, {"slot": 1, "leader": "gone", "followers": ["gone", "n1"]}],
    ],
)
def test_a_table_with_gaps_and_doubles_is_mended(table: list[dict[str, Any]]) -> None:
    answer = place_document(document(table=table))
    for entry in answer["table"]:
        assert sorted([entry["leader"], *entry["followers"]]) == ["n0", "n1"]
    assert len(answer["table"]) == 2


def test_more_replicas_than_nodes_give_each_node_a_copy() -> None:
    answer = place_document(document(replicas=5))
    assert answer["table"] == TABLE
    assert answer["rounds"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nodes": []}, "there is no node"),
        ({"nodes": ["n0", "n1", "n0"]}, "node n0 is listed more than once"),
        ({"nodes": ["n0", ""]}, "no name"),
        ({"nodes": "n0"}, '"nodes" of the input'),
        ({"nodes": ["n0", 1]}, "1 under nodes"),
        (
            {"nodes": ["n0", {"name": "n1", "datacentre": "x"}]},
            '"datacentre" is no field that is known here: a node has',
        ),
        ({"datacenters": {"n0": "x"}}, '"datacenters" is no field that is known here: the input has replicas, nodes'),
        ({"replicas": 0}, "replicas is 0"),
        ({"replicas": "2"}, '"replicas" of the input'),
        ({"replicas": True}, '"replicas" of the input'),
        ({"table": []}, "the table is empty"),
        ({"table": [], "slots": 0}, "the table is empty"),
        ({"table": {}}, '"table" of the input'),
        ({"table": [*TABLE, TABLE[0]]}, "slot 0 is listed more than once"),
        ({"table": [{"slot": -1, "leader": "n0"}]}, "has no slot"),
        ({"table": [{"slot": 20000, "leader": "n0"}]}, "has no slot"),
        ({"slots": 1}, "slot 1 is listed, but there are 1 slots"),
        ({"slots": 1.5}, '"slots" of the input'),
        ({"table": [{"slot": 0, "leader": 7}]}, "the leader of slot 0"),
        ({"table": [{"slot": 0, "leader": "n0", "followers": "n1"}]}, "the followers of slot 0"),
    ],
)
def test_a_document_that_cannot_be_meant(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidPlacement, match=expected):
        place_document(document(**changes))


@pytest.mark.parametrize(
    "rules",
    [
        Rules(2, watermark=-1),
        Rules(2, watermark=101),
        Rules(2, most_leader_changes=0),
        Rules(2, most_follower_changes=0),
    ],
)
def test_rules_that_cannot_be_meant(rules: Rules) -> None:
    with pytest.raises(InvalidPlacement):
        place_document(document(), rules)


def test_the_answer_is_json() -> None:
    assert json.loads(json.dumps(place_document(document()))) == place_document(document())
