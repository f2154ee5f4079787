"""Placement without a cluster, from a document with nodes and a table, such as a file holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slots.slot import MAXIMUM_SLOTS
from topom.placement.planner.planning import place
from topom.placement.planner.table import Copies, InvalidPlacement, Node, Rules

POLICY = "placement"
"""The name by which ``slotferry plan`` knows it."""
OF_NODE = ("name", "datacenter")
OF_INPUT = ("replicas", "nodes", "table", "slots")
OF_ANSWER = ("rounds", "promotions", "leader_copies", "follower_copies")
"""What an answer has besides its table; it is passed over if an answer is part of the next input."""


def place_document(document: Any, rules: Rules | None = None) -> dict[str, Any]:
    """The table at rest for a document's nodes, and the number of changes that it takes.

    Args:
        document: ``{"replicas": 2, "nodes": [...], "table": [{"slot", "leader", "followers"}...]}``. A node is a name
            or ``{"name", "datacenter"}``. ``replicas`` counts all copies, also the leader's. A node that only the table
            names has left. A slot that the table does not list has no copy; ``"slots"``, the number of slots, may be
            left out if the table lists the last one. A node that a slot names twice has one copy of it
            (:func:`doubles`).
        rules: watermark and limits; the number of replicas always comes from the document.

    Returns:
        ``{"table", "rounds", "promotions", "leader_copies", "follower_copies"}``: the table by ascending slot, and
        counts, as :class:`~topom.placement.planner.table.Placement` has them.

    Raises:
        InvalidPlacement: the document is wrong; a sentence says what.
    """
    if not isinstance(document, Mapping):
        raise InvalidPlacement('the input is not an object with "replicas", "nodes" and "table"')
    _require_known(document, (*OF_INPUT, *OF_ANSWER), f"the input has {', '.join(OF_INPUT)}")
    replicas = document.get("replicas")
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise InvalidPlacement(
            f'"replicas" of the input is {replicas!r}; it has to be a whole number, and counts the leader too'
        )
    wanted = replace(rules, replicas=replicas) if rules is not None else Rules(replicas)
    placed = place(_nodes(document.get("nodes")), _table(document), wanted)
    return {
        "table": [
            {"slot": slot, "leader": copies.leader, "followers": list(copies.followers)}
            for slot, copies in placed.table.items()
        ],
        "rounds": len(placed.rounds),
        "promotions": placed.promotions,
        "leader_copies": placed.leader_copies,
        "follower_copies": placed.follower_copies,
    }


def doubles(document: Mapping[str, Any]) -> list[str]:
    """Sentences that say which slots of a document for :func:`place_document` name a node more than once."""
    found = []
    for slot, copies in _table(document).items():
        for node, times in Counter(copies.holders).items():
            if times > 1:
                found.append(f"slot {slot} names node {node} {times} times; it is taken to have one copy there")
    return found


def _require_known(raw: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in raw:
        if name not in known:
            raise InvalidPlacement(f'"{name}" is no field that is known here: {what}')


def _nodes(raw: Any) -> list[Node]:
    if not isinstance(raw, list):
        raise InvalidPlacement('"nodes" of the input has to be a list of names, or of {"name", "datacenter"}')
    return [_node(entry) for entry in raw]


def _node(raw: Any) -> Node:
    if isinstance(raw, Mapping):
        _require_known(raw, OF_NODE, f"a node has {', '.join(OF_NODE)}")
        name, datacenter = raw.get("name"), raw.get("datacenter", "")
    else:
        name, datacenter = raw, ""
    if not isinstance(name, str) or not isinstance(datacenter, str):
        raise InvalidPlacement(f"{raw!r} under nodes is neither a name nor an object with a name and a datacenter")
    return Node(name, datacenter)


def _table(document: Mapping[str, Any]) -> dict[int, Copies]:
    raw = document.get("table", [])
    if not isinstance(raw, list):
        raise InvalidPlacement('"table" of the input has to be a list of {"slot", "leader", "followers"}')
    listed: dict[int, Copies] = {}
    for entry in raw:
        slot = entry.get("slot") if isinstance(entry, Mapping) else None
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < MAXIMUM_SLOTS:
            raise InvalidPlacement(f"{entry!r} under table has no slot from 0 to {MAXIMUM_SLOTS - 1}")
        if slot in listed:
            raise InvalidPlacement(f"slot {slot} is listed more than once")
        listed[slot] = _copies(slot, entry)
    number = document.get("slots", max(listed, default=-1) + 1)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAXIMUM_SLOTS:
        raise InvalidPlacement(f'"slots" of the input is {number!r}; it has to be a number from 1 to {MAXIMUM_SLOTS}')
    if not number:
        raise InvalidPlacement('the table is empty; say with "slots" how many slots there are to be')
    if max(listed, default=0) >= number:
        raise InvalidPlacement(f"slot {max(listed)} is listed, but there are {number} slots, from 0 to {number - 1}")
    return {slot: listed.get(slot, Copies()) for slot in range(number)}


def _copies(slot: int, entry: Mapping[str, Any]) -> Copies:
    leader, followers = entry.get("leader"), entry.get("followers")
    if leader is not None and not isinstance(leader, str):
        raise InvalidPlacement(f"the leader of slot {slot} is {leader!r}; it has to be the name of a node")
    followers = [] if followers is None else followers
    if not isinstance(followers, list) or not all(isinstance(one, str) for one in followers):
        raise InvalidPlacement(
            f"the followers of slot {slot} are {followers!r}; they have to be a list of names of nodes"
        )
    return Copies(leader or "", tuple(followers))
